"""What the relay needs of the primary, and how a failure there is reported to an application.

`upstream.py` reaches the primary over sockets; the simulator over wires in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.broker.links.backend import PeerLink
from twinbus.broker.operations import ReceiveMode
from twinbus.errors import ConditionError, NamespaceError, OperationTimedOut
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.transport.links.link_handler import LinkHandler

LINK_LOST = "amqp:link:detach-forced"
"""The condition after which official clients attach again by themselves, on the same connection."""
TIMED_OUT = OperationTimedOut.condition
"""The condition after which they repeat a request or a send."""

_NOT_IN_A_DETACH = frozenset((TIMED_OUT, "com.microsoft:server-busy", "com.microsoft:operation-cancelled"))
"""The receivers of some official clients never come back after a detach with one of these."""


class ReceiverTerms(NamedTuple):
    """A link for a receiver, to be opened at the primary as the application asked for it."""

    path: str
    mode: ReceiveMode
    link: PeerLink
    wait_ms: int
    """How long the primary may take to answer, beyond what any answer may take: a session may have to become free."""


class UpstreamTransaction(Protocol):
    """A transaction at the primary."""

    id: bytes

    @property
    def is_lost(self) -> bool:
        """Whether the link it was declared on has ended: then it was rolled back."""


class Upstream(Protocol):
    """The primary. Each connection of an application has one of its own there, opened when it is needed.

    Results come later, in a call of their own; none comes after `close`, or after the link was closed.
    """

    def open_receiver(
        self, terms: ReceiverTerms, handler: LinkHandler, on_result: Callable[[ReceivingLink | Failure], None]
    ) -> None:
        """Events of the link go to the handler."""

    def give_up(self, connection: int, handler: LinkHandler) -> None:
        """Stop opening the link with this handler: it is not needed any more."""

    def close_link(self, connection: int, link: ReceivingLink) -> None:
        """End a link and what belongs to it, also after the primary has ended it."""

    def find(self, connection: int, path: str, on_result: Callable[[Failure | None], None]) -> None:
        """Ask whether requests can be sent to an entity."""

    def request(
        self,
        connection: int,
        path: str,
        payload: bytes,
        on_result: Callable[[bytes | Failure], None],
        transaction: bytes | None = None,
    ) -> None:
        """Send an encoded request to the entity's `$management`; the response has the id of the request."""

    def begin_transaction(self, connection: int, on_result: Callable[[UpstreamTransaction | Failure], None]) -> None:
        """Declare a transaction at the primary."""

    def send_in(
        self,
        connection: int,
        transaction: UpstreamTransaction,
        path: str,
        via: str | None,
        payload: bytes,
        message_format: int,
        on_result: Callable[[Failure | None], None],
    ) -> None:
        """Send one transfer as a part of a transaction, to an entity or via another one."""

    def end_transaction(
        self,
        connection: int,
        transaction: UpstreamTransaction,
        commits: bool,
        on_result: Callable[[Failure | None], None],
    ) -> None: ...

    def kept_bytes(self, connection: int) -> int:
        """What is kept for a connection until the primary takes it or answers."""

    def pause(self, connection: int) -> None:
        """Read nothing from the primary on this connection for now."""

    def resume(self, connection: int) -> None: ...

    def close(self, connection: int) -> None:
        """The application is gone."""

    def flush(self, connection: int) -> None:
        """Send what was written to links of this connection."""


def refusal_of(failure: Failure, otherwise: str) -> NamespaceError:
    """The error for an application: the primary's own, or one with the condition `otherwise` if it gave none."""
    if failure.is_connection or failure.condition is None:
        text = f"the primary namespace cannot be reached: {failure.text}"
        if failure.kind is FailureKind.UNAUTHORISED:
            text = f"the primary namespace does not accept the credentials of the proxy: {failure.text}"
        return ConditionError(otherwise, text)
    return ConditionError(failure.condition, failure.text)


def loss_of(failure: Failure) -> NamespaceError:
    """Why a receiver is detached: the primary's reason, unless official clients would not attach again after it."""
    error = refusal_of(failure, LINK_LOST)
    return ConditionError(LINK_LOST, str(error)) if error.condition in _NOT_IN_A_DETACH else error
