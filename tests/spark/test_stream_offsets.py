"""How far a stream goes: partitions, entities that were made anew, names, offsets of version 0.1. Without a session."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peeked_entity import PeekedEntity

from twinbus.errors import TwinbusError
from twinbus.spark.source.consuming.staging import ReceiveOffset
from twinbus.spark.source.offsets import PARTITION_BITS, positions_in, unread
from twinbus.spark.source.options import read_options
from twinbus.spark.source.stream_offsets import CHECK_S, StreamOffsets, ranges_of


class Stream:
    """A stream over one entity, with its checkpoint, run after run."""

    def __init__(
        self, entity: PeekedEntity, start: dict[str, Any] | None = None, name: str = "orders", **given: str
    ) -> None:
        self.entity = entity
        self.offset = start
        self.time_s = 0.0
        self.ids: list[tuple[int, int]] = []
        """Number and time of every message read: together they identify a message."""
        self.restart(name, **given)

    def restart(self, name: str = "orders", **given: str) -> None:
        self.name = name
        lenient = {"servicebus.credential": "env:SB", "queues": name, "failOnDataLoss": "false"}
        options = read_options(lenient | given, is_batch=False)
        self._offsets = StreamOffsets(
            options, self.entity.peek, monotonic=lambda: self.time_s, clock=lambda: self.entity.now_ms / 1000
        )
        if self.offset is None:
            self.offset = self._offsets.initial()

    def run(self, most: int | None = None, after_s: float = CHECK_S) -> list[int]:
        """The numbers that the next batch reads."""
        self.time_s += after_s
        start = self.offset
        end = json.loads(json.dumps(self._offsets.latest(start, most)))  # as Spark keeps it
        self.offset = end
        ranges = list(unread(positions_in(start, self.name), positions_in(end, self.name)))
        numbers = [
            number for first, last in ranges for number in sorted(self.entity.messages) if first <= number <= last
        ]
        self.ids += [(number, self.entity.messages[number].enqueued_ms) for number in numbers]
        return numbers

    def available_now(self) -> None:
        self._offsets.stop_at_what_is_there()


def in_partition(partition: int, *numbers: int) -> list[int]:
    return [(partition << PARTITION_BITS) + number for number in numbers]


# --- partitions ---


def test_each_partition_is_read_to_its_end_whichever_grows() -> None:
    entity = PeekedEntity()
    entity.send(33, 2)
    entity.send(97, 3)
    stream = Stream(entity)
    assert stream.run() == in_partition(33, 1, 2) + in_partition(97, 1, 2, 3)
    entity.send(33, 2)
    assert stream.run() == in_partition(33, 3, 4), "its numbers are lower than what was read of the other partition"
    entity.send(97)
    entity.send(33)
    assert stream.run() == in_partition(33, 5) + in_partition(97, 4)


def test_a_partition_that_was_empty_is_read_from_its_first_message() -> None:
    entity = PeekedEntity()
    entity.send(40, 2)
    stream = Stream(entity)
    stream.run()
    for partition in (12, 41, 39):
        entity.send(partition, 2)
        assert stream.run() == in_partition(partition, 1, 2)


def test_a_new_partition_is_found_soon_although_nobody_asks_every_time() -> None:
    entity = PeekedEntity()
    entity.send(0, 2)
    stream = Stream(entity)
    stream.run()
    entity.send(5, 2)
    found = [number for _ in range(11) for number in stream.run(after_s=CHECK_S / 10)]
    assert found == in_partition(5, 1, 2)


def test_a_limit_is_shared_by_all_partitions() -> None:
    entity = PeekedEntity()
    entity.send(1, 30)
    entity.send(2, 10)
    stream = Stream(entity)
    first = stream.run(20)
    assert len(first) == 20
    assert {number >> PARTITION_BITS for number in first} == {1, 2}
    rest = stream.run(20)
    assert sorted(first + rest) == in_partition(1, *range(1, 31)) + in_partition(2, *range(1, 11))


def test_a_stream_from_the_latest_message_on_leaves_all_partitions_behind() -> None:
    entity = PeekedEntity()
    entity.send(3, 5)
    entity.send(4, 5)
    stream = Stream(entity, fromSequenceNumber="latest")
    assert stream.run() == []
    entity.send(3)
    entity.send(5)
    assert stream.run() == in_partition(3, 6) + in_partition(5, 1)


def test_a_stream_begins_where_each_entity_and_partition_is_said_to() -> None:
    entity = PeekedEntity()
    for partition in (3, 4, 5):
        entity.send(partition, 5)
    fourth = in_partition(4, 4)[0]
    named = {"ORDERS": {"3": "latest", "4": fourth, "6": -1}, "others": "latest"}
    stream = Stream(entity, queues="orders,others", startingOffsets=json.dumps(named))
    assert stream.run() == in_partition(4, 4, 5) + in_partition(5, 1, 2, 3, 4, 5)
    for partition in (3, 6):
        entity.send(partition, 1)
    assert stream.run() == in_partition(3, 6) + in_partition(6, 1), "the latest when the stream began"


@pytest.mark.parametrize("name", ["fromSequenceNumber", "startingOffsets"])
def test_a_number_for_an_entity_leaves_out_lower_partitions(name: str) -> None:
    entity = PeekedEntity()
    for partition in (3, 4, 5):
        entity.send(partition, 2)
    number = in_partition(4, 2)[0]
    said = str(number) if name == "fromSequenceNumber" else json.dumps({"orders": number})
    stream = Stream(entity, None, **{name: said})
    assert stream.run() == in_partition(4, 2) + in_partition(5, 1, 2)
    entity.send(3, 1)
    entity.send(9, 1)
    assert stream.run() == in_partition(9, 1)


@pytest.mark.parametrize(
    ("starting", "ending", "numbers"),
    [
        ("earliest", "latest", [*in_partition(0, 1, 2, 3, 4), *in_partition(2, 1, 2)]),
        ("earliest", '{"orders": {"0": 3}}', [*in_partition(0, 1, 2), *in_partition(2, 1, 2)]),
        ("earliest", '{"orders": 3}', in_partition(0, 1, 2)),
        ('{"orders": {"0": 2}}', '{"orders": {"0": 4, "2": -1}}', [*in_partition(0, 2, 3), *in_partition(2, 1, 2)]),
        ('{"orders": 9}', "latest", in_partition(2, 1, 2)),
        ('{"orders": 3}', '{"orders": 3}', []),
    ],
)
def test_reading_at_once_ends_before_the_ending_offset(starting: str, ending: str, numbers: list[int]) -> None:
    entity = PeekedEntity()
    entity.send(0, 4)
    entity.send(2, 2)
    given = {
        "servicebus.credential": "env:SB",
        "queues": "orders",
        "startingOffsets": starting,
        "endingOffsets": ending,
    }
    options = read_options(given, is_batch=True)
    ranges = ranges_of(partial(entity.peek, "orders"), "orders", options.starting, options.ending)
    assert [number for each in ranges for number in range(each.first, each.last + 1)] == numbers


def test_available_now_ends_at_what_each_partition_held() -> None:
    entity = PeekedEntity()
    entity.send(1, 3)
    entity.send(2, 1)
    stream = Stream(entity)
    stream.available_now()
    entity.send(1, 2)
    entity.send(7, 2)
    assert stream.run() == in_partition(1, 1, 2, 3) + in_partition(2, 1)
    assert stream.run() == []


def test_an_idle_stream_costs_one_peek_a_look_and_the_same_offset_comes_again() -> None:
    entity = PeekedEntity()
    entity.send(0, 10)
    stream = Stream(entity)
    stream.run()
    before, entity.peeks = stream.offset, 0
    for _ in range(1_000):
        stream.run(after_s=CHECK_S / 100)
    assert stream.offset == before
    assert entity.peeks <= 1_000 + 10 * 5


def test_a_stream_that_begins_at_an_empty_entity_counts_from_1_only_if_missing_ones_are_a_failure() -> None:
    entity = PeekedEntity()
    stream, strict = Stream(entity), Stream(entity, failOnMissing="true")
    entity.take(*entity.send(0, 3))
    entity.send(0, 1)
    before = dict(strict.offset or {}), dict(stream.offset or {})
    assert (strict.run(), stream.run()) == ([4], [4])
    ranges = [
        list(unread(positions_in(start, "orders"), positions_in(each.offset, "orders")))
        for start, each in zip(before, (strict, stream), strict=True)
    ]
    assert ranges == [[(1, 4)], [(4, 4)]]


# --- made anew ---

ANEW = "orders was deleted and made anew: the stream had read it up to number 10"


@pytest.mark.parametrize("count", [1, 9, 10, 11, 30], ids=lambda count: f"{count} new messages")
@pytest.mark.parametrize("is_taken", [False, True], ids=["as they were", "the tenth is taken"])
def test_an_entity_that_was_made_anew_is_read_from_its_first_message(count: int, is_taken: bool) -> None:
    entity = PeekedEntity()
    entity.send(0, 10)
    stream, strict = Stream(entity), Stream(entity, failOnDataLoss="true")
    stream.run()
    strict.run()
    entity.make_anew()
    numbers = entity.send(0, count)
    if is_taken and count > 9:
        entity.take(10)
        numbers.remove(10)
    with pytest.raises(TwinbusError, match=ANEW):
        strict.run(after_s=0 if count > 10 else CHECK_S)
    assert stream.run(after_s=0 if count > 10 else CHECK_S) == numbers
    more = entity.send(0, 3)
    assert stream.run() == more, "and then it goes on"
    assert stream.run() == []


def test_the_new_one_is_read_within_limits_too_and_can_be_made_anew_again(caplog: pytest.LogCaptureFixture) -> None:
    entity = PeekedEntity()
    entity.send(0, 10)
    stream = Stream(entity)
    stream.run()
    for times in (1, 2):
        entity.make_anew()
        numbers = entity.send(0, 25)
        assert [number for _ in range(3) for number in stream.run(10)] == numbers
        assert stream.run() == []
        assert len([record for record in caplog.records if "deleted and made anew" in record.message]) == times


def test_a_restart_changes_nothing_about_that() -> None:
    entity = PeekedEntity()
    entity.send(0, 10)
    stream = Stream(entity)
    stream.run()
    entity.make_anew()
    numbers = entity.send(0, 12)
    stream.restart()
    assert stream.run(5) == numbers[:5]
    stream.restart()
    assert stream.run(after_s=0) == numbers[5:]


def test_consumers_that_take_messages_in_any_order_do_not_make_an_entity_new() -> None:
    entity = PeekedEntity()
    entity.send(0, 10)
    stream = Stream(entity, failOnDataLoss="true")
    stream.run()
    entity.take(10, 9, 3)
    assert stream.run() == []
    entity.send(0, 2)
    entity.take(11)
    assert stream.run() == [12]
    entity.take(*list(entity.messages))
    assert stream.run() == []
    assert stream.run(after_s=CHECK_S) == []


def test_a_dead_letter_queue_may_hold_later_messages_under_lower_numbers() -> None:
    entity = PeekedEntity()
    entity.send(0, 3)
    entity.messages[2] = entity.messages[2]._replace(enqueued_ms=entity.now_ms + 1)  # it was sent last
    entity.now_ms += 2
    name = "orders/$DeadLetterQueue"
    stream = Stream(entity, name=name, failOnDataLoss="true")
    assert stream.run() == [1, 2, 3]
    entity.take(1, 3)
    assert stream.run() == []
    entity.make_anew()
    entity.send(0, 2)
    with pytest.raises(TwinbusError, match="made anew"):
        stream.run()


def test_a_scheduled_message_says_nothing_by_the_time_it_is_meant_for() -> None:
    entity = PeekedEntity()
    entity.send(0, 1, scheduled=True)
    entity.messages[1] = entity.messages[1]._replace(enqueued_ms=10**12)
    entity.send(0, 2)
    stream = Stream(entity, failOnDataLoss="true")
    assert stream.run() == [1, 2, 3]
    entity.take(3)
    assert stream.run() == []


def test_an_entity_is_distinguished_from_another_also_if_its_last_message_was_scheduled() -> None:
    entity = PeekedEntity()
    entity.send(0, 2)
    entity.send(0, 1, scheduled=True)
    entity.messages[3] = entity.messages[3]._replace(enqueued_ms=10**12)
    stream = Stream(entity)
    stream.run()
    entity.make_anew()
    assert stream.run() == entity.send(0, 0)
    entity.send(0, 2)
    assert stream.run() == [1, 2]


def test_a_clock_that_is_set_back_does_not_make_an_entity_new_nor_hide_that_it_is() -> None:
    entity = PeekedEntity()
    entity.send(0, 5)
    stream = Stream(entity)
    stream.run()
    entity.now_ms -= 1_000
    entity.send(0, 1)
    assert stream.run() == [6]
    entity.take(6)
    assert stream.run() == []
    entity.make_anew()
    assert stream.run() == []
    numbers = entity.send(0, 6)
    assert stream.run() == numbers, "the sixth came at another time"
    entity.make_anew()
    numbers = entity.send(0, 2)
    assert stream.run() == numbers


# --- names, and offsets of version 0.1 ---


def test_another_case_of_the_name_is_the_same_entity() -> None:
    entity = PeekedEntity()
    entity.send(0, 5)
    stream = Stream(entity)
    stream.run()
    stream.restart("Orders")
    assert stream.run() == []
    entity.send(0, 1)
    stream.restart("ORDERS")
    assert stream.run() == [6]


@pytest.mark.parametrize("name", ["orders", "Orders"])
def test_an_offset_of_version_0_1_goes_on_where_it_was(name: str) -> None:
    entity = PeekedEntity()
    entity.send(0, 8)
    stream = Stream(entity, {name: 6}, failOnDataLoss="true")
    assert stream.run() == [6, 7, 8]
    entity.make_anew()
    entity.send(0, 1)
    with pytest.raises(TwinbusError, match="deleted and made anew"):
        stream.run()


def test_an_offset_of_version_0_1_that_finds_nothing_new_stays_as_it_is() -> None:
    entity = PeekedEntity()
    entity.send(0, 5)
    stream = Stream(entity, {"orders": 6})
    assert stream.run() == []
    assert stream.offset == {"orders": 6}


def test_what_version_0_1_cannot_have_read_of_other_partitions_is_read() -> None:
    entity = PeekedEntity()
    entity.send(0, 5)
    entity.send(9, 2)
    assert Stream(entity, {"orders": 4}, failOnDataLoss="true").run() == [4, 5, *in_partition(9, 1, 2)]


def test_an_offset_of_version_0_1_in_a_partition_is_refused_or_lower_ones_are_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entity = PeekedEntity()
    entity.send(33, 4)
    entity.send(97, 5)
    start = {"orders": in_partition(97, 4)[0]}
    with pytest.raises(TwinbusError, match=r"orders has partitions, and the checkpoint is of version 0\.1"):
        Stream(entity, start, failOnDataLoss="true").run()
    stream = Stream(entity, start)
    assert stream.run() == in_partition(33, 1, 2, 3, 4) + in_partition(97, 4, 5)
    assert stream.run() == []
    assert len(caplog.records) == 1


def test_of_an_old_offset_that_may_be_of_another_entity_that_is_said() -> None:
    entity = PeekedEntity()
    entity.send(0, 3)
    with pytest.raises(TwinbusError, match=r"orders may have been deleted and made anew.*of version 0\.1"):
        Stream(entity, {"orders": 31}, failOnDataLoss="true").run()
    assert Stream(entity, {"orders": 31}).run() == [1, 2, 3]


def test_a_checkpoint_of_a_stream_that_consumed_is_refused() -> None:
    with pytest.raises(TwinbusError, match=r"the checkpoint is of a stream with mode=receive.*of its own"):
        Stream(PeekedEntity(), ReceiveOffset("a1").as_json()).run()


@pytest.mark.parametrize("said", ["soon", {"0": {"next": 5, "first": 1, "colour": "red"}}, {"0": 5}, [1]])
def test_an_offset_of_a_later_version_is_refused(said: Any) -> None:
    with pytest.raises(TwinbusError, match=r"the checkpoint says .* of orders, which this twinbus does not understand"):
        Stream(PeekedEntity(), {"orders": said}).run()


# --- whatever happens ---

ACTS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([0, 0, 3, 7]), st.integers(1, 4)),
    st.tuples(st.just("take"), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("run"), st.sampled_from([1, 2, 5, 100]), st.sampled_from([0, 1, 4, 10])),
    st.tuples(st.just("anew"), st.just(0), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0)),
)


@given(st.lists(ACTS, max_size=30))
def test_every_message_that_stays_is_read_and_without_a_new_entity_once(acts: list[tuple[str, int, int]]) -> None:
    entity = PeekedEntity()
    stream = Stream(entity)
    for act, what, count in acts:
        match act:
            case "send":
                entity.send(what, count)
            case "take" if entity.messages:
                entity.take(sorted(entity.messages)[what % len(entity.messages)])
            case "run":
                stream.run(what, after_s=count)
            case "anew":
                entity.make_anew()
            case "restart":
                stream.restart()
    while stream.run(5):
        pass
    stay = {(number, each.enqueued_ms) for number, each in entity.messages.items()}
    assert stay <= set(stream.ids)
    assert len(stream.ids) == len(set(stream.ids)) or "anew" in {act for act, _, _ in acts}
