"""The pump's decisions, in a world made of lists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pump_harness import START_MS, PumpHarness, backlogged, header_ttl, id_of, plain, with_ttl
from seeds import examples

from twinbus.amqp.codec.outcomes import ACCEPTED, Error
from twinbus.amqp.codec.types import Int, Timestamp
from twinbus.amqp.message import sections
from twinbus.pairing.sending.encoded_messages import BATCH_FORMAT
from twinbus.syphon.pump import dead_letter_reasons as reasons
from twinbus.transport.failures import failure_of, unreachable

DOWN = Error("amqp:internal-error", "out of order")
BUSY = Error("com.microsoft:server-busy", "wait 10 seconds")
WRONG = Error("com.microsoft:argument-error", "never")


# --- the way home ---


def test_messages_for_one_destination_travel_in_one_batch_and_are_completed_in_one_range() -> None:
    harness = PumpHarness()
    for number in range(50):
        harness.put("orders", f"m{number}")
    harness.run()
    assert [send.message_format for send in harness.sends] == [BATCH_FORMAT]
    assert harness.ids_at("orders") == [f"m{number}" for number in range(50)]
    assert harness.left == 0
    assert harness.pump.counts.moved == 50


def test_no_batch_has_more_messages_than_a_namespace_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinbus.syphon.pump.batch_sender.BATCH_MESSAGES_MAX", 20)
    harness = PumpHarness()
    for number in range(50):
        harness.put("orders", f"m{number}")
    harness.run()
    assert len(harness.sends) == 3
    assert harness.ids_at("orders") == [f"m{number}" for number in range(50)]


def test_a_message_that_is_alone_travels_without_an_envelope() -> None:
    harness = PumpHarness()
    harness.put("orders", "m1")
    harness.run()
    assert [(send.message_format, send.payload) for send in harness.sends] == [(0, plain("m1"))]


def test_everything_but_the_detour_is_as_the_application_sent_it() -> None:
    harness = PumpHarness()
    properties: dict[str, Any] = {"application_properties": {"a": Int(1), "b": "two"}}
    harness.put("orders", "m1", b"body", **properties)
    harness.run()
    assert harness.home["orders"] == [plain("m1", b"body", **properties)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b/c", "d"]), st.integers(0, 3_000), st.integers(0, 2)), min_size=1, max_size=40
    ),
    st.sampled_from([4_096, 16_384]),
    st.sampled_from([1, 2**32 - 10]),
)
@settings(max_examples=examples(60), deadline=None)
def test_every_message_is_sent_once_in_the_order_of_its_queue_and_no_batch_is_too_large(
    messages: list[tuple[str, int, int]], largest: int, first_id: int
) -> None:
    harness = PumpHarness(queues=3, first_id=first_id)
    harness.largest = largest
    for number, (path, size, queue) in enumerate(messages):
        harness.put(path, f"{queue}-{number}", b"x" * size, queue=queue)
    harness.run()
    assert all(len(send.payload) <= largest for send in harness.sends)
    for path in {path for path, _, _ in messages}:
        for queue in range(3):
            sent = [name for name in harness.ids_at(path) if name.startswith(f"{queue}-")]
            wanted = [f"{queue}-{n}" for n, message in enumerate(messages) if (message[0], message[2]) == (path, queue)]
            assert sent == wanted
    assert harness.left == 0
    assert harness.pump.is_idle


# --- destinations that fail ---


def test_a_destination_that_is_down_is_passed_over_while_others_go_on() -> None:
    harness = PumpHarness()
    harness.broken["down"] = DOWN
    for number in range(20):
        harness.put("down" if number % 2 else "up", f"m{number}")
    harness.run(0.7)
    assert len(harness.ids_at("up")) == 10
    assert [(alert.name, alert.subject) for alert in harness.alerts] == [("destination_down", "down")]
    assert harness.queues[0].lent == {}, "nothing is left locked"
    assert harness.pump.counts.released == 10


def test_messages_behind_many_for_a_destination_that_is_down_are_reached() -> None:
    harness = PumpHarness(prefetch=10)
    harness.unlinkable.add("down")
    for number in range(200):
        harness.put("down", f"m{number}")
    harness.put("up", "last")
    harness.run(5)
    assert harness.ids_at("up") == ["last"]


def test_a_destination_that_is_back_gets_its_messages() -> None:
    harness = PumpHarness()
    harness.broken["orders"] = DOWN
    harness.put("orders", "m1")
    harness.put("orders", "m2")
    harness.run(20)
    assert harness.left == 2
    harness.broken.clear()
    harness.run(31)
    assert harness.ids_at("orders") == ["m1", "m2"]
    assert [alert.name for alert in harness.alerts] == ["destination_down", "destination_up"]


def test_the_pauses_after_failures_grow() -> None:
    harness = PumpHarness()
    harness.broken["orders"] = DOWN
    harness.put("orders", "m1")
    harness.run(300)
    tries = len(harness.sends)
    assert 8 <= tries <= 20
    harness.run(300)
    assert len(harness.sends) - tries <= 11, "once in half a minute"


def test_a_destination_that_throttles_is_left_alone_for_ten_seconds() -> None:
    harness = PumpHarness()
    harness.broken["orders"] = BUSY
    harness.put("orders", "m1")
    harness.run(9.9)
    assert len(harness.sends) == 1
    harness.broken.clear()
    harness.run(5)
    assert harness.ids_at("orders") == ["m1"]


def test_after_a_failure_one_batch_shows_the_way_before_others_follow() -> None:
    harness = PumpHarness()
    harness.largest = 4_096
    harness.broken["orders"] = DOWN
    for number in range(20):
        harness.put("orders", f"m{number}", b"x" * 1_000)
    harness.run(1)
    before = len(harness.sends)
    harness.silent.add("orders")
    harness.run(4)
    assert len(harness.sends) == before + 1


def test_a_batch_without_an_answer_is_in_doubt_and_comes_again() -> None:
    harness = PumpHarness(attempt_s=5.0)
    harness.silent.add("orders")
    harness.put("orders", "m1")
    harness.run(6)
    assert harness.pump.counts.in_doubt == 1
    assert harness.dropped == ["orders"]
    harness.silent.clear()
    late = harness.unanswered[0]
    harness.pump.batches_settled("orders", [late.number], ACCEPTED, harness.now_ms)
    harness.run(10)
    assert harness.ids_at("orders") == ["m1"], "the late answer is nobody's"
    assert harness.left == 0


def test_a_lost_connection_leaves_what_was_on_its_way_in_doubt() -> None:
    harness = PumpHarness()
    harness.silent.add("orders")
    for number in range(5):
        harness.put("orders", f"m{number}")
    harness.run(0.1)
    harness.pump.destination_failed("orders", unreachable(ConnectionResetError("reset"), in_doubt=True), harness.now_ms)
    harness.silent.clear()
    harness.run(5)
    assert harness.pump.counts.in_doubt == 5
    assert harness.left == 0


def test_a_link_that_ends_because_nobody_used_it_is_no_failure() -> None:
    harness = PumpHarness()
    harness.put("orders", "m1")
    harness.run(1)
    idle = failure_of(Error("amqp:link:detach-forced", "Idle timeout: 00:10:00"))
    harness.pump.destination_failed("orders", idle, harness.now_ms)
    harness.run(1)
    assert harness.alerts == []
    harness.put("orders", "m2")
    harness.run()
    assert harness.ids_at("orders") == ["m1", "m2"]
    assert harness.opened == ["orders", "orders"]


@pytest.mark.parametrize(
    "condition",
    [
        "amqp:resource-limit-exceeded",
        "com.microsoft:entity-disabled",
        "amqp:not-found",
        "amqp:unauthorized-access",
        "amqp:resource-deleted",
        "amqp:internal-error",
        "com.microsoft:timeout",
        "amqp:link:detach-forced",
        "vendor:whatever",
    ],
)
def test_what_may_pass_never_puts_a_message_aside(condition: str) -> None:
    harness = PumpHarness()
    harness.broken["orders"] = Error(condition, "no")
    harness.put("orders", "m1")
    harness.run(60)
    assert harness.queues[0].dead == []
    harness.broken.clear()
    harness.run(60)
    assert harness.ids_at("orders") == ["m1"]


# --- refused for good ---


@pytest.mark.parametrize(
    "condition",
    ["com.microsoft:argument-error", "amqp:not-allowed", "amqp:decode-error", "amqp:link:message-size-exceeded"],
)
def test_of_a_refused_batch_only_the_guilty_message_is_put_aside(condition: str) -> None:
    harness = PumpHarness()
    harness.refused_ids["m7"] = Error(condition, "never")
    for number in range(20):
        harness.put("orders", f"m{number}")
    harness.run()
    assert sorted(harness.ids_at("orders")) == sorted(f"m{number}" for number in range(20) if number != 7)
    ((stored, notes),) = harness.queues[0].dead
    assert id_of(stored) == "m7"
    size = condition == "amqp:link:message-size-exceeded"
    assert notes["DeadLetterReason"] == (reasons.TOO_LARGE if size else reasons.REFUSED)
    assert "never" in notes["DeadLetterErrorDescription"]


def test_a_message_larger_than_its_destination_takes_is_put_aside_without_being_sent() -> None:
    harness = PumpHarness()
    harness.largest = 2_000
    harness.put("orders", "m1", b"x" * 3_000)
    harness.put("orders", "m2")
    harness.run()
    assert harness.ids_at("orders") == ["m2"]
    assert harness.queues[0].dead[0][1]["DeadLetterReason"] == reasons.TOO_LARGE


@pytest.mark.parametrize(
    ("message", "word"),
    [
        (plain("m1"), "x-ms-path"),
        (plain("m1", application_properties={"x-ms-path": Int(3)}), "x-ms-path"),
        (plain("m1", application_properties={"x-ms-path": "orders", "x-ms-timetolive": "long"}), "x-ms-timetolive"),
        (plain("m1", application_properties={"x-ms-path": "orders", "x-ms-sessionid": Int(3)}), "x-ms-sessionid"),
        (backlogged("orders/$management", "m1"), "node of the service"),
        (backlogged("$cbs", "m1"), "node of the service"),
        (backlogged("amqps://elsewhere/orders", "m1"), "name of an entity"),
        (backlogged("x" * 300, "m1"), "260"),
    ],
)
def test_a_message_that_did_not_come_from_us_is_put_aside_with_the_reason(message: bytes, word: str) -> None:
    harness = PumpHarness()
    harness.put_raw(message)
    harness.put("orders", "m2")
    harness.run()
    ((_, notes),) = harness.queues[0].dead
    assert notes["DeadLetterReason"] == reasons.MALFORMED
    assert word in notes["DeadLetterErrorDescription"]
    assert harness.ids_at("orders") == ["m2"]
    assert harness.pump.counts.refused == 1


# --- time to live ---


def test_the_time_in_the_backlog_counts_against_the_time_to_live() -> None:
    harness = PumpHarness()
    harness.put("orders", "m1", age_ms=40_000, **with_ttl(100_000))
    harness.run()
    assert header_ttl(harness.home["orders"][0]) == 60_000


def test_the_time_to_live_goes_on_running_while_a_message_waits_with_us() -> None:
    harness = PumpHarness(rate=0.1, prefetch=10)
    harness.put("orders", "m0", **with_ttl(100_000))
    harness.put("orders", "m1", **with_ttl(100_000))
    harness.run(15)
    first, second = [header_ttl(message) for message in harness.home["orders"]]
    assert first == 100_000
    assert second is not None
    assert 85_000 <= second <= 91_000


def test_a_message_whose_time_ended_is_put_aside_under_its_own_reason() -> None:
    harness = PumpHarness()
    harness.put("orders", "m1", age_ms=100_001, **with_ttl(100_000))
    harness.run()
    assert harness.queues[0].dead[0][1]["DeadLetterReason"] == reasons.EXPIRED
    assert (harness.pump.counts.expired, harness.pump.counts.refused) == (1, 0)
    assert harness.sends == []


def test_the_time_to_live_can_begin_again() -> None:
    harness = PumpHarness(ttl="restart")
    harness.put("orders", "m1", age_ms=100_001, **with_ttl(100_000))
    harness.run()
    assert header_ttl(harness.home["orders"][0]) == 100_000


def test_the_time_to_live_of_a_scheduled_message_begins_with_its_schedule() -> None:
    harness = PumpHarness()
    due: dict[str, Any] = {"annotations": {"x-opt-scheduled-enqueue-time": Timestamp(START_MS - 10_000)}}
    harness.put("orders", "m1", age_ms=500_000, **with_ttl(100_000), **due)
    harness.run()
    (message,) = harness.home["orders"]
    assert header_ttl(message) == 90_000
    schedule = sections.read_annotation(message, sections.walk(message), "x-opt-scheduled-enqueue-time")
    assert schedule == START_MS - 10_000


def test_the_clock_of_the_secondary_counts_and_a_difference_is_reported() -> None:
    harness = PumpHarness(lock_s=20.0)  # the harness's locks last a minute: to the pump, the secondary is 40 s ahead
    harness.put("orders", "m1", age_ms=0, **with_ttl(100_000))
    harness.run()
    assert header_ttl(harness.home["orders"][0]) == 60_000
    assert [alert.name for alert in harness.alerts] == ["clock_differs"]


# --- idle manners ---


def test_ten_idle_queues_cost_28800_grants_in_thirty_days() -> None:
    harness = PumpHarness(queues=10)
    harness.run(30 * 86_400 - 1)
    assert sum(queue.grants for queue in harness.queues) == 28_800


def test_an_idle_hour_costs_four_grants_a_queue() -> None:
    harness = PumpHarness(queues=1)
    harness.run(3_599)
    assert harness.queues[0].grants == 4


def test_credit_is_given_in_large_steps() -> None:
    harness = PumpHarness(prefetch=100)
    for number in range(1_000):
        harness.put("orders", f"m{number}")
    harness.run()
    assert harness.queues[0].grants <= 41
    assert harness.left == 0


def test_large_messages_are_borrowed_in_small_numbers() -> None:
    harness = PumpHarness(prefetch=1_000, held_bytes_max=1_000_000)
    harness.silent.add("orders")
    for number in range(300):
        harness.put("orders", f"m{number}", b"x" * 50_000)
    harness.run(1)
    assert len(harness.queues[0].lent) <= 20
    harness.silent.clear()
    harness.pump.destination_failed("orders", failure_of(DOWN), harness.now_ms)
    harness.run(120)
    assert harness.pump.queues[0].window(1_000, 1) <= 20
    assert harness.left == 0


def test_credit_for_small_messages_is_taken_back_when_large_ones_come() -> None:
    harness = PumpHarness(prefetch=1_000, held_bytes_max=1_000_000)
    for number in range(500):
        harness.put("orders", f"m{number}")
    harness.run()
    assert harness.queues[0].credit == 1_000
    harness.silent.add("orders")
    for number in range(150):
        harness.put("orders", f"n{number}", b"x" * 50_000)
    harness.run(1)
    assert harness.queues[0].credit == 0


# --- locks ---


def test_locks_are_renewed_when_half_their_time_is_over() -> None:
    harness = PumpHarness(attempt_s=100.0)
    harness.silent.add("orders")
    harness.put("orders", "m1")
    harness.run(29)
    assert harness.renewals == []
    harness.run(2)
    (renewal,) = harness.renewals
    assert len(renewal.tokens) == 1
    harness.pump.locks_renewed(renewal.lock_batch, None, harness.now_ms, harness.now_ms)
    harness.run(20)
    assert len(harness.renewals) == 1
    harness.run(12)
    assert len(harness.renewals) == 2


def test_locks_that_are_shorter_than_announced_are_renewed_in_their_own_time() -> None:
    harness = PumpHarness(lock_s=120.0, attempt_s=500.0)  # the harness's locks last a minute
    harness.silent.add("orders")
    harness.put("orders", "m1")
    harness.run(31)
    (renewal,) = harness.renewals
    harness.pump.locks_renewed(renewal.lock_batch, None, harness.now_ms, harness.now_ms)
    harness.run(31)
    assert len(harness.renewals) == 2


@pytest.mark.parametrize(("condition", "most"), [("com.microsoft:server-busy", 2), ("amqp:internal-error", 6)])
def test_a_refused_renewal_is_tried_again_after_a_pause(condition: str, most: int) -> None:
    harness = PumpHarness(attempt_s=100.0)
    harness.silent.add("orders")
    harness.put("orders", "m1")
    harness.run(31)
    refusal = failure_of(Error(condition, "not now"))
    for _ in range(100):
        if harness.renewals[-1].lock_batch.is_renewing:
            harness.pump.locks_renewed(harness.renewals[-1].lock_batch, refusal, harness.now_ms, harness.now_ms)
        harness.run(0.1)
    assert 2 <= len(harness.renewals) <= most


def test_messages_whose_locks_were_lost_are_not_sent() -> None:
    harness = PumpHarness(rate=0.01, attempt_s=600.0)
    harness.put("orders", "m0")
    harness.put("orders", "m1")
    harness.pump.pace.sent(2)
    harness.run(61)
    (renewal, *_) = harness.renewals
    lost = failure_of(Error("com.microsoft:message-lock-lost", "gone"))
    harness.pump.locks_renewed(renewal.lock_batch, lost, harness.now_ms, harness.now_ms)
    harness.run(0.2)
    assert harness.sends == []
    assert "locks_lost" in [alert.name for alert in harness.alerts]


def test_a_batch_that_lost_all_its_locks_stops_the_queue_for_a_while() -> None:
    harness = PumpHarness()
    harness.are_locks_lost = True
    for number in range(10):
        harness.put("orders", f"m{number}")
    harness.run()
    assert harness.pump.counts.repeated == 10
    assert [alert.name for alert in harness.alerts] == ["locks_lost"]
    assert harness.queues[0].credit == 0
    harness.run(2)
    assert harness.queues[0].credit > 0


def test_a_queue_that_is_lost_takes_its_messages_with_it() -> None:
    harness = PumpHarness(rate=1.0)
    harness.silent.add("orders")
    for number in range(5):
        harness.put("orders", f"m{number}")
    harness.run(0.1)
    harness.pump.queue_lost(0)
    harness.run(10)
    assert len(harness.sends) == 1
    harness.pump.batches_settled("orders", [harness.sends[0].number], ACCEPTED, harness.now_ms)
    assert harness.pump.counts.repeated == 1, "stored at home, and it will come again"
    assert harness.pump.is_idle


def test_a_settlement_without_an_answer_makes_the_pump_take_another_link() -> None:
    harness = PumpHarness(attempt_s=5.0)
    harness.put("orders", "m1")
    harness.pump.take_effects(harness.now_ms)
    harness.queues[0].credit = 1
    harness.pump.messages_arrived(0, harness.queues[0].lend(harness.now_ms), harness.now_ms)
    harness.pump.take_effects(harness.now_ms)
    harness.pump.destination_opened("orders", 1_000, 1_000, 10)
    harness.pump.take_effects(harness.now_ms)
    harness.pump.batches_settled("orders", [1], ACCEPTED, harness.now_ms)
    harness.pump.take_effects(harness.now_ms)
    harness.now_ms += 5_000
    harness.pump.tick(harness.now_ms)
    harness.settle_down()
    assert harness.reopened == [0]
