"""The paired client inside the proxy: the pairing core of the Python clients, on links of our own engine.

`routing` decides what goes straight to the primary; everything else is a flow (`client/flows/send_flow.py`), one task
each. Here is what needs an event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any
from weakref import ref

from twinbus.board.report import ProcessKind
from twinbus.broker.links.backend import ReadTransfer
from twinbus.broker.links.request_fields import read_sequences
from twinbus.broker.links.request_messages import Request, failure_response
from twinbus.broker.message import Arrival
from twinbus.broker.operations import Done, Refused, SenderOpened
from twinbus.client.aio.pair_runner import PairRunner
from twinbus.client.aio.sides import PairSides
from twinbus.client.core.any_client import checked_path
from twinbus.client.core.any_sender import warn_early
from twinbus.client.core.client_state import ClientState
from twinbus.client.namespace import Namespace
from twinbus.client.native.send_window import SendWindow
from twinbus.client.native.transport import NativeTransport
from twinbus.client.options import SendAvailabilityPairedNamespaceOptions
from twinbus.client.reporting.event_log import AioCallback, Unsubscribe
from twinbus.client.reporting.ledger_events import ClientRecorder
from twinbus.client.reporting.status import Phase, Status
from twinbus.client.reporting.telemetry import TELEMETRY
from twinbus.client.sdk.failures import LinkFailed
from twinbus.errors import AmqpError, NamespaceError, QuotaExceeded, TwinbusError
from twinbus.pairing.closing import SideName
from twinbus.pairing.entity import Entity
from twinbus.pairing.primary_abilities import Ability
from twinbus.pairing.sending.error_class import ErrorClass, SendKind, classify
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide
from twinbus.proxy.entity_paths import check_path
from twinbus.proxy.sending.arrived_messages import sizes_of
from twinbus.proxy.sending.flow_runner import FlowRunner
from twinbus.proxy.sending.refusals import STOPPING, NotStored, not_stored
from twinbus.proxy.sending.routing import DONE, DirectSend, EntitySends, UnansweredSends
from twinbus.proxy.sending.schedules import ScheduleRequest, read_schedule, refused_cancellation, scheduled_response
from twinbus.transport.links.requests import read_response

LOGGER = logging.getLogger("twinbus.proxy")

ENTITIES_MAX = 10_000
"""Entities that are kept apart; whoever invents more names is refused."""
STOP_LOOK_S = 0.01
SCHEDULE_BYTES = 8 * 1_024
"""What a request to schedule takes beside its messages."""


class ProxySends:
    """Sends of all applications to the entities of one pair. Everything in the event loop in which it was started."""

    def __init__(
        self,
        primary: Namespace,
        options: SendAvailabilityPairedNamespaceOptions,
        *,
        after_replies: Callable[[], None] = lambda: None,
    ) -> None:
        """`after_replies` is called when replies were given outside of a call.

        Raises `OptionsError` for what can never work.
        """
        self._state = ClientState(primary, options, ProcessKind.PROXY)
        self._after_replies = after_replies
        self._transport = NativeTransport(self._state, "proxy", after_replies)
        self._runner = PairRunner(self._state, self._transport)
        self._flows = FlowRunner(self._runner, self._transport)
        self._pair = self._state.pair
        self._sides = sides = PairSides(self, self._runner)
        self._runner.sides = ref(sides)
        self._load = UnansweredSends()
        self._entities: dict[Entity, EntitySends] = {}
        self._paths: dict[str, EntitySends] = {}
        """The same by path as it is written in addresses: names differ not by case alone."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._watch = TELEMETRY.watch(self.status)

    # --- life ---

    async def start(self) -> None:
        """Pair; raises `TwinbusError` with everything that is wrong. The primary may be down meanwhile."""
        await self._runner.prepare()

    async def stop(self) -> None:
        """Take nothing more, answer what is under way within the time of an attempt, refuse the rest, and end."""
        self._is_stopping = True
        until = monotonic() + self._pair.rules.attempt_s
        while self._load.bytes and monotonic() < until:
            await asyncio.sleep(STOP_LOOK_S)
        await self.close()

    async def close(self) -> None:
        """The same at once: what is under way fails, and says whether it is in doubt."""
        await self._end(Phase.CLOSED)

    async def fault(self, reason: str) -> None:
        """End the pairing for good: from now on everything is refused with this reason."""
        await self._end(Phase.FAULTED, reason)

    async def let_go(self, side: SideName) -> None:
        if side == "primary":
            self._transport.end_primary()

    async def _end(self, phase: Phase, reason: str | None = None) -> None:
        self._runner.end(phase, reason)
        me = asyncio.current_task()
        while tasks := {task for task in self._tasks if task is not me}:
            await asyncio.wait(tasks)
        self._watch.stop()
        await self._runner.finish(lambda _me: False)
        self._after_replies()

    # --- what else the primary can do ---

    def tried_to_receive(self, path: str, failure: Failure | None) -> None:
        """An application behind the proxy has received, or could not."""
        self._runner.tried(path, Ability.RECEIVE, failure)

    def tried_to_manage(self, path: str, failure: Failure | None) -> None:
        """The same for administration."""
        self._runner.tried(path, Ability.MANAGE, failure)

    # --- sight ---

    @property
    def unwritten_bytes(self) -> int:
        """Taken in and not answered yet, of all entities."""
        return self._load.bytes

    @property
    def drops_pings(self) -> bool | None:
        """Whether the primary has announced that it does; None: nobody has connected to it yet."""
        return self._pair.drops_pings

    def status(self) -> Status:
        """How the pair is doing: every entity, every backlog queue. Prints as a table."""
        return self._state.status(monotonic(), self._sent_directly, self._runner.event_log.dropped)

    def _sent_directly(self, entity: Entity) -> int:
        sends = self._entities.get(entity)
        return 0 if sends is None else sends.sent_directly

    def metrics_text(self) -> str:
        """The numbers of this pair as Prometheus scrapes them."""
        return self._watch.text()

    def on(self, event: str, callback: AioCallback) -> Unsubscribe:
        """Call a function with every event of this name, or with all ("*"); call the result to end that."""
        return self._runner.event_log.on(event, callback)

    @property
    def recorder(self) -> ClientRecorder | None:
        """Records sends in the ledger; None: there is no ledger."""
        return self._state.recorder

    # --- senders ---

    def messages_per_send(self, _path: str) -> int | None:
        """Each transfer stays one: how many come at a time does not matter."""
        return None

    def open_sender(self, path: str, _now_ms: int, on_reply: Callable[[SenderOpened | Refused], None]) -> None:
        """Ask whether messages can be sent to an entity: refused only for what its sender has to put right."""
        if self._is_stopping or not self._state.is_usable:
            on_reply(self._unusable())
            return
        sends = self._paths.get(path)
        if sends is not None:
            entity = sends.entity
            if entity.side is NamespaceSide.BACKLOG or sends.usable_link(entity.epoch) is not None:
                on_reply(SenderOpened(sends.message_bytes_max))
                return
        self._begin(self._open_sender(path, on_reply))

    async def _open_sender(self, path: str, on_reply: Callable[[SenderOpened | Refused], None]) -> None:
        try:
            reply = await self._try_sender(path)
        except Exception as error:
            reply = self._not_stored(error).refused
        on_reply(reply)
        self._after_replies()

    async def _try_sender(self, path: str) -> SenderOpened | Refused:
        check_path(path)
        name, epoch = checked_path(path), 0
        entity = self._pair.find(name)
        if entity is None:
            self._check_room()
        elif entity.side is NamespaceSide.BACKLOG:
            return SenderOpened(self._sends_to(path).message_bytes_max)
        else:
            name, epoch = entity.path, entity.epoch
        try:
            window = await self._transport.primary.get(name, self._pair.rules.attempt_s)
        except LinkFailed as problem:
            failure = problem.failure
            if entity is None:
                error_class = classify(failure, SendKind.PRIMARY, is_known=False)
            else:
                error_class = self._pair.classify(entity, failure)
            if error_class is ErrorClass.RAISE:
                return not_stored(failure.error or problem).refused
            return SenderOpened(self._sends_to(path).message_bytes_max)
        sends = self._sends_to(path)
        sends.use_link(window, epoch, self._runner.pool.batch_bytes)
        return SenderOpened(sends.message_bytes_max)

    def _sends_to(self, path: str) -> EntitySends:
        """The sends of an entity, made when it is first needed; raises `QuotaExceeded` if there are too many."""
        sends = self._paths.get(path)
        if sends is not None:
            return sends
        name = checked_path(path)
        if self._pair.find(name) is None:
            self._check_room()
        entity = self._pair.entity(name)
        sends = self._entities.get(entity)
        if sends is None:
            sends = self._entities[entity] = EntitySends(entity, self, self._load)
            self._runner.warm_link.assign(sends.choice)
        if len(self._paths) < 2 * ENTITIES_MAX:
            self._paths[path] = sends
        return sends

    def _check_room(self) -> None:
        if len(self._entities) >= ENTITIES_MAX:
            raise QuotaExceeded(f"at most {ENTITIES_MAX} entities can be sent to through one proxy")

    # --- messages ---

    def send(
        self, path: str, arrivals: tuple[Arrival, ...], _now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None:
        """Store one transfer of an application: done only if all of it is stored."""
        sends = self._usable(path)
        if isinstance(sends, Refused):
            on_reply(sends)
        else:
            sends.take(arrivals, monotonic(), on_reply)

    def send_each(
        self,
        path: str,
        transfers: Sequence[ReadTransfer],
        _now_ms: int,
        on_reply: Callable[[Sequence[ReadTransfer], Done | Refused], None],
    ) -> None:
        """The same for several transfers, each of which is accepted or refused by itself."""
        sends = self._usable(path)
        if isinstance(sends, Refused):
            on_reply(transfers, sends)
        else:
            sends.take_each(transfers, monotonic(), on_reply)

    def _usable(self, path: str) -> EntitySends | Refused:
        if self._is_stopping or not self._state.is_usable:
            return self._unusable()
        try:
            return self._paths.get(path) or self._sends_to(path)
        except TwinbusError as error:
            return not_stored(error).refused

    def schedule(self, path: str, request: Request, _now_ms: int, on_response: Callable[[bytes], None]) -> None:
        """Carry out a request to schedule messages, on whichever side is up."""
        try:
            if self._is_stopping or not self._state.is_usable:
                raise self._unusable().error
            asked, sends = read_schedule(request, _new_message_id), self._sends_to(path)
        except (NamespaceError, AmqpError) as error:
            on_response(failure_response(request, error))
            return
        self._begin(self._schedule(sends, request, asked, on_response))

    async def _schedule(
        self, sends: EntitySends, request: Request, asked: ScheduleRequest, on_response: Callable[[bytes], None]
    ) -> None:
        taken = sum(sizes_of(asked.arrivals)) + SCHEDULE_BYTES
        self._load.bytes += taken
        try:
            response = scheduled_response(request, await self._flows.schedule(sends, asked))
        except Exception as error:
            response = failure_response(request, self._not_stored(error).refused.error)
        finally:
            self._load.bytes -= taken
        on_response(response)
        self._after_replies()

    def cancel_refusal(self, request: Request) -> bytes | None:
        """The response to a request to cancel messages of which some lie in a backlog; None: relay it."""
        return refused_cancellation(request)

    def cancelled(self, path: str, request: Request, response: bytes) -> None:
        """The primary has answered a request to cancel messages: if they are, the ledger hears of it."""
        if self.recorder is None:
            return
        with suppress(NamespaceError, AmqpError):  # what cannot be read was not carried out
            if read_response(response).is_ok:
                entity = self._pair.find(checked_path(path))
                self.recorder.cancelled(path if entity is None else entity.path, read_sequences(request.body))

    # --- ports of `EntitySends` ---

    def open_link(self, sends: EntitySends, epoch: int) -> None:
        self._begin(self._open_link(sends, epoch))

    async def _open_link(self, sends: EntitySends, epoch: int) -> None:
        try:
            self._state.check_side("primary")
            window = await self._transport.primary.get(sends.entity.path, self._pair.rules.attempt_s)
        except LinkFailed as problem:
            sends.not_opened(problem.failure, epoch, monotonic())
        except Exception as error:
            text = str(self._not_stored(error).refused.error)
            sends.not_opened(Failure(FailureKind.UNREACHABLE, text), epoch, monotonic())
        else:
            sends.opened(window, epoch, self._runner.pool.batch_bytes, monotonic())
        self._after_replies()

    def retire_link(self, window: SendWindow) -> None:
        self._transport.primary.retire(window)

    def start_flow(self, send: DirectSend, failure: Failure | None, epoch: int) -> None:
        self._begin(self._run_flow(send, failure, epoch))

    async def _run_flow(self, send: DirectSend, failure: Failure | None, epoch: int) -> None:
        try:
            await self._flows.store(send, failure, epoch)
        except Exception as error:
            refused, accepted = self._not_stored(error)
            send.end(refused, accepted, monotonic())
        else:
            send.end(DONE, len(send.arrivals), monotonic())
        self._after_replies()

    def flush_soon(self) -> None:
        self._transport.primary.flush_soon()

    def succeeded(self, entity: Entity, epoch: int) -> None:
        self._runner.succeeded(entity, epoch)

    def warn_early(self, entity: Entity, names: tuple[str, ...]) -> None:
        warn_early(self._runner.warn_once, entity, names, self._runner.pool.batch_bytes)

    # --- the rest ---

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _unusable(self) -> Refused:
        try:
            self._state.check_usable()
        except TwinbusError as error:
            return not_stored(error).refused
        return STOPPING

    def _not_stored(self, error: Exception) -> NotStored:
        if not isinstance(error, TwinbusError):
            LOGGER.error("event=internal_error reason=%r", "a send failed", exc_info=error)
        return not_stored(error)


def _new_message_id() -> str:
    return os.urandom(16).hex()
