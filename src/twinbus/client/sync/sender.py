# Generated from client/aio/sender.py by tests/pages/sync_client.py: edit that file, then run `make pages`.
"""The paired sender for threads: what `ServiceBusSender` offers, with a second place to go.

While nothing is wrong a send is direct: it is the SDK's own call on an open link, with an id, a deadline
and a receipt added. Everything else is a flow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from time import monotonic
from typing import Any, assert_never

from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.client.core import answers
from twinbus.client.core.any_sender import NOT_TRIED, REST_S, AnySender
from twinbus.client.core.link_rules import spoils_link
from twinbus.client.flows.io_requests import (
    Answer,
    Ask,
    EncodeBatches,
    OpenBacklog,
    Probe,
    Sleep,
    ToBacklog,
    ToPrimary,
    ToSpool,
    WaitTurn,
)
from twinbus.client.flows.ordered_sends import sending_of
from twinbus.client.flows.schedule_tokens import check_cancellable, numbers_of, tokens_for
from twinbus.client.flows.send_request import SendRequest
from twinbus.client.sdk.failures import LinkFailed
from twinbus.client.sdk.messages import (
    PairedMessageBatch,
    Prepared,
    due_times,
    light_id,
    room_in,
    schedulable,
)
from twinbus.client.sync.concurrency import Lock, acquire_within, caller
from twinbus.client.sync.links import SenderLink
from twinbus.client.sync.pair_runner import PairRunner
from twinbus.client.sync.sdk_transport import SdkTransport
from twinbus.errors import SendError
from twinbus.pairing.entity import Entity
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt, receipt_of

new, PRIMARY = tuple.__new__, NamespaceSide.PRIMARY  # a third of the way to a receipt


class PairedServiceBusSender(AnySender):
    """Sends to one queue or topic of the primary, or to the backlog while that is down. Threads may share it."""

    def __init__(
        self, runner: PairRunner, transport: SdkTransport, entity: Entity, client_identifier: str | None = None
    ) -> None:
        super().__init__(runner, entity, client_identifier)
        self._runner: PairRunner = runner
        self._transport = transport
        self._lock = Lock()
        self._taken_by = 0
        """The thread that has the lock, or had it last; 0 if the client runs on an event loop."""
        self._link: SenderLink | None = None
        self._link_epoch = -1

    # --- sending ---

    def send_messages(self, message: Any, *, timeout: float | None = None, **kwargs: Any) -> SendReceipt:
        """Store one message, a list, or a batch, on whichever side is up; says where each of them is.

        `timeout` bounds the whole call. Raises what the SDK raises while the entity is not failed over,
        `BothNamespacesUnavailable` if no side takes the messages.
        """
        if timeout is not None or kwargs or self._lock.locked():
            return self._send(self._prepare(message, timeout, kwargs), timeout)
        # Nearly always. All in one piece: whatever is called or looked at here has left the processor's caches while
        # the last send waited for its answer, and to fetch it costs more than to do it.
        link, entity, epoch, started_at = self._link, self.entity, self._link_epoch, monotonic()
        message_id = failure = None
        sizes: tuple[int, ...] = ()
        with self._lock:  # not acquire(): an interrupt between that and a try would keep it for ever
            self._taken_by = caller()
            try:
                now = monotonic()  # another send may have been faster
                is_fresh = now - self._used_at < REST_S
                if link is not None and link is self._link and is_fresh and entity.plain_epoch == epoch:
                    message_id = light_id(message, self._room_bytes)  # with a link it is not closed
                    if message_id is not None:
                        link.busy_until = now + self._attempt_s
                        link.sender.send_messages(message, timeout=self._attempt_s)
                        link.busy_until = None
                        self._sent_directly[0] += 1
                        self._used_at = monotonic()
                        if self._recorder is not None:
                            sizes = link.sent_sizes()
            except BaseException as error:
                failure = self._failure_on(link, error, (message_id,) if message_id else (), started_at)
            seconds = monotonic() - started_at
            if self._recorder is not None and message_id is not None and failure is None:
                self._recorder.accepted(entity.path, (message_id,), sizes, seconds)  # locked: closing waits for it
        if message_id is None:
            return self._send(self._prepare(message, timeout, kwargs), timeout)
        if failure is not None:
            return self._send_anew(Prepared(message, (message_id,)), failure, epoch, started_at, timeout)
        if entity.plain_epoch != epoch:
            self._runner.succeeded(entity, epoch)  # another send failed meanwhile
        return new(SendReceipt, (entity.path, (message_id,), PRIMARY, 1, (), 1, 0, seconds, ()))

    def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None, **kwargs: Any
    ) -> list[int]:
        """Store messages that are to be enqueued later; their sequence numbers, by which they can be cancelled.

        While the entity is failed over they go to the backlog at once, schedule and all, and there are only tokens for
        them that cannot be cancelled.
        """
        prepared = self._prepare(schedulable(messages, schedule_time_utc), timeout, kwargs)
        if not prepared.ids:
            return []
        request = SendRequest(prepared, self.entity.path, schedule_time_utc)
        receipt = self._send_by_flow(request, monotonic(), timeout, None)
        return list(receipt.sequence_numbers) if receipt.side is NamespaceSide.PRIMARY else tokens_for(receipt.accepted)

    def cancel_scheduled_messages(
        self, sequence_numbers: int | Iterable[int], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Cancel scheduled messages on the primary; refuses, before doing anything, tokens of messages in a backlog."""
        numbers = numbers_of(sequence_numbers)
        check_cancellable(numbers)
        self._check(timeout, kwargs)
        if not numbers:
            return
        self._check_can_cancel()
        until = monotonic() + (self._attempt_s if timeout is None else min(timeout, self._attempt_s))
        with self._turn(until):
            self._cancel(numbers, until)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        """A batch for `send_messages` that holds as much as the entity takes at once."""
        self._check(None, {})
        return PairedMessageBatch(self._checked_batch_bytes(max_size_in_bytes, self._batch_bytes()))

    # --- life ---

    def is_storing(self, me: int) -> bool:
        """Whether an attempt is under way, on another thread than this one, that may store something on the primary."""
        return self._lock.locked() and self._taken_by != me and not self._is_opening

    def close(self) -> None:
        """End its link. The paired client stays open."""
        self._is_closed = True
        self._fold()
        self.let_go()

    def let_go(self) -> None:
        """End its link; the next send that needs one opens another, if it may."""
        link = self._link
        if link is not None:
            self._forget(link)

    def __enter__(self) -> PairedServiceBusSender:
        self._check(None, {})
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # --- direct sends ---

    def _send(self, prepared: Prepared, timeout: float | None) -> SendReceipt:
        """The same for everything else: several messages, unusual ones, a caller in a hurry, a link that rested."""
        started_at, link, entity, ids = monotonic(), self._link, self.entity, prepared.ids
        epoch = entity.plain_epoch
        failure: Failure | None = NOT_TRIED
        if link is not None and epoch == self._link_epoch and not self._lock.locked():
            with self._lock:
                self._taken_by = caller()
                failure = self._send_directly(link, prepared, timeout)
                if self._recorder is not None and failure is None and ids:
                    seconds, due_ms = monotonic() - started_at, due_times(prepared.message)
                    self._recorder.accepted(entity.path, ids, link.sent_sizes(), seconds, due_ms)
        if failure is not None:
            return self._send_anew(prepared, failure, epoch, started_at, timeout)
        if entity.plain_epoch != epoch:
            self._runner.succeeded(entity, epoch)
        return SendReceipt(entity.path, ids, PRIMARY, len(ids), seconds=monotonic() - started_at)

    def _send_directly(self, link: SenderLink, prepared: Prepared, timeout: float | None) -> Failure | None:
        """The SDK's own send; called with the lock held."""
        attempt_s = self._direct_s(timeout)
        message: Any = prepared.message
        now = monotonic()
        try:
            if self._link is not link or (now - self._used_at > REST_S and self._has_died(link)):
                return NOT_TRIED
            link.busy_until = now + attempt_s
            link.sender.send_messages(message, timeout=attempt_s)
            link.busy_until = None
            self._sent_directly[0] += len(prepared.ids)
            self._used_at = monotonic()
        except BaseException as error:
            return self._failure_on(link, error, prepared.ids, now)
        return None

    def _failure_on(
        self, link: SenderLink | None, error: BaseException, message_ids: tuple[str, ...], started_at: float
    ) -> Failure:
        """What went wrong with a direct send; called while the error is handled, and raises it if it is no failure."""
        assert link is not None, "only a send on a link can fail"
        given_up = link.given_up(error)
        if given_up is not None:
            sizes = link.sent_sizes()
            self._forget(link)  # interrupted in the middle: nobody knows what the link is waiting for
            self._interrupted(given_up, message_ids, started_at, sizes)
            raise given_up from None
        failure = link.failure_of(error)
        self._after_failure(link, failure)
        self._state.recording.add(caller())  # while it has the lock: closing sees one or the other
        return failure

    def _send_anew(
        self, prepared: Prepared, failure: Failure, epoch: int, started_at: float, timeout: float | None
    ) -> SendReceipt:
        """By a flow, after a direct send failed, or could not be tried."""
        first: tuple[Answer, int] | None = None
        try:
            if failure is not NOT_TRIED:
                first = self._came_to(failure), epoch
                self._runner.warm_link.expect_detour(self.choice)
            if not prepared.ids:
                return SendReceipt(self.entity.path, (), self.entity.side, 0, attempts=0)
            return self._send_by_flow(SendRequest(prepared, self.entity.path), started_at, timeout, first)
        finally:
            self._state.recording.discard(caller())  # put there by `_failure_on`

    # --- flows ---

    def _send_by_flow(
        self, request: SendRequest, started_at: float, timeout: float | None, first: tuple[Answer, int] | None
    ) -> SendReceipt:
        if first is None:
            self._state.check_usable()
        sending = sending_of(request, self._runner.pair, self.entity, self.choice, started_at, timeout)
        me = caller()
        self._state.sending.append(me)
        try:
            receipt = self._runner.run(sending.run(first), lambda ask: self._perform(ask, request))
        except BaseException as error:
            self._record(receipt_of(error), request)
            raise
        else:
            self._record(receipt, request)
            return receipt
        finally:
            self._state.sending.remove(me)
            self._state.recording.discard(me)
            for ticket in sending.tickets:
                self._runner.forget_turn(ticket)

    def _perform(self, ask: Ask, request: SendRequest) -> Answer:
        match ask:
            case ToPrimary(timeout_s, is_patient):
                return self._to_primary(request, timeout_s, is_patient=is_patient)
            case EncodeBatches():
                return answers.packed(request.batches(self._runner.pool.batch_bytes))
            case ToBacklog():
                return self._runner.to_backlog(ask)
            case ToSpool():
                return self._runner.to_spool(self.entity.path, ask)
            case Sleep() | WaitTurn():
                return self._runner.wait(ask)
            case Probe() | OpenBacklog():
                raise AssertionError(f"a send never asks for {ask}")
            case _:
                assert_never(ask)

    def _to_primary(self, request: SendRequest, timeout_s: float, *, is_patient: bool) -> Answer:
        """One attempt: open a link if there is none, and send, within the time.

        A send that waits for its turn learns from the others: their failure counts as its own, and their successes
        show that the primary is up.
        """
        since, epoch = monotonic(), self.entity.epoch
        self._state.recording.discard(caller())  # what the attempt before came to is recorded by now
        ending = self._ending()
        if ending is not None:
            return ending
        if not acquire_within(self._lock, timeout_s):
            return self._shared_failure(since) or self._no_turn(since)
        self._taken_by = caller()
        try:
            learnt = self._shared_failure(since) or self._ending()  # it may have been closed meanwhile
            if learnt is not None:
                return learnt
            until = monotonic() + timeout_s if is_patient else since + timeout_s
            if self.entity.epoch != epoch or until - monotonic() < timeout_s / 2:  # no fair time to answer
                return self._no_turn(since)
            return answers.stored(tuple(self._send_on(self._ready_link(until), request, until)))
        except LinkFailed as problem:
            self._note_failure(problem.failure)
            self._runner.warm_link.expect_detour(self.choice)
            return self._came_to(problem.failure)
        finally:
            self._lock.release()

    def _send_on(self, link: SenderLink, request: SendRequest, until: float) -> list[int]:
        left_s = max(0.001, until - monotonic())
        try:
            if request.when is not None:
                numbers = link.schedule(request.prepared.message, request.when, left_s)
            else:
                link.send(request.prepared.message, left_s)
                request.sent_sizes = link.sent_sizes()
                numbers = []
            self._used_at = monotonic()
        except LinkFailed as problem:
            self._after_failure(link, problem.failure)
            self._state.recording.add(caller())
            raise
        except BaseException:
            self._forget(link)
            raise
        return numbers

    def _cancel(self, numbers: list[int], until: float) -> None:
        try:
            link = self._ready_link(until)
            try:
                link.cancel(numbers, max(0.001, until - monotonic()))
                if self._state.recorder is not None:
                    self._state.recorder.cancelled(self.entity.path, numbers)
            except LinkFailed as problem:
                self._after_failure(link, problem.failure)
                raise
            except BaseException:
                self._forget(link)
                raise
        except LinkFailed as problem:
            raise (problem.failure.error or SendError(str(problem))) from None

    @contextlib.contextmanager
    def _turn(self, until: float) -> Iterator[None]:
        """The lock, waited for no longer than until then."""
        if not acquire_within(self._lock, until - monotonic()):
            raise OperationTimeoutError(message=self._no_turn(until).failure.text)
        self._taken_by = caller()
        try:
            yield
        finally:
            self._lock.release()

    # --- the link ---

    def _ready_link(self, until: float) -> SenderLink:
        """The open link; a new one if there is none, or if sends have been elsewhere since it was opened."""
        link, epoch = self._link, self.entity.epoch
        if link is not None and self._link_epoch == epoch and not self._has_died(link):
            return link
        if link is not None:
            self._forget(link)
        self._check_open()
        self._is_opening = True
        try:
            left_s = max(0.001, until - monotonic())
            link = self._transport.open_primary(self.entity.path, left_s, self.client_identifier)
        finally:
            self._is_opening = False
        self._link, self._link_epoch = link, epoch
        self._room_bytes = room_in(self._runner.pool.batch_bytes)
        self._recorder = self._state.recorder
        self.entity.is_known = True
        try:
            self._check_open()
        except LinkFailed:  # closed while it opened
            self._forget(link)
            raise
        return link

    def _check_open(self) -> None:
        """Raise `LinkFailed` once no link may be opened any more."""
        if self._is_closed or self._runner.is_closing:
            raise LinkFailed(Failure(FailureKind.UNREACHABLE, "the sender was closed"))

    def _has_died(self, link: SenderLink) -> bool:
        """Whether the link was closed while it was idle; then it is forgotten."""
        if link.is_alive:
            return False
        self._forget(link)
        return True

    def _after_failure(self, link: SenderLink, failure: Failure) -> None:
        self._note_failure(failure)
        if spoils_link(failure) or not link.is_usable:
            self._forget(link)

    def _forget(self, link: SenderLink) -> None:
        if self._link is link:
            self._link = None
        link.discard()

    def _batch_bytes(self) -> int:
        link = self._link
        if link is not None and self._link_epoch == self.entity.plain_epoch:
            return link.max_batch_bytes
        if self.entity.side is NamespaceSide.PRIMARY:
            try:
                until = monotonic() + self._attempt_s
                with self._turn(until):
                    link = self._ready_link(until)
                    return link.max_batch_bytes
            except (LinkFailed, OperationTimeoutError):
                pass  # the send will tell; a batch for the detour fits the primary too
        return self._runner.pool.batch_bytes
