"""Sends through any outage, in virtual time: every call ends, and its receipt tells the truth.

Whatever two namespaces answer, and whatever people do meanwhile: a message is where its receipt says and nowhere else,
nothing but pings (or, after a link, one message at a time that tries it) goes to an entity that is failed over, no lost
or busy queue is bothered, held sends keep their order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import count, product

from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_bus import BUSY, OK, REFUSED, SILENT, Call, Place, Reply, ScriptedBus, fails
from seeds import examples

from twinbus.client.flows.io_requests import Ask, Probe, ToBacklog, ToPrimary, WaitTurn
from twinbus.pairing.failover import FailedOver, Suspect
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.failure import FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt, receipt_of

Kind = FailureKind
REPLIES = [OK, Reply(after_s=0.7), SILENT, REFUSED, BUSY]
REPLIES += [fails(Kind.NO_ANSWER, after_s=3), fails(Kind.FULL), fails(Kind.UNAUTHORISED), fails(Kind.TOO_LARGE)]
PATIENCE_S = 2.0
BUSY_S = 10.0
BASE = Rules(ping_interval_s=7, probation_s=20, hold_time_max_s=40, hold_count_max=5, error_sends_min=4)
RULES = [
    replace(BASE, failover_interval_s=interval_s, attempts=attempts, hold_sends=holds, error_rate=rate)
    for interval_s, attempts, holds, rate in product((0, 6), (1, 3), (False, True), (None, 0.5))
]
RULES = [replace(rules, probe="ping") for rules in RULES] + [replace(rules, probe="link") for rules in RULES]
DEEDS = [
    "send",
    "send",
    "send",
    "send a batch",
    "send, impatient",
    "primary",
    "primary, once",
    "one queue",
    "all queues",
]
DEEDS += ["force", "force to stay", "mark"]


@dataclass
class Watched(ScriptedBus):
    """Looks at every ask before it is answered."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.names = count()
        self.tickets: dict[str, int] = {}
        self.began: dict[str, tuple[float, float | None]] = {}
        self.busy_at: dict[tuple[str, int | str], float] = {}
        self.trial: Call | None = None
        self.trial_epoch = 0

    def begin(self, messages: int = 1, timeout_s: float | None = None) -> None:
        names = [str(next(self.names)) for _ in range(messages)]
        self.began[names[0]] = (self.at, timeout_s)
        self.send(*names, per_batch=2, timeout_s=timeout_s)

    def _perform(self, call: Call, ask: Ask) -> None:
        name = "".join(call.request.message_ids[:1])
        match ask:
            case WaitTurn(ticket, _) if ticket in self.orders.line:
                self.tickets[name] = ticket
            case ToPrimary():
                if call.entity.side is NamespaceSide.BACKLOG:
                    self._check_trial(call)
                self._bother(name, "primary", self.primary)
            case ToBacklog(queue, encoded, _):
                assert self.pair.secondary.is_open, "nobody sends to a secondary that cannot be connected to"
                assert self.pair.rotation.is_available(queue, self.at), "a lost queue is left alone"
                self._bother(encoded[0].decode(), queue, self.backlog[queue])
        assert not isinstance(ask, ToPrimary | ToBacklog | Probe) or ask.timeout_s > 0
        super()._perform(call, ask)

    def _check_trial(self, call: Call) -> None:
        """The one message that may try the primary of an entity that is failed over."""
        assert self.rules.probe == "link", "nothing but pings goes to an entity that is failed over"
        under_way = self.trial is not None and not self.trial.is_done and isinstance(self.trial.waits_for, ToPrimary)
        assert not under_way or self.trial_epoch != self.orders.epoch, "one message at a time tries"
        self.trial, self.trial_epoch = call, self.orders.epoch

    def _bother(self, name: str, where: int | str, place: Place) -> None:
        assert self.at >= self.busy_at.get((name, where), -BUSY_S) + BUSY_S, "a busy server rests from this message"
        if (place.script[0] if place.script else place.always) is BUSY:
            self.busy_at[name, where] = self.at


