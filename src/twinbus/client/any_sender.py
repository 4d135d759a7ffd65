"""What senders on threads and on tasks have in common: checks, early warnings, what they say of themselves."""

from __future__ import annotations

import uuid
import warnings
import weakref
from dataclasses import replace
from time import monotonic
from typing import Any, Protocol

from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from twinbus.client import answers
from twinbus.client.asks import Answer, Crowded, Woke
from twinbus.client.chronicle import Chronicle
from twinbus.client.flows import Choice
from twinbus.client.messages import Prepared, can_take_detour, might_not_fit, prepare, prepare_light, reserved_names
from twinbus.client.parcel import SdkParcel
from twinbus.client.standing import Standing
from twinbus.errors import PairClosed, SendError
from twinbus.pairing.entity import Entity
from twinbus.pairing.failure import Failure, FailureKind
from twinbus.pairing.receipt import SendReceipt, Side, attach_receipt
from twinbus.pairing.retry import kept_back_s

KEEPS_LINK = frozenset((FailureKind.BUSY, FailureKind.TOO_LARGE, FailureKind.NOT_ALLOWED, FailureKind.REJECTED))
"""After these the link is as good as before; after others it is never used again."""

REST_S = 0.1
"""A link that was not used for so long is looked at before it is: many things hang up on links that lie idle, and that
is no outage. To look is cheap, but not so cheap as to do it between sends that follow one another."""

NOT_TRIED = Failure(FailureKind.UNREACHABLE, "another send closed the link first")
"""Nothing was attempted, and nothing counts."""


class Pool(Protocol):
    batch_bytes: int


class Shell(Protocol):
    """What both shells have for a sender."""

    standing: Standing

    @property
    def pool(self) -> Pool: ...

    def warn_once(self, entity: Entity, name: str, text: str, **details: object) -> None: ...
    def doubted(
        self, entity: Entity, failure: Failure, message_ids: tuple[str, ...], sizes: tuple[int, ...] = ()
    ) -> None: ...


