"""The pump's decisions, in a world made of lists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pump_yard import START_MS, Yard, backlogged, header_ttl, id_of, plain, with_ttl
from seeds import examples

from twinbus.amqp import sections
from twinbus.amqp.outcomes import ACCEPTED, Error
from twinbus.amqp.types import Int, Timestamp
from twinbus.pairing.encoded_messages import BATCH_FORMAT
from twinbus.syphon import dead_letter_reasons as reasons
from twinbus.transport.failures import failure_of, unreachable

DOWN = Error("amqp:internal-error", "out of order")
BUSY = Error("com.microsoft:server-busy", "wait 10 seconds")
WRONG = Error("com.microsoft:argument-error", "never")


# --- the way home ---


def test_letters_for_one_destination_travel_in_one_batch_and_are_completed_in_one_range() -> None:
    yard = Yard()
    for number in range(50):
        yard.put("orders", f"m{number}")
    yard.run()
    assert [send.message_format for send in yard.sends] == [BATCH_FORMAT]
    assert yard.ids_at("orders") == [f"m{number}" for number in range(50)]
    assert yard.left == 0
    assert yard.pump.counts.moved == 50


def test_no_batch_has_more_letters_than_a_namespace_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinbus.syphon.batch_sender.BATCH_MESSAGES_MAX", 20)
    yard = Yard()
    for number in range(50):
        yard.put("orders", f"m{number}")
    yard.run()
    assert len(yard.sends) == 3
    assert yard.ids_at("orders") == [f"m{number}" for number in range(50)]


def test_a_letter_that_is_alone_travels_without_an_envelope() -> None:
    yard = Yard()
    yard.put("orders", "m1")
    yard.run()
    assert [(send.message_format, send.payload) for send in yard.sends] == [(0, plain("m1"))]


def test_everything_but_the_detour_is_as_the_application_sent_it() -> None:
    yard = Yard()
    properties: dict[str, Any] = {"application_properties": {"a": Int(1), "b": "two"}}
    yard.put("orders", "m1", b"body", **properties)
    yard.run()
    assert yard.home["orders"] == [plain("m1", b"body", **properties)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b/c", "d"]), st.integers(0, 3_000), st.integers(0, 2)), min_size=1, max_size=40
    ),
    st.sampled_from([4_096, 16_384]),
    st.sampled_from([1, 2**32 - 10]),
)
@settings(max_examples=examples(60), deadline=None)
def test_every_letter_is_sent_once_in_the_order_of_its_queue_and_no_batch_is_too_large(
    letters: list[tuple[str, int, int]], largest: int, first_id: int
) -> None:
    yard = Yard(queues=3, first_id=first_id)
    yard.largest = largest
    for number, (path, size, queue) in enumerate(letters):
        yard.put(path, f"{queue}-{number}", b"x" * size, queue=queue)
    yard.run()
    assert all(len(send.payload) <= largest for send in yard.sends)
    for path in {path for path, _, _ in letters}:
        for queue in range(3):
            sent = [name for name in yard.ids_at(path) if name.startswith(f"{queue}-")]
            wanted = [f"{queue}-{n}" for n, letter in enumerate(letters) if (letter[0], letter[2]) == (path, queue)]
            assert sent == wanted
    assert yard.left == 0
    assert yard.pump.is_idle


# --- destinations that fail ---


def test_a_destination_that_is_down_is_passed_over_while_others_go_on() -> None:
    yard = Yard()
    yard.broken["down"] = DOWN
    for number in range(20):
        yard.put("down" if number % 2 else "up", f"m{number}")
    yard.run(0.7)
    assert len(yard.ids_at("up")) == 10
    assert [(alert.name, alert.subject) for alert in yard.alerts] == [("destination_down", "down")]
    assert yard.queues[0].lent == {}, "nothing is left locked"
    assert yard.pump.counts.released == 10


def test_letters_behind_many_for_a_destination_that_is_down_are_reached() -> None:
    yard = Yard(prefetch=10)
    yard.unlinkable.add("down")
    for number in range(200):
        yard.put("down", f"m{number}")
    yard.put("up", "last")
    yard.run(5)
    assert yard.ids_at("up") == ["last"]


def test_a_destination_that_is_back_gets_its_letters() -> None:
    yard = Yard()
    yard.broken["orders"] = DOWN
    yard.put("orders", "m1")
    yard.put("orders", "m2")
    yard.run(20)
    assert yard.left == 2
    yard.broken.clear()
    yard.run(31)
    assert yard.ids_at("orders") == ["m1", "m2"]
    assert [alert.name for alert in yard.alerts] == ["destination_down", "destination_up"]


def test_the_pauses_after_failures_grow() -> None:
    yard = Yard()
    yard.broken["orders"] = DOWN
    yard.put("orders", "m1")
    yard.run(300)
    tries = len(yard.sends)
    assert 8 <= tries <= 20
    yard.run(300)
    assert len(yard.sends) - tries <= 11, "once in half a minute"


def test_a_destination_that_throttles_is_left_alone_for_ten_seconds() -> None:
    yard = Yard()
    yard.broken["orders"] = BUSY
    yard.put("orders", "m1")
    yard.run(9.9)
    assert len(yard.sends) == 1
    yard.broken.clear()
    yard.run(5)
    assert yard.ids_at("orders") == ["m1"]


def test_after_a_failure_one_batch_shows_the_way_before_others_follow() -> None:
    yard = Yard()
    yard.largest = 4_096
    yard.broken["orders"] = DOWN
    for number in range(20):
        yard.put("orders", f"m{number}", b"x" * 1_000)
    yard.run(1)
    before = len(yard.sends)
    yard.silent.add("orders")
    yard.run(4)
    assert len(yard.sends) == before + 1


def test_a_batch_without_an_answer_is_in_doubt_and_comes_again() -> None:
    yard = Yard(attempt_s=5.0)
    yard.silent.add("orders")
    yard.put("orders", "m1")
    yard.run(6)
    assert yard.pump.counts.in_doubt == 1
    assert yard.dropped == ["orders"]
    yard.silent.clear()
    late = yard.unanswered[0]
    yard.pump.batches_settled("orders", [late.number], ACCEPTED, yard.now_ms)
    yard.run(10)
    assert yard.ids_at("orders") == ["m1"], "the late answer is nobody's"
    assert yard.left == 0


def test_a_lost_connection_leaves_what_was_on_its_way_in_doubt() -> None:
    yard = Yard()
    yard.silent.add("orders")
    for number in range(5):
        yard.put("orders", f"m{number}")
    yard.run(0.1)
    yard.pump.destination_failed("orders", unreachable(ConnectionResetError("reset"), in_doubt=True), yard.now_ms)
    yard.silent.clear()
    yard.run(5)
    assert yard.pump.counts.in_doubt == 5
    assert yard.left == 0


def test_a_link_that_ends_because_nobody_used_it_is_no_failure() -> None:
    yard = Yard()
    yard.put("orders", "m1")
    yard.run(1)
    idle = failure_of(Error("amqp:link:detach-forced", "Idle timeout: 00:10:00"))
    yard.pump.destination_failed("orders", idle, yard.now_ms)
    yard.run(1)
    assert yard.alerts == []
    yard.put("orders", "m2")
    yard.run()
    assert yard.ids_at("orders") == ["m1", "m2"]
    assert yard.opened == ["orders", "orders"]


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
    yard = Yard()
    yard.broken["orders"] = Error(condition, "no")
    yard.put("orders", "m1")
    yard.run(60)
    assert yard.queues[0].dead == []
    yard.broken.clear()
    yard.run(60)
    assert yard.ids_at("orders") == ["m1"]


# --- refused for good ---


@pytest.mark.parametrize(
    "condition",
    ["com.microsoft:argument-error", "amqp:not-allowed", "amqp:decode-error", "amqp:link:message-size-exceeded"],
)
def test_of_a_refused_batch_only_the_guilty_message_is_put_aside(condition: str) -> None:
    yard = Yard()
    yard.refused_ids["m7"] = Error(condition, "never")
    for number in range(20):
        yard.put("orders", f"m{number}")
    yard.run()
    assert sorted(yard.ids_at("orders")) == sorted(f"m{number}" for number in range(20) if number != 7)
    ((stored, notes),) = yard.queues[0].dead
    assert id_of(stored) == "m7"
    size = condition == "amqp:link:message-size-exceeded"
    assert notes["DeadLetterReason"] == (reasons.TOO_LARGE if size else reasons.REFUSED)
    assert "never" in notes["DeadLetterErrorDescription"]


def test_a_message_larger_than_its_destination_takes_is_put_aside_without_being_sent() -> None:
    yard = Yard()
    yard.largest = 2_000
    yard.put("orders", "m1", b"x" * 3_000)
    yard.put("orders", "m2")
    yard.run()
    assert yard.ids_at("orders") == ["m2"]
    assert yard.queues[0].dead[0][1]["DeadLetterReason"] == reasons.TOO_LARGE


@pytest.mark.parametrize(
    ("stranger", "word"),
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
def test_a_message_that_did_not_come_from_us_is_put_aside_with_the_reason(stranger: bytes, word: str) -> None:
    yard = Yard()
    yard.put_raw(stranger)
    yard.put("orders", "m2")
    yard.run()
    ((_, notes),) = yard.queues[0].dead
    assert notes["DeadLetterReason"] == reasons.MALFORMED
    assert word in notes["DeadLetterErrorDescription"]
    assert yard.ids_at("orders") == ["m2"]
    assert yard.pump.counts.refused == 1


# --- time to live ---


def test_the_time_in_the_backlog_counts_against_the_time_to_live() -> None:
    yard = Yard()
    yard.put("orders", "m1", age_ms=40_000, **with_ttl(100_000))
    yard.run()
    assert header_ttl(yard.home["orders"][0]) == 60_000


def test_the_time_to_live_goes_on_running_while_a_letter_waits_with_us() -> None:
    yard = Yard(rate=0.1, prefetch=10)
    yard.put("orders", "m0", **with_ttl(100_000))
    yard.put("orders", "m1", **with_ttl(100_000))
    yard.run(15)
    first, second = [header_ttl(message) for message in yard.home["orders"]]
    assert first == 100_000
    assert second is not None
    assert 85_000 <= second <= 91_000


def test_a_message_whose_time_ended_is_put_aside_under_its_own_reason() -> None:
    yard = Yard()
    yard.put("orders", "m1", age_ms=100_001, **with_ttl(100_000))
    yard.run()
    assert yard.queues[0].dead[0][1]["DeadLetterReason"] == reasons.EXPIRED
    assert (yard.pump.counts.expired, yard.pump.counts.refused) == (1, 0)
    assert yard.sends == []


def test_the_time_to_live_can_begin_again() -> None:
    yard = Yard(ttl="restart")
    yard.put("orders", "m1", age_ms=100_001, **with_ttl(100_000))
    yard.run()
    assert header_ttl(yard.home["orders"][0]) == 100_000


def test_the_time_to_live_of_a_scheduled_message_begins_with_its_schedule() -> None:
    yard = Yard()
    due: dict[str, Any] = {"annotations": {"x-opt-scheduled-enqueue-time": Timestamp(START_MS - 10_000)}}
    yard.put("orders", "m1", age_ms=500_000, **with_ttl(100_000), **due)
    yard.run()
    (message,) = yard.home["orders"]
    assert header_ttl(message) == 90_000
    schedule = sections.read_annotation(message, sections.walk(message), "x-opt-scheduled-enqueue-time")
    assert schedule == START_MS - 10_000


def test_the_clock_of_the_secondary_counts_and_a_difference_is_told() -> None:
    yard = Yard(lock_s=20.0)  # the yard's locks last a minute: to the pump, the secondary is 40 s ahead
    yard.put("orders", "m1", age_ms=0, **with_ttl(100_000))
    yard.run()
    assert header_ttl(yard.home["orders"][0]) == 60_000
    assert [alert.name for alert in yard.alerts] == ["clock_differs"]


# --- idle manners ---


def test_ten_idle_queues_cost_28800_grants_in_thirty_days() -> None:
    yard = Yard(queues=10)
    yard.run(30 * 86_400 - 1)
    assert sum(queue.grants for queue in yard.queues) == 28_800


def test_an_idle_hour_costs_four_grants_a_queue() -> None:
    yard = Yard(queues=1)
    yard.run(3_599)
    assert yard.queues[0].grants == 4


def test_credit_is_given_in_large_steps() -> None:
    yard = Yard(prefetch=100)
    for number in range(1_000):
        yard.put("orders", f"m{number}")
    yard.run()
    assert yard.queues[0].grants <= 41
    assert yard.left == 0


def test_large_messages_are_borrowed_in_small_numbers() -> None:
    yard = Yard(prefetch=1_000, held_bytes_max=1_000_000)
    yard.silent.add("orders")
    for number in range(300):
        yard.put("orders", f"m{number}", b"x" * 50_000)
    yard.run(1)
    assert len(yard.queues[0].lent) <= 20
    yard.silent.clear()
    yard.pump.destination_failed("orders", failure_of(DOWN), yard.now_ms)
    yard.run(120)
    assert yard.pump.queues[0].window(1_000, 1) <= 20
    assert yard.left == 0


def test_credit_for_small_messages_is_taken_back_when_large_ones_come() -> None:
    yard = Yard(prefetch=1_000, held_bytes_max=1_000_000)
    for number in range(500):
        yard.put("orders", f"m{number}")
    yard.run()
    assert yard.queues[0].credit == 1_000
    yard.silent.add("orders")
    for number in range(150):
        yard.put("orders", f"n{number}", b"x" * 50_000)
    yard.run(1)
    assert yard.queues[0].credit == 0


# --- locks ---


def test_locks_are_renewed_when_half_their_time_is_over() -> None:
    yard = Yard(attempt_s=100.0)
    yard.silent.add("orders")
    yard.put("orders", "m1")
    yard.run(29)
    assert yard.renewals == []
    yard.run(2)
    (renewal,) = yard.renewals
    assert len(renewal.tokens) == 1
    yard.pump.locks_renewed(renewal.lock_batch, None, yard.now_ms, yard.now_ms)
    yard.run(20)
    assert len(yard.renewals) == 1
    yard.run(12)
    assert len(yard.renewals) == 2


def test_locks_that_are_shorter_than_we_were_told_are_renewed_in_their_own_time() -> None:
    yard = Yard(lock_s=120.0, attempt_s=500.0)  # the yard's locks last a minute
    yard.silent.add("orders")
    yard.put("orders", "m1")
    yard.run(31)
    (renewal,) = yard.renewals
    yard.pump.locks_renewed(renewal.lock_batch, None, yard.now_ms, yard.now_ms)
    yard.run(31)
    assert len(yard.renewals) == 2


@pytest.mark.parametrize(("condition", "most"), [("com.microsoft:server-busy", 2), ("amqp:internal-error", 6)])
def test_a_refused_renewal_is_tried_again_after_a_pause(condition: str, most: int) -> None:
    yard = Yard(attempt_s=100.0)
    yard.silent.add("orders")
    yard.put("orders", "m1")
    yard.run(31)
    refusal = failure_of(Error(condition, "not now"))
    for _ in range(100):
        if yard.renewals[-1].lock_batch.is_renewing:
            yard.pump.locks_renewed(yard.renewals[-1].lock_batch, refusal, yard.now_ms, yard.now_ms)
        yard.run(0.1)
    assert 2 <= len(yard.renewals) <= most


def test_letters_whose_locks_were_lost_are_not_sent() -> None:
    yard = Yard(rate=0.01, attempt_s=600.0)
    yard.put("orders", "m0")
    yard.put("orders", "m1")
    yard.pump.pace.sent(2)
    yard.run(61)
    (renewal, *_) = yard.renewals
    lost = failure_of(Error("com.microsoft:message-lock-lost", "gone"))
    yard.pump.locks_renewed(renewal.lock_batch, lost, yard.now_ms, yard.now_ms)
    yard.run(0.2)
    assert yard.sends == []
    assert "locks_lost" in [alert.name for alert in yard.alerts]


def test_a_batch_that_lost_all_its_locks_stops_the_queue_for_a_while() -> None:
    yard = Yard()
    yard.are_locks_lost = True
    for number in range(10):
        yard.put("orders", f"m{number}")
    yard.run()
    assert yard.pump.counts.repeated == 10
    assert [alert.name for alert in yard.alerts] == ["locks_lost"]
    assert yard.queues[0].credit == 0
    yard.run(2)
    assert yard.queues[0].credit > 0


def test_a_queue_that_is_lost_takes_its_letters_with_it() -> None:
    yard = Yard(rate=1.0)
    yard.silent.add("orders")
    for number in range(5):
        yard.put("orders", f"m{number}")
    yard.run(0.1)
    yard.pump.queue_lost(0)
    yard.run(10)
    assert len(yard.sends) == 1
    yard.pump.batches_settled("orders", [yard.sends[0].number], ACCEPTED, yard.now_ms)
    assert yard.pump.counts.repeated == 1, "stored at home, and it will come again"
    assert yard.pump.is_idle


def test_a_settlement_without_an_answer_makes_the_pump_take_another_link() -> None:
    yard = Yard(attempt_s=5.0)
    yard.put("orders", "m1")
    yard.pump.take_effects(yard.now_ms)
    yard.queues[0].credit = 1
    yard.pump.messages_arrived(0, yard.queues[0].lend(yard.now_ms), yard.now_ms)
    yard.pump.take_effects(yard.now_ms)
    yard.pump.destination_opened("orders", 1_000, 1_000, 10)
    yard.pump.take_effects(yard.now_ms)
    yard.pump.batches_settled("orders", [1], ACCEPTED, yard.now_ms)
    yard.pump.take_effects(yard.now_ms)
    yard.now_ms += 5_000
    yard.pump.tick(yard.now_ms)
    yard.settle_down()
    assert yard.reopened == [0]