def act(bus: Watched, deed: str, reply: Reply, queue: int) -> None:
    match deed:
        case "send":
            bus.begin()
        case "primary, once":
            bus.primary.says(reply)
        case "send a batch":
            bus.begin(messages=5)
        case "send, impatient":
            bus.begin(timeout_s=PATIENCE_S)
        case "primary":
            bus.primary.script.clear()
            bus.primary.always = bus.probe.always = reply
        case "one queue":
            bus.backlog[queue % bus.queues].always = reply
        case "all queues":
            for place in (*bus.backlog, *bus.links):
                place.always = reply
        case "force" | "force to stay":
            bus.force_failover(stays="stay" in deed)
        case "mark":
            bus.mark_healthy()


def check_orders(bus: Watched) -> None:
    state = bus.orders.state
    assert bus.is_pending("wake") == isinstance(state, Suspect)
    assert not bus.is_pending("ping") or (isinstance(state, FailedOver) and not state.stays)


def receipt_for(call: Call) -> SendReceipt:
    receipt = call.result if call.error is None else receipt_of(call.error)
    assert receipt is not None, f"nobody knows what became of it: {call.error!r}"
    assert receipt.is_complete or call.error is not None
    return receipt


def check_call(bus: Watched, call: Call, stored: dict[str, list[str | int]]) -> None:
    receipt = receipt_for(call)
    for name, place in zip(receipt.message_ids, receipt.places, strict=True):
        *_, last = place.split("/")
        expected: list[str | int] = [] if place == "not accepted" else [int(last) if last.isdigit() else last]
        assert stored[name] == expected
    began_at, timeout_s = bus.began[receipt.message_ids[0]]
    assert call.ended_at is not None
    assert timeout_s is None or call.ended_at <= began_at + timeout_s + 0.01


STEPS = st.tuples(
    st.sampled_from([0.0, 0.0, 0.3, 1.0, 6.0, 20.0]),
    st.sampled_from(DEEDS),
    st.sampled_from(REPLIES),
    st.integers(0, 2),
)
FIRST_WORDS = st.lists(st.sampled_from(REPLIES), max_size=4)
"""What a place says before it says the same for ever."""


@settings(max_examples=examples(600), deadline=None)
@given(
    st.sampled_from(RULES),
    st.sampled_from([REFUSED, SILENT, OK]),
    st.lists(FIRST_WORDS, min_size=1, max_size=3),
    st.lists(STEPS, min_size=3, max_size=30),
)
def test_every_send_ends_and_its_receipt_is_true(
    rules: Rules, usual: Reply, queues: list[list[Reply]], sequence: list[tuple[float, str, Reply, int]]
) -> None:
    bus = Watched(rules, queues=len(queues))
    bus.primary.always = bus.probe.always = usual
    for place, words in zip(bus.backlog, queues, strict=True):
        place.says(*words)
    for gap_s, deed, reply, queue in sequence:
        bus.run_until(bus.at + gap_s)
        act(bus, deed, reply, queue)
        check_orders(bus)
    bus.run()
    check_orders(bus)
    check_truth(bus)


def check_truth(bus: Watched) -> None:
    stored: dict[str, list[str | int]] = defaultdict(list)
    for where, name in bus.stored:
        stored[name].append(where)
    for call in bus.calls:
        check_call(bus, call, stored)
    waited = [bus.tickets[name] for _, name in bus.stored if name in bus.tickets]
    assert waited == sorted(waited), "held sends keep their order"
    assert (len(bus.orders.line), bus.orders.line.bytes) == (0, 0)
    assert not bus.pair.secondary.waiting
    assert not (isinstance(bus.orders.state, FailedOver) and bus.orders.state.is_tried), "every trial ends"
