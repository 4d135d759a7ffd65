"""Simulated applications that send: several calls one after the other, some at the same time, some impatient."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random

from sim.pair_call import Call
from sim.pair_loop import Cancelled, Task
from sim.pair_messages import SimulatedRequest, Writer
from sim.pair_places import Places
from sim.pair_rules import Habits
from sim.pair_shell import SimulatedShell
from twinbus.client.flows.io_requests import Answer, Failed, Stored, ToPrimary
from twinbus.client.flows.send_flow import SendFlow
from twinbus.pairing.backlog.rotation import QueueChoice
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import SendSucceeded
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt
from twinbus.pairing.sending.retry import kept_back_s

TYPO = "ordres"
"""An entity that was never there."""


class Sender:
    """One paired sender, as an application holds it."""

    def __init__(self, shell: SimulatedShell, entity: Entity) -> None:
        self._shell, self._entity = shell, entity
        self._choice = QueueChoice()

    async def send(self, call: Call) -> SendReceipt:
        """Straight to the primary if nothing is to be decided, else by a flow, as the shipping senders do."""
        shell, entity = self._shell, self._entity
        first: tuple[Answer, int] | None = None
        if entity.is_plain:
            epoch = entity.epoch
            answer = await shell.perform(ToPrimary(self._straight_s(call.timeout_s)), call)
            if isinstance(answer, Stored):
                return self._stored_straight(call, epoch)
            if isinstance(answer, Failed):
                first = answer, epoch
        call.sending = sending = SendFlow(
            shell.pair, entity, call.request, self._choice, started_at=call.started_at, timeout_s=call.timeout_s
        )
        try:
            return await shell.run(sending.run(first), call)
        finally:
            for ticket in sending.tickets:
                shell.forget_turn(ticket)

    def _straight_s(self, timeout_s: float | None) -> float:
        rules = self._shell.pair.rules
        return rules.attempt_s if timeout_s is None else min(rules.attempt_s, timeout_s - kept_back_s(rules, timeout_s))

    def _stored_straight(self, call: Call, epoch: int) -> SendReceipt:
        shell, entity, ids = self._shell, self._entity, call.request.message_ids
        shell.watch.seen["sent straight"] += 1
        entity.is_known = True
        if not entity.is_plain:  # somebody began to doubt meanwhile
            shell.pair.feed(entity, SendSucceeded(shell.loop.now, epoch))
            shell.settle()
        return SendReceipt(entity.path, ids, NamespaceSide.PRIMARY, len(ids), seconds=shell.loop.now - call.started_at)


class Applications:
    """All senders of a pair, and all their calls."""

    def __init__(self, shell: SimulatedShell, places: Places, habits: Habits, paths: list[str], random: Random) -> None:
        self.calls: list[Call] = []
        self._shell, self._places, self._habits, self._random = shell, places, habits, random
        self._paths = paths
        self._writer = Writer(random)
        self._numbers = count(1)

    def begin(self, calls: int) -> None:
        """Senders begin, and make so many calls together."""
        for number in range(self._habits.senders):
            path = self._paths[number % len(self._paths)]
            sender = Sender(self._shell, self._shell.pair.entity(path))
            self._work(sender, path, -(-calls // self._habits.senders))

    def _work(self, sender: Sender, path: str, calls: int) -> None:
        """One call, and the next when it is done, or while it still waits."""
        if calls <= 0 or self._shell.is_closing:
            return

        def go_on() -> None:
            self._shell.loop.call_in(self._gap_s(), lambda: self._work(sender, path, calls - 1))

        if self._random.random() < self._habits.crowd_share:
            go_on()
            self.call(sender, path)
        else:
            self.call(sender, path, go_on)
        if self._random.random() < self._habits.typo_share:
            self.call(Sender(self._shell, self._shell.pair.entity(TYPO)), TYPO)

    def _gap_s(self) -> float:
        return self._random.random() * 2 * self._habits.gap_s

    def call(self, sender: Sender, path: str, then: Callable[[], None] | None = None) -> Call:
        habits, random = self._habits, self._random
        timeout_s = random.choice((0.05, 1.0, 8.0)) if random.random() < habits.timeout_share else None
        call = self.prepare(path, timeout_s)
        task = Task(self._make(sender, call, then))
        if random.random() < habits.cancel_share:
            self._shell.loop.call_in(random.random() * random.choice((0.05, 0.5, 5.0)), task.cancel)
        return call

    def prepare(self, path: str, timeout_s: float | None = None) -> Call:
        shell = self._shell
        request: SimulatedRequest = self._writer.request(path)
        call = Call(next(self._numbers), shell.watch, shell.pair.entity(path), request, timeout_s)
        self.calls.append(call)
        return call

    async def _make(self, sender: Sender, call: Call, then: Callable[[], None] | None) -> None:
        try:
            receipt = await sender.send(call)
        except Cancelled:
            self._shell.watch.seen["calls: cancelled"] += 1
            call.cancelled()
            self._places.check_copies(call)
        except Exception as error:
            self._places.raised(call, error, is_closing=self._shell.is_closing)
            call.ended()
        else:
            call.ended()
            self._places.accepted(call, receipt)
        self._shell.check_order()
        if then is not None:
            then()

    def last_call(self, path: str) -> Call:
        """A patient call of a new sender, when all is well."""
        call = self.prepare(path)
        Task(self._make(Sender(self._shell, self._shell.pair.entity(path)), call, None))
        return call
