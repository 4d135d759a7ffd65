"""What senders on threads and on tasks have in common: checks, early warnings, what they say of themselves."""

from __future__ import annotations

import uuid
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from twinbus.client.core import answers
from twinbus.client.core.link_rules import spoils_link
from twinbus.client.flows.io_requests import Answer, NoTurn, Woke
from twinbus.client.flows.send_request import SendRequest
from twinbus.client.reporting.ledger_events import ClientRecorder
from twinbus.client.sdk.messages import Prepared, can_take_detour, might_not_fit, prepare, prepare_light, reserved_names
from twinbus.errors import PairClosed, SendError
from twinbus.pairing.backlog.rotation import QueueChoice
from twinbus.pairing.entity import Entity
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt, attach_receipt
from twinbus.pairing.sending.retry import kept_back_s

if TYPE_CHECKING:
    from twinbus.client.aio.pair_runner import PairRunner as AioPairRunner
    from twinbus.client.sync.pair_runner import PairRunner

REST_S = 0.1
"""A link that was idle for longer is checked before it is used: idle links are closed for many reasons that are no
outage. The check is cheap, but not cheap enough for sends that follow one another."""

NOT_TRIED = Failure(FailureKind.UNREACHABLE, "another send closed the link first")
"""Nothing was attempted, and nothing counts."""