class AnySender:
    def __init__(self, shell: Shell, entity: Entity, client_identifier: str | None = None) -> None:
        self.entity = entity
        self.client_identifier = client_identifier or f"SBSender-{uuid.uuid4()}"
        """What its links to the primary are called there, as senders of the SDK have it."""
        self.choice = Choice()
        self._straight = [0]
        # When it is closed or forgotten, what it sent on the straight way counts among what its entity has seen.
        self._fold = weakref.finalize(self, _fold, self._straight, entity)
        self._attempt_s = shell.standing.pair.rules.attempt_s
        self._standing = shell.standing
        self._home = shell
        self._chronicle: Chronicle | None = None
        self._is_closed = False
        self._is_opening = False
        """Whether who has its turn opens a link: nothing is stored meanwhile."""
        self._used_at = 0.0
        self._failed_at = 0.0
        self._last_failure = NOT_TRIED
        self._room_bytes = 0
        """What surely fits a backlog queue; nothing does before there is a link."""

    @property
    def straight(self) -> int:
        """Messages that went to the primary on the straight way, and are not counted elsewhere."""
        return self._straight[0]

    @property
    def entity_name(self) -> str:
        return self.entity.path

    @property
    def fully_qualified_namespace(self) -> str:
        return self._standing.primary.host

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.entity.path!r})"

    def _prepare(self, message: Any, timeout: float | None, kwargs: dict[str, Any]) -> Prepared:
        """The messages with their ids; raises what is wrong with the call."""
        if kwargs or timeout is not None or self._is_closed or not self._standing.is_usable:
            self._check(timeout, kwargs)
        limit_bytes = self._home.pool.batch_bytes
        light = prepare_light(message, limit_bytes) if type(message) is list else None
        if light is not None:
            return light
        prepared = prepare(message)
        if not can_take_detour(prepared, limit_bytes):
            names = reserved_names(prepared)
            if names or might_not_fit(prepared, limit_bytes):
                self._warn_early(names)
        return prepared

    def _check(self, timeout: float | None, kwargs: dict[str, Any]) -> None:
        if kwargs:
            warnings.warn(f"Unsupported keyword args: {kwargs}", stacklevel=4)
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")
        self._standing.check_not_ended()  # first: after a fault everybody is told the reason
        if self._is_closed:
            raise PairClosed(f"the sender of {self.entity.path} is closed: nothing was sent")
        self._standing.check_usable()

    # --- what an attempt comes to ---

    def _ending(self, failure: Failure | None = None) -> Woke | None:
        """The answer to everything once the sender or the client is closed; None before. No news of the primary."""
        if self._is_closed:
            return answers.woke(is_closing=True, failure=failure, reason="the sender was closed")
        if self._standing.has_ended:
            return answers.woke(is_closing=True, failure=failure)
        return None

    def _came_to(self, failure: Failure) -> Answer:
        """The answer after a failed attempt."""
        return self._ending(failure) or answers.failed(failure)

    def _note_failure(self, failure: Failure) -> None:
        """What an attempt has shown is known to those who wait for their turn."""
        if spoils_link(failure):
            self._failed_at, self._last_failure = monotonic(), failure

    def _shared_failure(self, since: float) -> Answer | None:
        """What others found out about the primary while this send waited for its turn; None: nothing, or it works."""
        if self._failed_at < since or self._failed_at < self._used_at:
            return None
        found = self._last_failure
        return self._came_to(replace(found, in_doubt=False, error=_twin_of(found)))

    def _no_turn(self, since: float) -> Crowded:
        """Others of this process took all the time: that is no trouble of the primary's."""
        text = f"other sends to {self.entity.path} on this sender took all the time"
        failure = Failure(FailureKind.NO_ANSWER, text, error=OperationTimeoutError(message=text))
        return answers.crowded(failure, is_moving=self._used_at >= since)

    def _interrupted(
        self, error: BaseException, message_ids: tuple[str, ...], started_at: float, sizes: tuple[int, ...]
    ) -> None:
        """A caller did not wait for the answer: nobody knows what became of the messages, and that is said."""
        count = len(message_ids)
        receipt = SendReceipt(self.entity.path, message_ids, Side.PRIMARY, 0, (), 1, count, monotonic() - started_at)
        attach_receipt(error, receipt)
        failure = Failure(FailureKind.NO_ANSWER, "the caller did not wait for the answer", in_doubt=True)
        self._home.doubted(self.entity, failure, message_ids, sizes if len(sizes) == count else ())

    def _straight_s(self, timeout: float | None) -> float:
        """How long a send may take on the straight way."""
        if timeout is None:
            return self._attempt_s
        return min(self._attempt_s, timeout - kept_back_s(self._standing.pair.rules, timeout))

    def _warn_early(self, names: tuple[str, ...]) -> None:
        """Said while all is well: this message could not take the detour."""
        if self.entity.side is Side.BACKLOG:
            return  # it is about to be refused
        if names:
            text = f"messages with application properties {', '.join(names)} cannot be sent while the primary is down"
            self._home.warn_once(self.entity, "reserved_property", text, names=names)
        else:
            limit = self._home.pool.batch_bytes
            text = f"a message may be too large for a backlog queue, which takes {limit} bytes at once"
            self._home.warn_once(self.entity, "too_large_for_detour", text, limit_bytes=limit)

    def _record(self, receipt: SendReceipt | None, parcel: SdkParcel) -> None:
        """Have the end of a send in the ledger, if there is one."""
        if receipt is not None and self._standing.chronicle is not None:
            self._standing.chronicle.sent(receipt, parcel)

    def _check_can_cancel(self) -> None:
        if self.entity.side is Side.BACKLOG:
            path, why = self.entity.path, self.entity.reason
            raise SendError(f"{path} is failed over ({why}): nothing can be cancelled there now")

    def _checked_batch_bytes(self, wanted: int | None, limit: int) -> int:
        if wanted and wanted > limit:
            raise ValueError(
                f"max_size_in_bytes must be at most {limit}, what {self.entity.path} takes at once, got {wanted}"
            )
        return wanted or limit


def _fold(straight: list[int], entity: Entity) -> None:
    entity.tally.to_primary += straight[0]
    straight[0] = 0


def _twin_of(failure: Failure) -> BaseException:
    """An exception like the failure's, for another caller: each of them learns something else about its messages."""
    error = failure.error
    if error is None:
        return ServiceBusConnectionError(message=failure.text)
    twin = type(error).__new__(type(error))
    twin.args = error.args
    twin.__dict__.update({name: value for name, value in vars(error).items() if name != "__notes__"})
    return twin


def spoils_link(failure: Failure) -> bool:
    """Whether a link must not be used again after this."""
    return failure.in_doubt or failure.kind not in KEEPS_LINK
