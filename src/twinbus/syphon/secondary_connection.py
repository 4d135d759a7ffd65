"""The connection to the secondary: a link to every backlog queue, opened again whenever it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from twinbus.amqp.codec.outcomes import RELEASED
from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.errors import DecodeError
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.peeking.queue_discovery import ABSENT, is_permanent
from twinbus.syphon.pump.backlog_message import LockBatch
from twinbus.syphon.pump.backlog_queue import BacklogQueue
from twinbus.syphon.pump.effects import GrantCredit, PeekQueue, RenewBacklogLocks, ReopenQueue, SettleDeliveries
from twinbus.syphon.pump.ordered_pump import OrderedPump
from twinbus.syphon.pump.pump import Pump
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed, failure_of, no_answer
from twinbus.transport.links.annotations import is_waiting, sequence_of
from twinbus.transport.links.link_handler import LinkHandler
from twinbus.transport.links.peek import peek
from twinbus.transport.links.requests import renew_locks_body

if TYPE_CHECKING:
    from twinbus.transport.dial import Dial

StartTask = Callable[[Coroutine[Any, Any, None]], None]
TOKENS_PER_REQUEST = 500
FURTHER = "backlog queues beyond the count"
REFUSALS_MIN = 3
"""How often in a row a queue must refuse us."""


class CredentialCheck:
    """Whether our credential is useless: every backlog queue refuses it, for long, and more than once.

    One refusal means little: rights take minutes to spread, a token may just have expired. A missing answer means
    nothing here, and neither does a credential that cannot get its token now: those are outages, and they pass.
    """

    def __init__(self, paths: Iterable[str], patience_ms: int) -> None:
        self._counts = dict.fromkeys(paths, 0)
        self._patience_ms = patience_ms
        self._since_ms: int | None = None

    def add(self, path: str) -> None:
        self._counts.setdefault(path, 0)

    def remove(self, path: str) -> None:
        """The queue is deleted."""
        self._counts.pop(path, None)

    def failed(self, path: str, failure: Failure, now_ms: int) -> bool:
        """A queue could not be read; True if that shows that the credential is useless."""
        if failure.kind is not FailureKind.UNAUTHORISED or failure.error is not None:
            return False
        self._counts[path] = self._counts.get(path, 0) + 1
        if self._since_ms is None:
            self._since_ms = now_ms
        is_long = now_ms - self._since_ms >= self._patience_ms
        return is_long and all(count >= REFUSALS_MIN for count in self._counts.values())

    def succeeded(self) -> None:
        """A queue could be read: the credential is fine."""
        self._counts = dict.fromkeys(self._counts, 0)
        self._since_ms = None


class SecondaryConnection:
    def __init__(
        self, dial: Dial, pump: Pump, clock: Callable[[], int], run_effects: Callable[[], None], start_task: StartTask
    ) -> None:
        self._dial = dial
        self._pump = pump
        self._clock = clock
        self._run_effects = run_effects
        self._start_task = start_task
        self._connection: NamespaceConnection | None = None
        self._is_lost = asyncio.Event()
        self._links: dict[int, ReceivingLink] = {}
        self._failures: dict[str, str] = {}
        """By queue, or "secondary", why it cannot be read."""
        self._credential = CredentialCheck([queue.path for queue in pump.queues], round(pump.options.refused_s * 1000))
        self.refusal: str | None = None
        """Why our credential is useless at the secondary; None: it is fine, as far as is known."""

    @property
    def failures(self) -> tuple[str, ...]:
        return tuple([f"{subject}: {text}" for subject, text in list(self._failures.items())])

    @property
    def connection(self) -> NamespaceConnection | None:
        """The connection, for requests; None while there is none."""
        return self._connection if self._connection is not None and self._connection.is_open else None

    async def run(self) -> None:
        """Connect, and again whenever the connection is lost, until cancelled."""
        options = self._pump.options
        backoff = options.new_backoff()
        while True:
            self._is_lost.clear()
            connection = NamespaceConnection(
                self._dial,
                attempt_s=options.attempt_s,
                clock=self._clock,
                after_events=self._run_effects,
                on_lost=self._connection_lost,
                on_error=lambda error: self._start_task(raise_error(error)),
                on_peek=self._pump.event_log.record_peek,
            )
            try:
                await connection.open()
            except ConnectionFailed as error:
                self._failed("secondary", error.failure)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            backoff.reset()
            self._succeeded("secondary")
            self._connection = connection
            for queue in self._pump.queues:
                if not queue.is_deleted:
                    self._start_task(self._keep_link(queue, connection))
            await self._is_lost.wait()

    def add(self, queue: BacklogQueue) -> None:
        """A queue is new, or exists again."""
        self._credential.add(queue.path)
        queue.is_deleted = False
        if self.connection is not None:
            self._start_task(self._keep_link(queue, self.connection))

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def drain(self, wait_s: float) -> None:
        """Take all credit back, and wait for what was on its way."""
        links = [(link.context, link) for link in self._links.values() if isinstance(link.context, QueueLink)]
        await asyncio.gather(*[handler.drain(link, self.flush, wait_s) for handler, link in links])

    def flush(self) -> None:
        if self._connection is not None:
            self._connection.flush()

    def _connection_lost(self, failure: Failure) -> None:
        self._failed("secondary", failure)
        self._is_lost.set()

    # --- one queue ---

    async def _keep_link(self, queue: BacklogQueue, connection: NamespaceConnection) -> None:
        """Keep a link to a queue for as long as the connection is open."""
        backoff = self._pump.options.new_backoff()
        queue.refusal = None  # a refusal on another connection may be over
        while connection.is_open:
            handler = QueueLink(queue.index, self._pump, self._clock)
            try:
                link = await connection.open_receiver(queue.path, handler)
            except ConnectionFailed as error:
                if queue.is_extra and error.failure.kind in ABSENT:
                    self._forget(queue)
                    return
                queue.refusal = error.failure if is_permanent(error.failure) else None
                self._failed(queue.path, error.failure)
                self._check_credential(queue.path, error.failure)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            self._links[queue.index] = link
            self._succeeded(queue.path)
            self._credential.succeeded()
            self.refusal = None
            began_ms = self._clock()
            self._pump.queue_attached(queue.index, began_ms)
            self._run_effects()
            failure = await handler.ended
            self._links.pop(queue.index, None)
            self._pump.queue_lost(queue.index)
            if self._clock() - began_ms > 1_000 * self._pump.options.backoff_s[1]:
                backoff.reset()
            if connection.is_open:
                self._failed(queue.path, failure)
                await asyncio.sleep(backoff.next_ms() / 1000)

    def _forget(self, queue: BacklogQueue) -> None:
        """Its owner deleted it, and it is not one of ours: the next search finds it if it exists again."""
        queue.is_deleted = True
        queue.refusal = None
        self._credential.remove(queue.path)
        self._failures.pop(queue.path, None)
        self._run_effects()

    def set_doubt(self, why: str | None) -> None:
        """Why it is unknown now whether there are further queues; None: it is known."""
        if why is None:
            self._succeeded(FURTHER)
        else:
            self._failed(FURTHER, why)
        self._run_effects()

    def _failed(self, subject: str, why: Failure | str) -> None:
        if subject not in self._failures:
            self._pump.alert("queue_down", subject, str(why))
        self._failures[subject] = str(why)

    def _succeeded(self, subject: str) -> None:
        if self._failures.pop(subject, None) is not None:
            self._pump.alert("queue_up", subject, "can be read again")

    def _check_credential(self, path: str, failure: Failure) -> None:
        if self._credential.failed(path, failure, self._clock()) and self.refusal is None:
            self.refusal = str(failure)
            self._pump.alert("refused", "secondary", f"no backlog queue may be read: {failure}")
        self._run_effects()

    # --- effects of the pump; without a link the pump knows, or is about to, that it is lost ---

    def settle(self, effect: SettleDeliveries) -> None:
        link = self._links.get(effect.queue)
        if link is not None:
            # A release needs no answer; everything else does, or a lost lock would go unnoticed.
            link.settle(effect.first, effect.last, effect.outcome, settled=effect.outcome is RELEASED)

    def grant(self, effect: GrantCredit) -> None:
        link = self._links.get(effect.queue)
        if link is not None:
            link.grant(effect.credit)

    def renew_locks(self, effect: RenewBacklogLocks) -> None:
        if effect.queue in self._links:
            path = self._pump.queues[effect.queue].path
            self._start_task(self._renew(path, effect.lock_batch, effect.tokens))

    def peek(self, effect: PeekQueue) -> None:
        if effect.queue in self._links:
            self._start_task(self._peek(effect))

    def reopen(self, effect: ReopenQueue) -> None:
        link = self._links.get(effect.queue)
        if link is not None:
            handler, link.context = link.context, None
            link.detach()
            if isinstance(handler, QueueLink):
                handler.on_detached(no_answer(effect.reason))

    async def _renew(self, path: str, lock_batch: LockBatch, tokens: tuple[bytes, ...]) -> None:
        asked_ms = self._clock()
        refusal: Failure | None = None
        try:
            connection = self._connection
            for start in range(0, len(tokens), TOKENS_PER_REQUEST):
                if connection is None or not connection.is_open:
                    return
                body = renew_locks_body(tokens[start : start + TOKENS_PER_REQUEST])
                response = await connection.request(path, "renew-lock", body)
                if not response.is_ok:
                    refusal = failure_of(response.error)
        except ConnectionFailed as error:
            refusal = error.failure
        self._pump.locks_renewed(lock_batch, refusal, asked_ms, self._clock())
        self._run_effects()

    async def _peek(self, effect: PeekQueue) -> None:
        pump, connection = self._pump, self._connection
        assert isinstance(pump, OrderedPump), "only this one peeks"
        try:
            if connection is None or not connection.is_open:
                return  # the queue is attached again, and then everything is peeked again
            messages = await peek(connection, pump.queues[effect.queue].path, effect.from_sequence, effect.most)
            found = [sequence_of(message) for message in messages if is_waiting(message)]
            seen_to = sequence_of(messages[-1]) if messages else None
        except (ConnectionFailed, DecodeError):
            pump.peek_failed(effect.queue, effect.generation, self._clock())
        else:
            now_ms = self._clock()
            pump.queue_peeked(effect.queue, effect.generation, effect.from_sequence, found, seen_to, now_ms)
        self._run_effects()


async def raise_error(error: Exception) -> None:
    """As a task: an error in a callback, which nobody awaits, still ends the syphon."""
    raise error


class QueueLink(LinkHandler):
    """Passes what happens on the link to a backlog queue to the pump."""

    def __init__(self, index: int, pump: Pump, clock: Callable[[], int]) -> None:
        super().__init__()
        self._index = index
        self._pump = pump
        self._clock = clock
        self.ended: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()

    def on_transfers(self, transfers: list[TransferArrived]) -> None:
        if not self.ended.done():
            self._pump.messages_arrived(self._index, transfers, self._clock())

    def on_disposition(self, event: DispositionArrived) -> None:
        if not self.ended.done():
            ids = [delivery_id for delivery_id, _ in event.deliveries]
            self._pump.deliveries_settled(self._index, ids, event.outcome, self._clock())

    def on_detached(self, failure: Failure) -> None:
        if not self.ended.done():
            self._pump.queue_lost(self._index)  # at once: what arrives next must not meet messages of the old link
            self.ended.set_result(failure)
