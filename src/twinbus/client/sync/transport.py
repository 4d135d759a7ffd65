# Generated from client/aio/transport.py by tests/pages/sync_client.py: edit that file, then run `make pages`.
"""Where the links of a pair come from: the official SDK (`sdk_transport`), or our own engine (`client/native`).

The runner of a pair decides nothing about links; it asks one of these. Failures are raised as `LinkFailed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from twinbus.pairing.sending.failure import Failure


class Probed(NamedTuple):
    """What came of asking the primary whether it is back."""

    size: int
    """Bytes of the ping; 0: none was sent."""
    failure: Failure | None


class BacklogLinks(Protocol):
    """Links to backlog queues, shared by all senders of a pair."""

    @property
    def batch_bytes(self) -> int:
        """What a backlog queue takes at once, as its links say."""

    @property
    def links(self) -> int:
        """How many links are open, or being opened."""

    def send(self, queue: int, encoded: Sequence[bytes], timeout_s: float, *, is_patient: bool = True) -> None:
        """Store encoded messages in a backlog queue; raises `LinkFailed`, and `NoFreeLink` if nothing was tried.

        `is_patient`: the time runs from when there is a link, and the send takes no more than twice its time.
        """

    def open_another(self, queue: int, timeout_s: float) -> None:
        """Connect anew, and keep the link for the next send; raises `LinkFailed`."""

    def is_warm(self, queue: int) -> bool:
        """Whether a link to it is open, or being opened."""

    def warm_up(self, queue: int, timeout_s: float) -> None:
        """Open a link before it is needed; failures surface on the next send."""

    def close_idle(self, keep: int | None = None) -> None:
        """Close links that are dead, and those that nobody used for a while; one to the queue `keep` stays."""


class Transport(Protocol):
    def start(self) -> None:
        """Links can be opened from now on."""

    @property
    def backlog(self) -> BacklogLinks:
        """Only after `start`."""

    def probe(self, path: str, timeout_s: float, *, sends_ping: bool) -> Probed:
        """Open a link to an entity of the primary, and send a ping on it if wanted. Raises nothing."""

    def end_primary(self) -> None:
        """Open no more links to the primary; users of open ones get an error."""

    def end_backlog(self) -> None:
        """The same for backlog queues."""

    def hang_up(self) -> None:
        """Take away every link; returns at once."""

    def close(self) -> None:
        """Close what the links were made of."""

    def wait_closed(self) -> None:
        """Returns when all links that were taken away are closed."""
