"""A paired client in virtual time: the real flows and the real core between two namespaces that answer by script.

    bus = ScriptedBus(Rules(failover_interval_s=0))
    bus.primary.always = fails(Kind.UNREACHABLE)
    call = bus.send("a")
    bus.run()
    assert call.receipt.side is NamespaceSide.BACKLOG

Nothing waits: time jumps to whatever is due next.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import Any, Literal, NamedTuple, assert_never

from twinbus.client.core import probes
from twinbus.client.core.effect_runner import TimerKey, run_effects
from twinbus.client.flows.io_requests import (
    Answer,
    Ask,
    EncodeBatches,
    EncodedBatches,
    Failed,
    Flow,
    NoTurn,
    OpenBacklog,
    Probe,
    Sleep,
    Stored,
    ToBacklog,
    ToPrimary,
    ToSpool,
    WaitTurn,
    Woke,
)
from twinbus.client.flows.send_flow import SendFlow
from twinbus.pairing.backlog.rotation import QueueChoice
from twinbus.pairing.effects import ReportEvent
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import FailoverForced, MarkedHealthy, TimeCame
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.error_class import Classifier
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import SendReceipt

STEPS_MAX = 10_000


class Reply(NamedTuple):
    """What a namespace will say to one attempt."""

    failure: Failure | None = None
    after_s: float | None = 0.0
    """None: all the time that the attempt has."""
    numbers: tuple[int, ...] = ()
    is_no_turn: bool = False
    """Others took the time: nothing was attempted, and the failure counts for nothing."""


OK = Reply()


def fails(
    kind: FailureKind,
    text: str = "so it is",
    *,
    after_s: float | None = 0.0,
    in_doubt: bool = False,
    is_connection: bool = False,
    error: BaseException | None = None,
) -> Reply:
    return Reply(Failure(kind, text, in_doubt=in_doubt, is_connection=is_connection, error=error), after_s)


SILENT = fails(FailureKind.NO_ANSWER, "nobody answered", after_s=None, in_doubt=True)
REFUSED = fails(FailureKind.UNREACHABLE, "connection refused", is_connection=True)
NOBODY_THERE = fails(FailureKind.NO_ANSWER, "nobody answered", after_s=None, is_connection=True)
BUSY = fails(FailureKind.BUSY, "too many requests")
NO_TURN = Reply(Failure(FailureKind.NO_ANSWER, "others took the time"), after_s=1.0, is_no_turn=True)


class Place:
    """An entity or a backlog queue: says what is in the script, then always the same."""

    def __init__(self) -> None:
        self.script: deque[Reply] = deque()
        self.always = OK

    def says(self, *replies: Reply) -> None:
        self.script.extend(replies)

    def reply(self) -> Reply:
        return self.script.popleft() if self.script else self.always


@dataclass
class Messages:
    """A request of as many messages as it has ids."""

    message_ids: tuple[str, ...]
    size_bytes: int = 100
    per_batch: int = 1_000
    refusal: Exception | None = None
    """What putting them into envelopes raises."""
    session_ids: frozenset[str | None] = frozenset([None])
    has_order: bool = True

    @property
    def sizes(self) -> tuple[int, ...]:
        return (100,) * len(self.message_ids)

    @property
    def sizes_in_backlog(self) -> tuple[int, ...]:
        return (150,) * len(self.message_ids)

    def batches(self) -> tuple[tuple[bytes, ...], ...]:
        if self.refusal is not None:
            raise self.refusal
        encoded = [name.encode() for name in self.message_ids]
        return tuple(tuple(encoded[at : at + self.per_batch]) for at in range(0, len(encoded), self.per_batch))


@dataclass(eq=False)
class Call:
    """One send, and what came of it."""

    flow: Flow[Any]
    request: Messages
    entity: Entity
    result: SendReceipt | None = None
    error: BaseException | None = None
    ended_at: float | None = None
    waits_for: Ask | None = None
    wait_number: int = -1

    @property
    def receipt(self) -> SendReceipt:
        assert self.result is not None, f"no receipt: {self.error!r}"
        return self.result

    @property
    def is_done(self) -> bool:
        return self.ended_at is not None


class Asked(NamedTuple):
    at: float
    ask: Ask


class Heard(NamedTuple):
    at: float
    name: str
    text: str
    details: dict[str, object]


@dataclass
class ScriptedBus:
    rules: Rules = field(default_factory=Rules)
    queues: int = 3
    entities: tuple[str, ...] = ("orders",)
    classifier: Classifier | None = None
    chances: Iterator[float] = field(default_factory=lambda: repeat(0.5))

    def __post_init__(self) -> None:
        self.at = 0.0
        self.pair = Pair(self.rules, entities=self.entities, classifier=self.classifier, name="contoso")
        self.pair.use_queues(range(self.queues), {}, 0.0)
        self.places: defaultdict[str, Place] = defaultdict(Place)
        self.probes: defaultdict[str, Place] = defaultdict(Place)
        self.spool = Place()
        self.backlog = [Place() for _ in range(self.queues)]
        self.links = [Place() for _ in range(self.queues)]
        """What a trial meets that opens a link to a backlog queue."""
        self.asked: list[Asked] = []
        self.events: list[Heard] = []
        self.stored: list[tuple[str | int, str]] = []
        self.calls: list[Call] = []
        self.is_closing = False
        self.lock = nullcontext()
        self._numbers = count()
        self._dates: list[tuple[float, int, Callable[[], None]]] = []
        self._timers: dict[TimerKey, int] = {}
        self._roused: set[int] = set()
        self._waiting: dict[int, Call] = {}

    # --- what a test does ---

    @property
    def primary(self) -> Place:
        return self.places["orders"]

    @property
    def probe(self) -> Place:
        return self.probes["orders"]

    @property
    def orders(self) -> Entity:
        return self.pair.entity("orders")

    def send(
        self,
        *ids: str,
        to: str = "orders",
        choice: QueueChoice | None = None,
        timeout_s: float | None = None,
        first: tuple[Answer, int] | None = None,
        size_bytes: int = 100,
        per_batch: int = 1_000,
        refusal: Exception | None = None,
    ) -> Call:
        """Begin a call now; it goes on with `run` or `run_until`."""
        request = Messages(ids, size_bytes, per_batch, refusal)
        entity = self.pair.entity(to)
        sending = SendFlow(self.pair, entity, request, choice or QueueChoice(), started_at=self.at, timeout_s=timeout_s)
        call = Call(sending.run(first), request, entity)
        self.calls.append(call)
        self._advance(call, None)
        return call

    def sent(self, *ids: str, **how: Any) -> Call:
        """A call that is over."""
        call = self.send(*ids, **how)
        self.run()
        return call

    def run(self) -> None:
        """Let time pass until no call is under way."""
        for _ in range(STEPS_MAX):
            if all(call.is_done for call in self.calls):
                return
            assert self._dates, "a send waits for nothing"
            self._next()
        raise AssertionError("it goes on and on")

    def run_until(self, at: float) -> None:
        for _ in range(STEPS_MAX):
            if not self._dates or self._dates[0][0] > at:
                self.at = at
                return
            self._next()
        raise AssertionError("it goes on and on")

    def later(self, at: float, do: Callable[[], object]) -> None:
        def act() -> None:
            do()
            self._settle()

        heapq.heappush(self._dates, (at, next(self._numbers), act))

    def close(self) -> None:
        self.is_closing = True
        for call in self.calls:
            if isinstance(call.waits_for, Sleep | WaitTurn):
                self._answer(call, call.wait_number, self._woke())

    def unplug_secondary(self, how: Reply | None = None) -> None:
        """Nobody can connect to it, or send to it."""
        for place in (*self.backlog, *self.links):
            place.always = REFUSED if how is None else how

    def plug_in_secondary(self) -> None:
        for place in (*self.backlog, *self.links):
            place.always = OK

    def force_failover(self, path: str = "orders", *, stays: bool = False) -> None:
        entity = self.pair.entity(path)
        self.pair.feed(entity, FailoverForced(self.at, entity.epoch, "forced", stays))
        self._settle()

    def mark_healthy(self, path: str = "orders") -> None:
        entity = self.pair.entity(path)
        self.pair.feed(entity, MarkedHealthy(self.at, entity.epoch))
        self._settle()

    def asks(self, kind: type[Ask]) -> list[Asked]:
        return [asked for asked in self.asked if isinstance(asked.ask, kind)]

    def times(self, kind: type[Ask]) -> list[float]:
        return [asked.at for asked in self.asks(kind)]

    def queues_asked(self) -> list[int]:
        return [asked.ask.queue for asked in self.asked if isinstance(asked.ask, ToBacklog)]

    def events_named(self, *names: str) -> list[Heard]:
        return [heard for heard in self.events if heard.name in names]

    def is_pending(self, what: Literal["wake", "ping"], path: str = "orders") -> bool:
        """Whether a wake or a ping is ordered."""
        return TimerKey(what, self.pair.entity(path)) in self._timers

    # --- time ---

    def _next(self) -> None:
        self.at, _, do = heapq.heappop(self._dates)
        do()

    def schedule(self, key: TimerKey, at: float, job: Callable[[], None]) -> None:
        number = self._timers[key] = next(self._numbers)

        def ring() -> None:
            if self._timers.get(key) == number:
                del self._timers[key]
                job()

        heapq.heappush(self._dates, (at, number, ring))

    # --- flows ---

    def _advance(self, call: Call, answer: Answer | Exception | None) -> None:
        call.waits_for = None
        try:
            if isinstance(answer, Exception):
                ask = call.flow.throw(answer)
            else:
                ask = next(call.flow) if answer is None else call.flow.send(answer)
        except StopIteration as done:
            call.result, call.ended_at = done.value, self.at
        except Exception as error:
            call.error, call.ended_at = error, self.at
        else:
            self._settle()
            self._perform(call, ask)
            return
        self._settle()

    def _perform(self, call: Call, ask: Ask) -> None:
        self.asked.append(Asked(self.at, ask))
        call.waits_for, call.wait_number = ask, next(self._numbers)
        match ask:
            case ToPrimary(timeout_s):
                self._reply(call, self.places[call.entity.path].reply(), timeout_s, call.request.message_ids, "primary")
            case ToBacklog(queue, encoded, timeout_s):
                ids = [message.decode() for message in encoded]
                self._reply(call, self.backlog[queue].reply(), timeout_s, ids, queue)
            case ToSpool(encoded, timeout_s):
                ids = [message.decode() for message in encoded]
                self._reply(call, self.spool.reply(), timeout_s, ids, "spool")
            case OpenBacklog(queue, timeout_s):
                self._reply(call, self.links[queue].reply(), timeout_s, (), queue)
            case Probe(path, timeout_s):
                self._reply(call, self.probes[path].reply(), timeout_s, (), path)
            case EncodeBatches():
                self._answer_at(
                    self.at, call, lambda: EncodedBatches(self.at, next(self.chances), call.request.batches())
                )
            case Sleep(seconds):
                self._answer_at(self.at + seconds, call, self._woke)
            case WaitTurn(ticket, seconds):
                self._waiting[ticket] = call
                self._answer_at(self.at if ticket in self._roused else self.at + seconds, call, self._woke)
                self._roused.discard(ticket)
            case _:
                assert_never(ask)

    def _reply(self, call: Call, reply: Reply, timeout_s: float, ids: Iterable[str], where: str | int) -> None:
        if reply.after_s is not None and reply.after_s > timeout_s:
            reply = SILENT  # whatever it would have said, nobody waits for it
        at = self.at + (timeout_s if reply.after_s is None else reply.after_s)

        def answer() -> Answer:
            if reply.failure is not None and reply.is_no_turn:
                return NoTurn(self.at, next(self.chances), reply.failure)
            if reply.failure is not None:
                return Failed(self.at, next(self.chances), reply.failure)
            self.stored += [(where, each) for each in ids]
            return Stored(self.at, next(self.chances), reply.numbers)

        self._answer_at(at, call, answer)

    def _answer_at(self, at: float, call: Call, make: Callable[[], Answer]) -> None:
        number = call.wait_number

        def answer() -> None:
            if call.waits_for is not None and call.wait_number == number:
                try:
                    made: Answer | Exception = make()
                except Exception as error:
                    made = error
                self._advance(call, made)

        heapq.heappush(self._dates, (at, next(self._numbers), answer))

    def _answer(self, call: Call, number: int, answer: Answer) -> None:
        if call.waits_for is not None and call.wait_number == number:
            self._advance(call, answer)

    def _woke(self) -> Woke:
        return Woke(self.at, next(self.chances), self.is_closing)

    # --- orders ---

    def _settle(self) -> None:
        run_effects(self.pair, self.pair.take_orders(), self)

    def report(self, entity: Entity | None, event: ReportEvent) -> None:
        self.events.append(Heard(self.at, event.name, event.text, dict(event.details)))

    def cancel(self, key: TimerKey) -> None:
        self._timers.pop(key, None)

    def time_came(self, entity: Entity) -> None:
        self.pair.feed(entity, TimeCame(self.at, entity.epoch, next(self.chances)))
        self._settle()

    def try_secondary(self) -> None:
        self._advance(Call(probes.try_secondary(self.pair, self.at), Messages(()), self.orders), None)

    def ping(self, entity: Entity) -> None:
        self._advance(Call(probes.ping(self.pair, entity), Messages(()), entity), None)

    def wake(self, ticket: int) -> None:
        call = self._waiting.get(ticket)
        if call is not None and isinstance(call.waits_for, WaitTurn) and call.waits_for.ticket == ticket:
            self._answer_at(self.at, call, self._woke)
        else:
            self._roused.add(ticket)
