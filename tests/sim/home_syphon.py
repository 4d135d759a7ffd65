"""A simulated syphon: the shipping pump between two shipping namespaces, in virtual time.

To the pump it is what the asyncio shell is: links that come and go, frames that keep their order on a link, and answers
that may never come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import Any, cast

from sim.home_namespace import LendingNamespace
from sim.pair_conditions import Trouble
from sim.pair_loop import Signal, Task, VirtualLoop
from sim.pair_network import Road
from twinbus.amqp.codec.outcomes import ACCEPTED, RELEASED, Error, Outcome, Rejected
from twinbus.amqp.events import TransferArrived
from twinbus.amqp.message import sections
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.broker.core.commands import OpenReceiver, OpenSender, PeekMessages, RenewMessageLocks, SettleMessages
from twinbus.broker.core.commands import SendMessages as Store
from twinbus.broker.core.delivery_format import encode_delivery
from twinbus.broker.core.replies import Delivery, LocksRenewed, MessagesFound
from twinbus.broker.links.outcomes import outcome_of
from twinbus.broker.message import read_arrival
from twinbus.broker.operations import ReceiveMode, Refused, Settled
from twinbus.pairing.backlog.ordering import DepartedMessage
from twinbus.pairing.pair import Pair
from twinbus.pairing.sending.encoded_messages import BATCH_FORMAT
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump.backlog_message import LockBatch
from twinbus.syphon.pump.effects import (
    Alert,
    GrantCredit,
    PeekQueue,
    RenewBacklogLocks,
    ReopenQueue,
    SendBatch,
    SettleDeliveries,
)
from twinbus.syphon.pump.ordered_pump import OrderedPump
from twinbus.syphon.pump.pump import Pump

REATTACH_S = 2.0
LOST = Failure(FailureKind.UNREACHABLE, "lock lost", "com.microsoft:message-lock-lost")
CUTS = (Trouble.REFUSED, Trouble.SILENT, Trouble.RESET, Trouble.REQUESTS_LOST, Trouble.ANSWERS_LOST)


class HomeObserver:
    """Tells the core of the pair what came home."""

    def __init__(self, pair: Pair, settle: Callable[[], None]) -> None:
        self._pair, self._settle = pair, settle

    def queue_added(self, index: int) -> None:
        raise AssertionError(f"nobody looks for queues here, but found {index}")

    def left_backlog(self, queue: int, messages: list[DepartedMessage]) -> None:
        self._pair.came_home(queue, messages)
        self._settle()

    def waits_for(self, queue: int) -> bool:
        return self._pair.fences is not None and self._pair.fences.waits_for(queue)

    def empty_check_started(self, _queue: int) -> int:
        return 0 if self._pair.fences is None else self._pair.fences.time

    def seen_empty(self, queue: int, look: int) -> None:
        self._pair.seen_empty(queue, look)
        self._settle()


class Link:
    """One receiver on a backlog queue. Frames arrive in the order in which they left."""

    def __init__(self, number: int, loop: VirtualLoop) -> None:
        self.number = number
        self.is_open = True
        self.received = 0
        self.tokens: dict[int, bytes] = {}
        self._loop = loop
        self._busy_until = [0.0, 0.0]

    def carry(self, way: int, seconds: float, job: Callable[[], None]) -> None:
        at = self._busy_until[way] = max(self._busy_until[way], self._loop.now + seconds)
        self._loop.call_at(at, lambda: job() if self.is_open else None)


class SimulatedSyphon:
    def __init__(
        self,
        paths: list[str],
        options: SyphonOptions,
        primary: Road,
        secondary: Road,
        observer: HomeObserver | None,
        random: Random,
        seen: Counter[str],
    ) -> None:
        self.loop = primary.loop
        self._primary, self._road, self._random, self._seen = primary, secondary, random, seen
        self._paths = paths
        self._numbers = count(1_000_000)
        self._deliveries = count(1)
        self._links: dict[int, Link] = {}
        self._homes: dict[str, int] = {}
        self._alarm = 0.0
        now_ms = self.loop.now_ms
        self.pump = self._make_pump(options, now_ms, observer)
        for index in range(len(paths)):
            self._attach(index)

    def _make_pump(self, options: SyphonOptions, now_ms: int, observer: HomeObserver | None) -> Pump:
        if options.order is None:
            return Pump(self._paths, options, now_ms)
        return OrderedPump(self._paths, options, now_ms, observer=observer)

    def _road_to(self, _path: str) -> Road:
        """The way to a destination."""
        return self._primary

    @property
    def _secondary(self) -> LendingNamespace:
        return cast("LendingNamespace", self._road.namespace)

    # --- links to backlog queues ---

    def _attach(self, index: int) -> None:
        spells = self._road.conditions.over(self._paths[index])
        if not self._secondary.is_well or self._road.met(spells, *CUTS, Trouble.UNAUTHORISED, Trouble.CONDITION):
            self.loop.call_in(self._random.random() * REATTACH_S, lambda: self._attach(index))
            return
        link = self._links[index] = Link(next(self._numbers), self.loop)
        command = OpenReceiver(link.number, self._paths[index], ReceiveMode.PEEK_LOCK)
        self._seen["syphon: links"] += 1
        self.pump.queue_attached(index, self.loop.now_ms)
        lose = partial(self._expire_session, index, link)
        self._secondary.attach(link.number, command, partial(self._lent, index, link), lose)
        self._act()

    def _expire_session(self, index: int, link: Link) -> None:
        if link.is_open:
            link.is_open = False
            self._secondary.detach(link.number)
            self.pump.queue_lost(index)
            self._seen["syphon: links lost"] += 1
            self.loop.call_in(self._random.random() * REATTACH_S, lambda: self._attach(index))

    def _lent(self, index: int, link: Link, delivery: Delivery) -> None:
        self._carry(index, link, 1, lambda: self._arrived(index, link, delivery))

    def _arrived(self, index: int, link: Link, delivery: Delivery) -> None:
        assert delivery.token is not None
        number = next(self._deliveries)
        link.received += 1
        link.tokens[number] = delivery.token
        payload = encode_delivery(delivery.row, delivery.token, delivery.locked_until_ms)
        receiving = cast("ReceivingLink", None)
        self.pump.messages_arrived(
            index, [TransferArrived(receiving, number, delivery.token, 0, False, payload)], self.loop.now_ms
        )
        self._act()

    def _carry(self, index: int, link: Link, way: int, job: Callable[[], None]) -> None:
        """A frame on its way; in an outage it may be the last one of its link."""
        spells = self._road.conditions.over(self._paths[index])
        if self._road.met(spells, *CUTS):
            self.loop.call_in(self._road.travel_s(spells), lambda: self._expire_session(index, link))
            if self._random.random() < 0.5:
                return
        link.carry(way, self._road.travel_s(spells), job)

    # --- what the pump wants ---

    def _act(self) -> None:
        now_ms = self.loop.now_ms
        self.pump.run_effects(now_ms, self, self, self._alert)
        at = max(self.loop.now + 0.001, self.loop.now + (self.pump.next_ms(now_ms) - now_ms) / 1000)
        if self._alarm <= self.loop.now or at < self._alarm:
            self._alarm = at
            self.loop.call_at(at, lambda: self._ring(at))

    def _ring(self, at: float) -> None:
        if self._alarm == at:
            self._alarm = 0.0
            self.pump.tick(self.loop.now_ms)
            self._act()

    def _alert(self, alert: Alert) -> None:
        self._seen[f"syphon: {alert.name}"] += 1

    def send(self, effect: SendBatch) -> None:
        Task(self._send(effect))

    def open_destination(self, path: str) -> None:
        self.drop_destination(path)
        Task(self._open(path, self._homes[path]))

    def drop_destination(self, path: str) -> None:
        self._homes[path] = self._homes.get(path, 0) + 1

    def grant(self, effect: GrantCredit) -> None:
        def arrive(link: Link) -> None:
            self._secondary.grant(link.number, link.received + effect.credit if effect.credit else 0)

        self._on_link(effect.queue, arrive)

    def settle(self, effect: SettleDeliveries) -> None:
        numbers = list(range(effect.first, effect.last + 1))
        self._on_link(effect.queue, lambda link: self._settle(effect.queue, link, numbers, effect.outcome))

    def renew_locks(self, effect: RenewBacklogLocks) -> None:
        def arrive(link: Link) -> None:
            renewed = partial(self._renewed, effect.queue, link, effect.lock_batch, self.loop.now_ms)
            self._secondary.inquire(RenewMessageLocks(self._paths[effect.queue], effect.tokens), renewed)

        self._on_link(effect.queue, arrive)

    def peek(self, effect: PeekQueue) -> None:
        def arrive(link: Link) -> None:
            command = PeekMessages(self._paths[effect.queue], effect.from_sequence, effect.most)
            self._secondary.inquire(command, partial(self._peeked, effect, link))

        self._on_link(effect.queue, arrive)

    def reopen(self, effect: ReopenQueue) -> None:
        self._on_link(effect.queue, lambda link: self._expire_session(effect.queue, link))

    def _on_link(self, index: int, job: Callable[[Link], None]) -> None:
        """Do something at the namespace when the frame has got there."""
        link = self._links.get(index)
        if link is not None and link.is_open:
            self._carry(index, link, 0, lambda: job(link) if self._secondary.is_well else None)

    def _settle(self, index: int, link: Link, numbers: list[int], outcome: Outcome) -> None:
        known = {number: link.tokens.pop(number) for number in numbers if number in link.tokens}
        settlement = outcome_of(outcome, is_final=True)
        assert settlement is not None
        command = SettleMessages(self._paths[index], tuple(known.values()), settlement)
        if outcome is RELEASED:
            self._secondary.inquire(command, lambda _: None)
        else:
            self._secondary.inquire(command, partial(self._settled, index, link, known, outcome))

    def _settled(self, index: int, link: Link, known: dict[int, bytes], outcome: Outcome, reply: Any) -> None:
        if isinstance(reply, Refused):  # the queue is gone, or its disk
            self._carry(index, link, 1, lambda: self._expire_session(index, link))
            return
        assert isinstance(reply, Settled)
        good = Rejected() if isinstance(outcome, Rejected) else outcome
        failed = [number for number, token in known.items() if token in reply.failures]
        stored = [number for number in known if number not in failed]

        def hear() -> None:
            self.pump.deliveries_settled(index, stored, good, self.loop.now_ms)
            if failed:
                lost = Rejected(Error("com.microsoft:message-lock-lost", "gone"))
                self.pump.deliveries_settled(index, failed, lost, self.loop.now_ms)
            self._act()

        self._carry(index, link, 1, hear)

    def _renewed(self, index: int, link: Link, lock_batch: LockBatch, asked_ms: int, reply: Any) -> None:
        def hear() -> None:
            refusal = None if isinstance(reply, LocksRenewed) else LOST
            self.pump.locks_renewed(lock_batch, refusal, asked_ms, self.loop.now_ms)
            self._act()

        self._carry(index, link, 1, hear)

    def _peeked(self, effect: PeekQueue, link: Link, reply: Any) -> None:
        pump = self.pump
        assert isinstance(pump, OrderedPump)

        def hear() -> None:
            if isinstance(reply, MessagesFound):
                found = [lent.row.sequence for lent in reply.found]
                seen_to = found[-1] if found else None
                pump.queue_peeked(
                    effect.queue, effect.generation, effect.from_sequence, found, seen_to, self.loop.now_ms
                )
            else:
                pump.peek_failed(effect.queue, effect.generation, self.loop.now_ms)
            self._act()

        self._carry(effect.queue, link, 1, hear)

    # --- home ---

    async def _open(self, path: str, life: int) -> None:
        outcome = await self._road_to(path).attempt(OpenSender(path), self.pump.options.attempt_s)
        if self._homes[path] == life:
            if isinstance(outcome, Failure):
                self.pump.destination_failed(path, outcome, self.loop.now_ms)
            else:
                self.pump.destination_opened(path, 0, 256 * 1024, 1_000)
            self._act()

    async def _send(self, send: SendBatch) -> None:
        life = self._homes.get(send.path, 0)
        arrivals = tuple([read_arrival(each, _no_id) for each in _letters_in(send)])
        road = self._road_to(send.path)
        answer: Signal[Any] = road.attempt(Store(send.path, arrivals), self.pump.options.attempt_s)
        outcome = await answer
        if self._homes.get(send.path, 0) != life:
            return  # the link was given up
        if not isinstance(outcome, Failure):
            self.pump.batches_settled(send.path, [send.number], ACCEPTED, self.loop.now_ms)
        elif outcome.condition is not None:
            refusal = Rejected(Error(outcome.condition, outcome.text))
            self.pump.batches_settled(send.path, [send.number], refusal, self.loop.now_ms)
        else:
            self._homes[send.path] = life + 1
            self.pump.destination_failed(send.path, outcome, self.loop.now_ms)
        self._act()


def _letters_in(send: SendBatch) -> list[bytes]:
    if send.message_format != BATCH_FORMAT:
        return [send.payload]
    return list(sections.data_sections(send.payload, sections.walk(send.payload)))


def _no_id() -> str:
    raise AssertionError("every message has an id when it comes home")