class AnySender:
    _runner: AioPairRunner | PairRunner

    def __init__(
        self, runner: AioPairRunner | PairRunner, entity: Entity, client_identifier: str | None = None
    ) -> None:
        self.entity = entity
        self.client_identifier = client_identifier or f"SBSender-{uuid.uuid4()}"
        """What its links to the primary are called there, as senders of the SDK have it."""
        self.choice = QueueChoice()
        self._sent_directly = [0]
        # When it is closed or forgotten, what it sent directly counts among what its entity has seen.
        self._fold = weakref.finalize(self, _fold, self._sent_directly, entity)
        self._attempt_s = runner.state.pair.rules.attempt_s
        self._state = runner.state
        self._recorder: ClientRecorder | None = None
        self._is_closed = False
        self._is_opening = False
        """Whether the current attempt opens a link: it stores nothing meanwhile."""
        self._used_at = 0.0
        self._failed_at = 0.0
        self._last_failure = NOT_TRIED
        self._room_bytes = 0
        """What surely fits a backlog queue; nothing does before there is a link."""

    @property
    def sent_directly(self) -> int:
        """Messages that went to the primary directly, and are not counted elsewhere."""
        return self._sent_directly[0]

    @property
    def entity_name(self) -> str:
        return self.entity.path

    @property
    def fully_qualified_namespace(self) -> str:
        return self._state.primary.host

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.entity.path!r})"

    def _prepare(self, message: Any, timeout: float | None, kwargs: dict[str, Any]) -> Prepared:
        """The messages with their ids; raises what is wrong with the call."""
        if kwargs or timeout is not None or self._is_closed or not self._state.is_usable:
            self._check(timeout, kwargs)
        limit_bytes = self._runner.pool.batch_bytes
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
        self._state.check_not_ended()  # first: after a fault every call raises the reason
        if self._is_closed:
            raise PairClosed(f"the sender of {self.entity.path} is closed: nothing was sent")
        self._state.check_usable()

    # --- what an attempt comes to ---

    def _ending(self, failure: Failure | None = None) -> Woke | None:
        """The answer to everything once the sender or the client is closed; None before."""
        if self._is_closed:
            return answers.woke(is_closing=True, failure=failure, reason="the sender was closed")
        if self._state.has_ended:
            return answers.woke(is_closing=True, failure=failure)
        return None

    def _came_to(self, failure: Failure) -> Answer:
        """The answer after a failed attempt."""
        return self._ending(failure) or answers.failed(failure)

    def _note_failure(self, failure: Failure) -> None:
        """Let sends that wait for their turn know what this attempt has found."""
        if spoils_link(failure):
            self._failed_at, self._last_failure = monotonic(), failure

    def _shared_failure(self, since: float) -> Answer | None:
        """The failure of other sends while this one waited for its turn; None: there was none, or the primary works."""
        if self._failed_at < since or self._failed_at < self._used_at:
            return None
        found = self._last_failure
        return self._came_to(replace(found, in_doubt=False, error=_copy_of_error(found)))

    def _no_turn(self, since: float) -> NoTurn:
        """Other sends of this process took all the time: that says nothing about the primary."""
        text = f"other sends to {self.entity.path} on this sender took all the time"
        failure = Failure(FailureKind.NO_ANSWER, text, error=OperationTimeoutError(message=text))
        return answers.no_turn(failure, is_moving=self._used_at >= since)

    def _interrupted(
        self, error: BaseException, message_ids: tuple[str, ...], started_at: float, sizes: tuple[int, ...]
    ) -> None:
        """The caller did not wait for the answer: report that the messages are in doubt."""
        count = len(message_ids)
        receipt = SendReceipt(
            self.entity.path, message_ids, NamespaceSide.PRIMARY, 0, (), 1, count, monotonic() - started_at
        )
        attach_receipt(error, receipt)
        failure = Failure(FailureKind.NO_ANSWER, "the caller did not wait for the answer", in_doubt=True)
        self._runner.doubted(self.entity, failure, message_ids, sizes if len(sizes) == count else ())

    def _direct_s(self, timeout: float | None) -> float:
        """How long a direct send may take."""
        if timeout is None:
            return self._attempt_s
        return min(self._attempt_s, timeout - kept_back_s(self._state.pair.rules, timeout))

    def _warn_early(self, names: tuple[str, ...]) -> None:
        """Warn before an outage that this message could not take the detour."""
        if self.entity.side is NamespaceSide.BACKLOG:
            return  # it is about to be refused
        warn_early(self._runner.warn_once, self.entity, names, self._runner.pool.batch_bytes)

    def _record(self, receipt: SendReceipt | None, request: SendRequest) -> None:
        """Record the end of a send in the ledger, if there is one."""
        if receipt is not None and self._state.recorder is not None:
            self._state.recorder.sent(receipt, request)

    def _check_can_cancel(self) -> None:
        if self.entity.side is NamespaceSide.BACKLOG:
            path, why = self.entity.path, self.entity.reason
            raise SendError(f"{path} is failed over ({why}): nothing can be cancelled there now")

    def _checked_batch_bytes(self, wanted: int | None, limit: int) -> int:
        if wanted and wanted > limit:
            raise ValueError(
                f"max_size_in_bytes must be at most {limit}, what {self.entity.path} takes at once, got {wanted}"
            )
        return wanted or limit


def warn_early(warn_once: Callable[..., None], entity: Entity, names: tuple[str, ...], limit_bytes: int) -> None:
    """Say once for an entity that messages with these properties, or of such a size, cannot take the detour."""
    if names:
        text = f"messages with application properties {', '.join(names)} cannot be sent while the primary is down"
        warn_once(entity, "reserved_property", text, names=names)
    else:
        text = f"a message may be too large for a backlog queue, which takes {limit_bytes} bytes at once"
        warn_once(entity, "too_large_for_detour", text, limit_bytes=limit_bytes)


def _fold(sent: list[int], entity: Entity) -> None:
    entity.tally.to_primary += sent[0]
    sent[0] = 0


def _copy_of_error(failure: Failure) -> BaseException:
    """An exception like the failure's, for another caller: each of them learns something else about its messages."""
    error = failure.error
    if error is None:
        return ServiceBusConnectionError(message=failure.text)
    copy = type(error).__new__(type(error))
    copy.args = error.args
    copy.__dict__.update({name: value for name, value in vars(error).items() if name != "__notes__"})
    return copy
