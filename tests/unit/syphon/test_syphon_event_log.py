"""What a syphon records in a ledger."""

from __future__ import annotations

import uuid
from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st
from pump_harness import START_MS, PumpHarness, plain, with_ttl

from twinbus.amqp.codec.outcomes import ACCEPTED, Error
from twinbus.amqp.codec.types import Long, ULong, text_of
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Header, PropertyField
from twinbus.ledger.kinds import Kind
from twinbus.ledger.schema import Event
from twinbus.syphon.ledger_events import SyphonEventLog, _message_id
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump.pump import Pump


class RecordedEvents:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event, /) -> None:
        self.events.append(event)

    def messages(self, kind: Kind) -> Counter[tuple[str, str]]:
        found = [event for event in self.events if event.kind == kind]
        return Counter((event.entity, message_id) for event in found for message_id in event.message_ids)


def recorded_harness() -> tuple[PumpHarness, RecordedEvents]:
    harness, recorded = PumpHarness(queues=2), RecordedEvents()
    event_log = SyphonEventLog(recorded, ["q/0", "q/1"], "contoso", "backup")
    harness.pump = Pump(["q/0", "q/1"], SyphonOptions(), START_MS, event_log)
    for index in range(2):
        harness.pump.queue_attached(index, START_MS)
    return harness, recorded


def test_every_step_of_a_message_is_recorded_once() -> None:
    harness, recorded = recorded_harness()
    wanted: Counter[tuple[str, str]] = Counter()
    for number in range(40):
        path = "orders" if number % 3 else "invoices"
        harness.put(path, f"m{number}", queue=number % 2)
        wanted[path, f"m{number}"] += 1
    harness.run()
    for kind in (Kind.RECEIVED_FROM_BACKLOG, Kind.SENT_HOME, Kind.COMPLETED):
        assert recorded.messages(kind) == wanted
    assert len(recorded.events) < 20, "messages that travel together share an event"
    home = [event for event in recorded.events if event.kind == Kind.SENT_HOME]
    assert {event.namespace for event in home} == {"contoso"}
    assert all(len(event.sizes) == len(event.message_ids) for event in home)


def test_each_stage_has_the_size_that_the_message_has_there() -> None:
    harness, recorded = recorded_harness()
    harness.put("orders", "m1", b"x" * 100)
    harness.put("orders", "m2", b"x" * 5)
    harness.run()
    sizes = {event.kind: event.sizes for event in recorded.events if event.message_ids == ("m1", "m2")}
    assert sizes[Kind.SENT_HOME] == tuple(map(len, harness.home["orders"]))
    lent = sizes[Kind.RECEIVED_FROM_BACKLOG]
    assert min(lent) > max(5, sizes[Kind.SENT_HOME][1])
    assert sizes[Kind.COMPLETED] == lent, "it is the lent message that is completed"


def test_what_does_not_go_home_is_reported_with_its_kind() -> None:
    harness, recorded = recorded_harness()
    harness.broken["down"] = Error("amqp:not-found", "no such queue")
    harness.put("down", "m1")
    harness.put("orders", "old", age_ms=10, **with_ttl(5))
    harness.put_raw(plain("stranger"))
    harness.run(1)
    assert recorded.messages(Kind.EXPIRED) == {("orders", "old"): 1}
    assert recorded.messages(Kind.DEAD_LETTERED) == {("", "stranger"): 1}
    assert recorded.messages(Kind.RELEASED) == {("down", "m1"): 1}
    (skipped,) = [event for event in recorded.events if event.kind == Kind.DESTINATION_SKIPPED]
    assert (skipped.entity, skipped.condition) == ("down", "amqp:not-found")
    assert skipped.until_ms > START_MS


def test_an_idle_queue_is_a_long_poll_every_fifteen_minutes() -> None:
    harness, recorded = recorded_harness()
    harness.run(3_599)
    assert [event.kind for event in recorded.events] == [Kind.LONG_POLL] * 8


def test_pauses_are_reported_with_their_reason_and_their_end() -> None:
    harness, recorded = recorded_harness()
    harness.pump.pause()
    harness.run()
    harness.run()
    harness.pump.resume()
    harness.run()
    harness.pump.stop()
    harness.run()
    pauses = [(event.kind, event.reason) for event in recorded.events if event.kind in (Kind.PAUSED, Kind.RESUMED)]
    assert pauses == [(Kind.PAUSED, "paused"), (Kind.RESUMED, "")]


def test_what_is_stored_after_its_link_was_lost_is_reported_under_its_own_name() -> None:
    harness, recorded = recorded_harness()
    harness.silent.add("orders")
    harness.put("orders", "before")
    harness.run(0.1)
    harness.pump.queue_lost(0)
    harness.pump.queue_attached(0, harness.now_ms)
    harness.queues[0].lent.clear()
    harness.queues[0].next_id = 1  # a new connection counts its deliveries from the start again
    harness.put("orders", "after")
    harness.run(0.1)
    harness.pump.batches_settled("orders", [harness.sends[0].number], ACCEPTED, harness.now_ms)
    assert recorded.messages(Kind.LOCK_LOST) == {("orders", "before"): 1}
    assert recorded.messages(Kind.SENT_HOME) == {("orders", "before"): 1}


def test_a_destination_that_throttles_is_reported_as_throttled() -> None:
    harness, recorded = recorded_harness()
    harness.broken["orders"] = Error("com.microsoft:server-busy", "later")
    harness.put("orders", "m1")
    harness.run(1)
    (throttled,) = [event for event in recorded.events if event.kind == Kind.THROTTLED]
    assert (throttled.entity, throttled.until_ms) == ("orders", START_MS + 10_000)
    assert Kind.DESTINATION_SKIPPED not in [event.kind for event in recorded.events]


IDS = st.one_of(
    st.none(),
    st.text(max_size=40),
    st.text(min_size=200, max_size=300),
    st.binary(max_size=40),
    st.uuids(),
    st.integers(0, 9).map(ULong),
)


@given(
    message_id=IDS,
    subject=st.one_of(st.none(), st.text(max_size=300)),
    header=st.sampled_from([None, Header(durable=True), Header(ttl_ms=1_000, delivery_count=3)]),
    annotations=st.one_of(st.none(), st.dictionaries(st.text(max_size=100), st.integers(0, 9).map(Long), max_size=4)),
)
@example(message_id="x", subject=None, header=None, annotations={"": Long(0), "00\x80\x80": Long(0)})  # cut at its end
def test_the_id_that_is_reported_is_the_one_of_the_message(
    message_id: str | bytes | uuid.UUID | ULong | None,
    subject: str | None,
    header: Header | None,
    annotations: dict[str, Long] | None,
) -> None:
    """However it is found: near the start, or by a walk."""
    given = {PropertyField.MESSAGE_ID: message_id, PropertyField.SUBJECT: subject}
    properties = {field: value for field, value in given.items() if value is not None}
    encoded = sections.encode_message(header=header, annotations=annotations, properties=properties, data=b"x")
    assert _message_id(encoded) == text_of(message_id)
    assert _message_id(encoded[:20]) in ("", text_of(message_id))
