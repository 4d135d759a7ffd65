"""Applications whose messages have to come home: each key has one of them, which sends one call after the other."""

from __future__ import annotations

from itertools import count
from random import Random

from sim.pair_call import Call
from sim.pair_loop import Signal, Task
from sim.pair_messages import SimulatedRequest, ping
from sim.pair_shell import SimulatedShell
from twinbus.amqp.codec.types import Value
from twinbus.amqp.message.message_builder import Header, PropertyField, encode_message
from twinbus.broker.core.commands import OpenSender, SendMessages
from twinbus.broker.message import read_arrival
from twinbus.client.aio import flow_driver
from twinbus.client.core import probes
from twinbus.client.flows.io_requests import Answer, Ask, OpenBacklog, Probe, Stored, ToPrimary
from twinbus.client.flows.ordered_sends import sending_of
from twinbus.pairing.backlog.rotation import QueueChoice
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import SendSucceeded, TimeCame
from twinbus.pairing.sending.receipt import NOT_ACCEPTED, NamespaceSide, SendReceipt, receipt_of

TTL_MS = 40_000


class HomeShell(SimulatedShell):
    """The simulated shell without the record of every step: here only what arrives counts."""

    straight: set[str]
    """Messages that were sent to the primary, and not only by way of the backlog."""

    async def perform(self, ask: Ask, call: Call) -> Answer:
        self.watch.note(call, ask)
        if isinstance(ask, ToPrimary):
            self.straight.update(call.request.message_ids)
        answer = await self._act(ask, call)
        self.watch.note(call, answer)
        return answer

    def check_order(self) -> None:
        """Nothing is watched between two steps."""

    def time_came(self, entity: Entity) -> None:
        self.pair.feed(entity, TimeCame(self.loop.now, entity.epoch, self._random.random()))
        self.settle()

    async def _try_once(self) -> None:
        async def open_link(ask: Ask) -> Answer:
            assert isinstance(ask, OpenBacklog)
            return self._answer(await self._open_link(ask))

        await flow_driver.run(probes.try_secondary(self.pair, self.loop.now), open_link, self.lock, self.settle)

    async def _ping_once(self, entity: Entity) -> None:
        async def probe(ask: Ask) -> Answer:
            assert isinstance(ask, Probe)
            command = SendMessages(ask.path, (read_arrival(ping(), str),)) if ask.sends_ping else OpenSender(ask.path)
            return self._answer(await self._primary.attempt(command, ask.timeout_s))

        await flow_driver.run(probes.ping(self.pair, entity), probe, self.lock, self.settle)


class HomeCall(Call):
    """One call; nothing is demanded of its steps."""

    def __init__(self, entity: Entity, request: SimulatedRequest) -> None:
        self.number, self.entity, self.request = 0, entity, request

    def __repr__(self) -> str:
        return f"call {self.request.message_ids} to {self.entity.path}"


class Application:
    """Sends to some sessions of one entity, in order: no call begins before the last one has ended."""

    def __init__(self, name: int, shell: HomeShell, path: str, random: Random, numbers: count[int]) -> None:
        self._shell, self._random, self._numbers = shell, random, numbers
        self._entity = shell.pair.entity(path)
        self._sessions: list[str | None] = [f"{name}.{session}" for session in range(random.choice((1, 1, 3)))]
        self._gap_s = 0.0
        self._ttl_share = random.choice((0.0, 0.0, 0.5))
        self._choice = QueueChoice()
        self.path = path
        self.accepted: dict[str, list[tuple[str, float]]] = {}
        """Session -> the messages that were accepted, in their order, and when."""
        self.times: dict[str, float] = {}
        """Message id -> when the call with it began."""
        self.ttls: set[str] = set()
        self.messages: dict[str, bytes] = {}
        self.is_done = False

    def begin(self, calls: int, seconds: float) -> None:
        """Make so many calls in about that time, at least."""
        self._gap_s = seconds / calls * self._random.choice((0.2, 1.0, 1.0))
        Task(self._live(calls))

    async def _live(self, calls: int) -> None:
        for _ in range(calls):
            await self._shell._wait(Signal(), self._random.random() * 2 * self._gap_s)
            await self._call()
        self.is_done = True

    async def _call(self) -> None:
        request = self._request()
        call = HomeCall(self._entity, request)
        try:
            receipt: SendReceipt | None = await self._send(call)
        except Exception as error:
            receipt = receipt_of(error)
            self._raised(error)
        if receipt is not None:
            self._note(request, receipt)

    def _raised(self, error: Exception) -> None:
        self._shell.watch.seen[f"calls: {type(error).__name__}"] += 1

    async def _send(self, call: HomeCall) -> SendReceipt:
        shell, entity, started_at = self._shell, self._entity, self._shell.loop.now
        first: tuple[Answer, int] | None = None
        if entity.is_plain:
            epoch = entity.epoch
            answer = await shell.perform(ToPrimary(shell.pair.rules.attempt_s), call)
            if isinstance(answer, Stored):
                entity.is_known = True
                if not entity.is_plain:
                    shell.pair.feed(entity, SendSucceeded(shell.loop.now, epoch))
                    shell.settle()
                ids = call.request.message_ids
                return SendReceipt(entity.path, ids, NamespaceSide.PRIMARY, len(ids))
            first = answer, epoch
        sending = sending_of(call.request, shell.pair, entity, self._choice, started_at, None)
        try:
            return await shell.run(sending.run(first), call)
        finally:
            for ticket in sending.tickets:
                shell.forget_turn(ticket)

    def _note(self, request: SimulatedRequest, receipt: SendReceipt) -> None:
        self._shell.watch.seen[f"accepted by {receipt.side.value}"] += receipt.accepted
        for message_id, session, place in zip(request.message_ids, self._drawn, receipt.places, strict=True):
            if place != NOT_ACCEPTED:
                self.accepted.setdefault(str(session), []).append((message_id, self._shell.loop.now))

    def _request(self) -> SimulatedRequest:
        size = self._random.choice((1, 1, 1, 2, 6))
        ids = tuple(f"m{next(self._numbers)}" for _ in range(size))
        self._drawn = [self._random.choice(self._sessions) for _ in ids]
        self.times |= dict.fromkeys(ids, self._shell.loop.now)
        messages = [self._encode(each, session) for each, session in zip(ids, self._drawn, strict=True)]
        self.messages |= dict(zip(ids, messages, strict=True))
        return SimulatedRequest(messages, ids, self.path)

    def _encode(self, message_id: str, session: str | None) -> bytes:
        properties: dict[PropertyField, Value] = {PropertyField.MESSAGE_ID: message_id, PropertyField.GROUP_ID: session}
        has_ttl = self._random.random() < self._ttl_share
        if has_ttl:
            self.ttls.add(message_id)
        return encode_message(
            header=Header(ttl_ms=TTL_MS) if has_ttl else None,
            properties=properties,
            data=bytes(self._random.choice((20, 20, 2_000))),
        )
