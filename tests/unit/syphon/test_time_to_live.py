"""P16: what is left of a time to live is given on the way home, and never more than a message was sent with.

On the service, and on a namespace of ours, the time to live of a scheduled message runs from its schedule: until then
none of it is used up, wherever the message waits.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pump_harness import START_MS, PumpHarness, header_ttl, with_ttl

from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.syphon.pump import dead_letter_reasons as reasons

SCHEDULE = "x-opt-scheduled-enqueue-time"
DAY_MS = 86_400_000
ttls = st.one_of(st.integers(0, 10_000), st.integers(0, 2**32 - 1))
ages = st.one_of(st.integers(0, 10_000), st.integers(0, 10 * DAY_MS))
schedules = st.none() | st.integers(-10_000, 10_000) | st.integers(-10 * DAY_MS, 10 * DAY_MS)
hands = st.integers(0, 14_000)
skews = st.sampled_from([0, 0, 1, -1, 5_000, -5_000, 3_600_000, -3_600_000])


def scheduled(at_ms: int | None) -> dict[str, Any]:
    return {} if at_ms is None else {"annotations": {SCHEDULE: Timestamp(at_ms)}}


def brought_home(
    ttl_ms: int, *, age_ms: int = 0, due_at_ms: int | None = None, hand_ms: int = 0, ahead_ms: int = 0, **options: Any
) -> PumpHarness:
    """A message that lay in the backlog for `age_ms`, and then `hand_ms` with the syphon until its entity was open."""
    harness = PumpHarness(**options)
    harness.ahead_ms = ahead_ms
    harness.slow.add("orders")
    harness.put("orders", "m1", age_ms=age_ms, **with_ttl(ttl_ms), **scheduled(due_at_ms))
    harness.settle_down()
    harness.now_ms += hand_ms
    harness.open_slow_ones()
    harness.settle_down()
    return harness


def ttl_at_home(harness: PumpHarness) -> int | None:
    (message,) = harness.home["orders"]
    return header_ttl(message)


def schedule_at_home(harness: PumpHarness) -> object:
    (message,) = harness.home["orders"]
    return sections.read_annotation(message, sections.walk(message), SCHEDULE)


def test_a_message_whose_schedule_is_still_to_come_keeps_its_schedule_and_its_whole_time_to_live() -> None:
    due_at_ms = START_MS + 60_000
    harness = brought_home(5_000, age_ms=30_000, due_at_ms=due_at_ms)
    assert (ttl_at_home(harness), schedule_at_home(harness)) == (5_000, due_at_ms)


def test_a_message_whose_schedule_comes_while_the_syphon_has_it_in_hand_is_given_what_is_left_since_then() -> None:
    harness = brought_home(60_000, age_ms=30_000, due_at_ms=START_MS + 4_000, hand_ms=10_000)
    assert ttl_at_home(harness) == 54_000


def test_a_message_that_goes_home_whole_is_as_it_was_sent_in_everything_that_shows_its_time() -> None:
    created_at, expires_at = Timestamp(START_MS - 1_000), Timestamp(START_MS + 4_000)
    harness = PumpHarness()
    times = {PropertyField.CREATION_TIME: created_at, PropertyField.ABSOLUTE_EXPIRY_TIME: expires_at}
    harness.put("orders", "m1", properties=times, **with_ttl(5_000), **scheduled(START_MS + 60_000))
    harness.run()
    (message,) = harness.home["orders"]
    layout = sections.walk(message)
    assert sections.read_property(message, layout, PropertyField.ABSOLUTE_EXPIRY_TIME) == expires_at


@given(ttl_ms=ttls, age_ms=ages, due_in_ms=schedules, hand_ms=hands, ahead_ms=skews)
def test_whatever_its_schedule_and_however_long_it_waited_it_is_given_what_is_left_and_never_more_than_it_was_sent_with(
    ttl_ms: int, age_ms: int, due_in_ms: int | None, hand_ms: int, ahead_ms: int
) -> None:
    secondary_ms = START_MS + ahead_ms + hand_ms
    enqueued_ms = START_MS + ahead_ms - age_ms
    due_at_ms = None if due_in_ms is None else START_MS + ahead_ms + due_in_ms
    harness = brought_home(ttl_ms, age_ms=age_ms, due_at_ms=due_at_ms, hand_ms=hand_ms, ahead_ms=ahead_ms)
    used_up_ms = max(0, secondary_ms - max(enqueued_ms, due_at_ms or 0))
    is_running = max(enqueued_ms, due_at_ms or 0) <= secondary_ms
    if is_running and used_up_ms >= ttl_ms:
        assert harness.home == {}
        assert [notes["DeadLetterReason"] for _, notes in harness.queues[0].dead] == [reasons.EXPIRED]
    else:
        given_ms = ttl_at_home(harness)
        assert given_ms == ttl_ms - used_up_ms
        assert given_ms <= ttl_ms
        assert schedule_at_home(harness) == due_at_ms


@given(ttl_ms=ttls, age_ms=ages, due_in_ms=schedules, hand_ms=hands, lock_s=st.sampled_from([5.0, 30.0, 90.0, 300.0]))
def test_locks_that_make_the_secondarys_clock_look_wrong_never_lengthen_it(
    ttl_ms: int, age_ms: int, due_in_ms: int | None, hand_ms: int, lock_s: float
) -> None:
    due_at_ms = None if due_in_ms is None else START_MS + due_in_ms
    harness = brought_home(ttl_ms, age_ms=age_ms, due_at_ms=due_at_ms, hand_ms=min(hand_ms, 4_000), lock_s=lock_s)
    for message in harness.home.get("orders", []):
        given_ms = header_ttl(message)
        assert given_ms is not None
        assert given_ms <= ttl_ms


@given(ttl_ms=ttls, age_ms=ages, due_in_ms=schedules, hand_ms=hands)
def test_a_time_to_live_that_begins_again_is_exactly_what_it_was_sent_with(
    ttl_ms: int, age_ms: int, due_in_ms: int | None, hand_ms: int
) -> None:
    due_at_ms = None if due_in_ms is None else START_MS + due_in_ms
    harness = brought_home(ttl_ms, age_ms=age_ms, due_at_ms=due_at_ms, hand_ms=hand_ms, ttl="restart")
    assert (ttl_at_home(harness), schedule_at_home(harness)) == (ttl_ms, due_at_ms)
