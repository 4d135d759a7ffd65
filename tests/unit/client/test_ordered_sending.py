"""A send that keeps the order of its session, asked and answered by hand."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.client.flows.io_requests import (
    Answer,
    Ask,
    EncodeBatches,
    EncodedBatches,
    Failed,
    Sleep,
    Stored,
    ToBacklog,
    ToPrimary,
    WaitTurn,
    Woke,
)
from twinbus.client.flows.ordered_sends import HAND_OVER_S, OrderedSendFlow, sending_of
from twinbus.client.flows.send_flow import SendFlow
from twinbus.errors import BothNamespacesUnavailable, NotSent
from twinbus.pairing.backlog.envelope import address
from twinbus.pairing.backlog.ordering import DepartedMessage, key_of, mark_of, queue_for
from twinbus.pairing.backlog.rotation import QueueChoice
from twinbus.pairing.effects import ReportEvent, WakeWaiter
from twinbus.pairing.events import FailoverForced, LinkOpened, MarkedHealthy
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt

DOWN = Failure(FailureKind.DISABLED, "switched off")
UNREACHABLE = Failure(FailureKind.UNREACHABLE, "refused", is_connection=True)
NOBODY_THERE = Failure(FailureKind.NO_ANSWER, "nobody answered", is_connection=True)
DOUBT = Failure(FailureKind.NO_ANSWER, "silence", in_doubt=True)
QUEUES = range(3)


class Messages:
    """Messages with these ids, each in a session."""

    def __init__(self, *named: tuple[str, str | None], has_order: bool = True) -> None:
        self.named = named
        self.has_order = has_order

    @property
    def message_ids(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.named)

    @property
    def size_bytes(self) -> int:
        return 100 * len(self.named)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (100,) * len(self.named)

    @property
    def sizes_in_backlog(self) -> tuple[int, ...]:
        return (150,) * len(self.named)

    @property
    def session_ids(self) -> frozenset[str | None]:
        return frozenset(session for _, session in self.named)

    @property
    def encoded(self) -> tuple[bytes, ...]:
        return tuple(self._encode(name, session) for name, session in self.named)

    def _encode(self, name: str, session: str | None) -> bytes:
        properties = {PropertyField.MESSAGE_ID: name} | ({} if session is None else {PropertyField.GROUP_ID: session})
        return address(encode_message(properties=properties, data=b"x"), "orders")


class Talk:
    """One send, answered by hand."""

    def __init__(self, pair: Pair, *named: tuple[str, str | None], at: float = 0.0, timeout_s: float | None = None):
        self.pair, self.at = pair, at
        self.messages = Messages(*named)
        self.sending = sending_of(self.messages, pair, pair.entity("orders"), QueueChoice(), at, timeout_s)
        self.flow: Generator[Ask, Answer, SendReceipt] = self.sending.run()
        self.receipt: SendReceipt | None = None
        self.ask: Any = None
        self._step(None)

    def _step(self, answer: Answer | None) -> None:
        try:
            self.ask = next(self.flow) if answer is None else self.flow.send(answer)
        except StopIteration as done:
            self.receipt, self.ask = done.value, None
            return
        if isinstance(self.ask, EncodeBatches):
            self._step(EncodedBatches(self.at, 0.5, (self.messages.encoded,)))

    def stored(self) -> None:
        self._step(Stored(self.at, 0.5))

    def failed(self, failure: Failure) -> None:
        self._step(Failed(self.at, 0.5, failure))

    def woken(self, after_s: float = 0.0) -> None:
        self.at += after_s
        self._step(Woke(self.at, 0.5))


def pair_with(*, seen_empty: bool = True, **rules: Any) -> Pair:
    pair = Pair(Rules(keeps_order=True, attempts=1, **rules), name="contoso")
    pair.use_queues(QUEUES, {}, 0.0)
    for queue in QUEUES if seen_empty else ():
        pair.seen_empty(queue, 0)
    return pair


def fail_over(pair: Pair) -> None:
    pair.feed(pair.entity("orders"), FailoverForced(0.0, pair.entity("orders").epoch, "broken"))


def recover(pair: Pair) -> None:
    pair.feed(pair.entity("orders"), MarkedHealthy(0.0, pair.entity("orders").epoch))


def come_home(pair: Pair, messages: Messages, first: int = 1) -> None:
    for number, (encoded, (_, session)) in enumerate(zip(messages.encoded, messages.named, strict=True), first):
        pair.came_home(
            queue_for(key_of("orders", session), QUEUES), [DepartedMessage("orders", session, number, mark_of(encoded))]
        )


def backlogged(pair: Pair, *named: tuple[str, str | None]) -> Messages:
    """Messages that were sent during an outage which is over."""
    fail_over(pair)
    talk = Talk(pair, *named)
    while talk.ask is not None:
        talk.stored()
    recover(pair)
    return talk.messages


def test_a_queue_that_is_busy_is_reported() -> None:
    pair = pair_with()
    fail_over(pair)
    talk = Talk(pair, ("m", "a"))
    queue = talk.ask.queue
    with pytest.raises(BothNamespacesUnavailable):
        talk.failed(Failure(FailureKind.BUSY, "too many requests"))
    reports = [
        effect.details for _, effect in pair.take_orders() if isinstance(effect, ReportEvent) and effect.name == "busy"
    ]
    assert reports == [{"wait_s": 10, "queue": queue, "side": "backlog"}]


def test_while_all_is_well_a_message_goes_to_the_primary() -> None:
    pair = pair_with()
    assert pair.entity("orders").is_plain
    talk = Talk(pair, ("m", "a"))
    assert isinstance(talk.ask, ToPrimary)


def test_without_order_it_is_the_usual_send() -> None:
    pair = Pair(Rules(), name="contoso")
    messages = Messages(("m", "a"))
    assert type(sending_of(messages, pair, pair.entity("orders"), QueueChoice(), 0.0, None)) is SendFlow
    later = Messages(("m", "a"), has_order=False)
    ordered = pair_with()
    assert type(sending_of(later, ordered, ordered.entity("orders"), QueueChoice(), 0.0, None)) is SendFlow


def test_during_an_outage_a_session_always_has_the_same_queue() -> None:
    pair = pair_with()
    fail_over(pair)
    for number in range(5):
        talk = Talk(pair, (f"m{number}", "a"))
        assert talk.ask.queue == queue_for(key_of("orders", "a"), QUEUES)
        talk.stored()


def test_after_recovery_a_message_waits_a_moment_for_those_before_it() -> None:
    pair = pair_with()
    messages = backlogged(pair, ("m0", "a"))
    assert not pair.entity("orders").is_plain
    talk = Talk(pair, ("m1", "a"))
    assert isinstance(talk.ask, WaitTurn)
    come_home(pair, messages)
    assert (None, WakeWaiter(talk.ask.ticket)) in pair.take_orders()
    assert pair.entity("orders").is_plain
    talk.woken()
    assert isinstance(talk.ask, ToPrimary)
    assert isinstance(talk.sending, OrderedSendFlow)
    assert talk.sending.tickets


def test_if_they_do_not_come_it_follows_them_into_the_backlog() -> None:
    pair = pair_with()
    first = backlogged(pair, ("m0", "a"))
    talk = Talk(pair, ("m1", "a"))
    talk.woken(HAND_OVER_S)
    assert isinstance(talk.ask, ToBacklog)
    talk.stored()
    impatient = Talk(pair, ("m2", "a"), at=HAND_OVER_S + 1)
    assert isinstance(impatient.ask, ToBacklog), "nobody waits in vain twice"
    impatient.stored()
    come_home(pair, first)
    come_home(pair, talk.messages, first=2)
    assert not pair.entity("orders").is_plain
    come_home(pair, impatient.messages, first=3)
    assert pair.entity("orders").is_plain


def test_another_session_does_not_wait() -> None:
    pair = pair_with()
    backlogged(pair, ("m0", "a"))
    talk = Talk(pair, ("x", "b"))
    assert isinstance(talk.ask, ToPrimary)


def test_until_a_queue_was_seen_empty_nothing_of_it_goes_to_the_primary() -> None:
    pair = pair_with(seen_empty=False)
    talk = Talk(pair, ("m0", "a"))
    assert isinstance(talk.ask, WaitTurn)
    pair.seen_empty(queue_for(key_of("orders", "a"), QUEUES), 0)
    talk.woken()
    assert isinstance(talk.ask, ToPrimary)


def test_a_call_with_several_sessions_is_split_and_the_receipt_shows_the_place_of_each() -> None:
    pair = pair_with()
    fail_over(pair)
    named = tuple((f"m{number}", "abcdef"[number % 6]) for number in range(12))
    talk = Talk(pair, *named)
    sent: dict[int, int] = {}
    while talk.ask is not None:
        sent[talk.ask.queue] = len(talk.ask.encoded)
        talk.stored()
    assert len(sent) > 1
    assert sum(sent.values()) == 12
    assert talk.receipt is not None
    assert talk.receipt.is_complete
    wanted = [f"contoso/x-servicebus-transfer/{queue_for(key_of('orders', session), QUEUES)}" for _, session in named]
    assert list(talk.receipt.places) == wanted


def test_of_a_call_that_was_stored_in_part_the_receipt_shows_which_part() -> None:
    pair = pair_with()
    fail_over(pair)
    sessions = ["a", next(s for s in "bcdefgh" if queue_for(key_of("orders", s), QUEUES) != _queue_of("a"))]
    talk = Talk(pair, ("m0", sessions[0]), ("m1", sessions[1]), ("m2", sessions[0]))
    talk.stored()
    with pytest.raises(BothNamespacesUnavailable) as caught:
        talk.failed(DOWN)
    receipt = caught.value.receipt
    assert receipt is not None
    place = f"contoso/x-servicebus-transfer/{_queue_of('a')}"
    assert receipt.places == (place, "not accepted", place)
    assert (receipt.accepted, receipt.side) == (2, NamespaceSide.BACKLOG)


def _queue_of(session: str) -> int:
    return queue_for(key_of("orders", session), QUEUES)


def test_no_other_queue_is_taken_for_a_lost_one() -> None:
    pair = pair_with()
    fail_over(pair)
    talk = Talk(pair, ("m0", "a"))
    with pytest.raises(BothNamespacesUnavailable, match="no other queue keeps the order"):
        talk.failed(DOWN)


def test_a_held_send_waits_until_its_queue_may_be_tried_again() -> None:
    pair = pair_with(hold_sends=True, probation_s=30.0, hold_time_max_s=100.0)
    fail_over(pair)
    talk = Talk(pair, ("m0", "a"))
    talk.failed(DOWN)
    assert talk.ask == Sleep(30.0)
    assert len(pair.kept) == 1
    talk.woken(30.0)
    assert isinstance(talk.ask, ToBacklog)
    talk.stored()
    assert talk.receipt is not None
    assert not len(pair.kept)


def test_a_held_send_is_given_up_in_time_and_says_why() -> None:
    pair = pair_with(hold_sends=True, probation_s=30.0, hold_time_max_s=40.0)
    fail_over(pair)
    talk = Talk(pair, ("m0", "a"))
    talk.failed(DOWN)
    talk.woken(30.0)
    talk.failed(DOWN)
    assert talk.ask == Sleep(10.0)
    with pytest.raises(BothNamespacesUnavailable):
        talk.woken(10.0)


def test_too_many_held_sends_are_refused() -> None:
    pair = pair_with(hold_sends=True, hold_bytes_max=150)
    fail_over(pair)
    first = Talk(pair, ("m0", "a"))
    first.failed(DOWN)
    with pytest.raises(NotSent, match="held already"):
        Talk(pair, ("m1", "a"))


def test_a_copy_in_doubt_is_a_reason_to_follow_it() -> None:
    pair = pair_with()
    fail_over(pair)
    talk = Talk(pair, ("m0", "a"))
    talk.failed(DOUBT)
    assert isinstance(talk.ask, WaitTurn), "a trial is to show whether only this queue is silent"
    assert pair.begin_trial(1.0) != (None, 0.0)
    pair.trial_connected(0.5)
    with pytest.raises(BothNamespacesUnavailable):
        talk.woken(0.5)
    recover(pair)
    assert isinstance(Talk(pair, ("m1", "a")).ask, WaitTurn)
    assert isinstance(Talk(pair, ("x", "b")).ask, ToPrimary)


def test_if_the_primary_is_back_and_nothing_of_the_session_was_stored_it_goes_there() -> None:
    pair = pair_with(hold_sends=True, probation_s=30.0, hold_time_max_s=100.0)
    fail_over(pair)
    talk = Talk(pair, ("m0", "a"))
    talk.failed(DOWN)
    recover(pair)
    talk.woken(5.0)
    assert isinstance(talk.ask, ToPrimary)


def test_a_fence_stands_from_the_moment_a_message_leaves_for_the_backlog() -> None:
    pair = pair_with()
    fail_over(pair)
    sessions = ["a", next(s for s in "bcdefgh" if queue_for(key_of("orders", s), QUEUES) != _queue_of("a"))]
    talk = Talk(pair, ("m0", sessions[0]), ("m1", sessions[1]))
    talk.stored()
    come_home(pair, Messages(("m0", sessions[0])))
    recover(pair)
    assert not pair.entity("orders").is_plain, "a part of the call is still on its way"
    talk.stored()
    assert not pair.entity("orders").is_plain


# --- a secondary that nobody can connect to ---


def test_a_secondary_that_is_away_costs_no_queue_and_the_message_waits_for_it() -> None:
    pair = pair_with()
    fail_over(pair)
    talk = Talk(pair, ("m0", "a"))
    queue = talk.ask.queue
    talk.failed(UNREACHABLE)
    assert isinstance(talk.ask, WaitTurn)
    assert pair.rotation.available(0.0) == list(QUEUES)
    assert pair.begin_trial(1.0)[0] == queue
    pair.trial_connected(0.3)
    assert WakeWaiter(talk.ask.ticket) in [effect for _, effect in pair.take_orders()]
    talk.woken(0.3)
    assert isinstance(talk.ask, ToBacklog)
    talk.stored()
    assert talk.receipt is not None


def test_without_holding_it_waits_for_the_secondary_as_long_as_the_schedule_lasts() -> None:
    pair = pair_with(attempt_s=5.0)
    fail_over(pair)
    talk = Talk(pair, ("m0", "a"))
    talk.failed(UNREACHABLE)
    assert talk.ask.seconds == 5.0
    with pytest.raises(BothNamespacesUnavailable, match="unreachable: refused"):
        talk.woken(5.0)


def test_it_waits_for_the_secondary_from_the_end_of_an_attempt_that_nobody_answered() -> None:
    pair = pair_with(attempt_s=5.0)
    fail_over(pair)
    talk = Talk(pair, ("m0", "a"))
    talk.at = 5.0
    talk.failed(NOBODY_THERE)
    assert isinstance(talk.ask, WaitTurn)
    assert talk.ask.seconds == 5.0


def test_the_timeout_of_its_caller_ends_the_wait_for_the_secondary() -> None:
    pair = pair_with(attempt_s=5.0)
    fail_over(pair)
    talk = Talk(pair, ("m0", "a"), timeout_s=7.0)
    talk.at = 5.0
    talk.failed(NOBODY_THERE)
    assert talk.ask.seconds == 2.0


@pytest.mark.parametrize("silence", [NOBODY_THERE, DOUBT], ids=["no-link-yet", "link-was-open"])
def test_an_attempt_with_hardly_any_time_left_is_no_proof_against_secondary_or_queue(silence: Failure) -> None:
    pair = pair_with(attempt_s=5.0)
    fail_over(pair)
    talk = Talk(pair, ("m0", "a"), timeout_s=0.3)
    talk.at = 0.3
    with pytest.raises(BothNamespacesUnavailable, match=silence.text):
        talk.failed(silence)
    assert pair.secondary.is_doubted, "a trial is to show whether anybody is there"
    assert pair.rotation.lost == {}


def test_the_queue_of_a_session_that_is_silent_again_and_again_is_reported_however_little_time_callers_have() -> None:
    pair = pair_with(attempt_s=5.0)
    fail_over(pair)
    for number in range(3):
        talk = Talk(pair, (f"m{number}", "a"), at=float(number), timeout_s=0.9)
        queue, talk.at = talk.ask.queue, number + 0.9
        with pytest.raises(BothNamespacesUnavailable, match=DOUBT.text):
            talk.failed(DOUBT)
        if pair.begin_trial(talk.at)[0] is not None:
            pair.trial_connected(talk.at)
    reports = [effect for _, effect in pair.take_orders() if isinstance(effect, ReportEvent)]
    assert [effect.details["queue"] for effect in reports if effect.name == "backlog_queue_lost"] == [queue]
    assert list(pair.rotation.lost) == [queue]


def test_a_held_send_waits_for_the_secondary_as_long_as_it_may_be_held() -> None:
    pair = pair_with(hold_sends=True, hold_time_max_s=100.0, attempt_s=5.0)
    fail_over(pair)
    talk = Talk(pair, ("m0", "a"))
    talk.failed(UNREACHABLE)
    assert talk.ask.seconds == 100.0
    assert len(pair.kept) == 1
    with pytest.raises(BothNamespacesUnavailable):
        talk.woken(100.0)
    assert not len(pair.kept)


def test_a_fenced_send_waits_for_the_secondary_though_the_primary_is_up() -> None:
    pair = pair_with()
    backlogged(pair, ("m0", "a"))
    pair.secondary_failed(1.0, pair.secondary.generation, UNREACHABLE, 0.0)
    talk = Talk(pair, ("m1", "a"), at=1.0)
    if talk.ask.seconds == HAND_OVER_S:
        talk.woken(HAND_OVER_S)  # the fence did not fall
    assert isinstance(talk.ask, WaitTurn)
    assert talk.ask.ticket in pair.secondary.waiting


# --- the way back after links (P7) ---


def open_link(pair: Pair, at: float) -> None:
    pair.feed(pair.entity("orders"), LinkOpened(at, pair.entity("orders").epoch))


def test_a_message_behind_a_fence_does_not_try_the_primary() -> None:
    pair = pair_with(probe="link")
    fail_over(pair)
    Talk(pair, ("1", "a")).stored()
    open_link(pair, 60.0)
    assert isinstance(Talk(pair, ("2", "a"), at=60.0).ask, ToBacklog)
    trial = Talk(pair, ("3", "b"), at=60.0)
    assert isinstance(trial.ask, ToPrimary), "another session overtakes nobody"
    trial.failed(DOWN)
    assert isinstance(trial.ask, ToBacklog)
    trial.stored()
    assert trial.receipt is not None
    assert trial.receipt.side is NamespaceSide.BACKLOG
    assert isinstance(Talk(pair, ("4", "c"), at=61.0).ask, ToBacklog), "one trial for each link"


def test_if_all_who_send_stand_behind_a_fence_the_second_link_is_enough_and_they_stay_behind_it() -> None:
    pair = pair_with(probe="link")
    fail_over(pair)
    Talk(pair, ("1", "a")).stored()
    open_link(pair, 60.0)
    Talk(pair, ("2", "a"), at=61.0).stored()
    assert pair.entity("orders").side is NamespaceSide.BACKLOG
    open_link(pair, 120.0)
    assert pair.entity("orders").side is NamespaceSide.PRIMARY
    follower = Talk(pair, ("3", "a"), at=121.0)
    while isinstance(follower.ask, WaitTurn):
        follower.woken(HAND_OVER_S)
    assert isinstance(follower.ask, ToBacklog)
