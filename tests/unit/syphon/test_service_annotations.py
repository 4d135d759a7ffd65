"""When a message was enqueued and how long it is locked, whatever its sender wrote into the same annotations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pump_harness import START_MS, PumpHarness, backlogged, delivered, header_ttl, with_ttl

from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.codec.types import Symbol, Timestamp
from twinbus.amqp.message import sections
from twinbus.transport.links.annotations import enqueued_ms, locked_until_ms

NAMES = "x-opt-enqueued-time", "x-opt-locked-until"
SINCE_MS, UNTIL_MS = START_MS - 5_000, START_MS + 60_000
LARGE = {"x-opt-mine": "v" * 3_000}


def looks_like(name: str) -> bytes:
    """The bytes of an entry with this name."""
    return encode(Symbol(name)) + encode(Timestamp(1))


def encoded(own: dict[str, Any], **parts: Any) -> bytes:
    return delivered(backlogged("orders", "id", annotations=own, **parts), 7, SINCE_MS, UNTIL_MS)


def times(message: bytes) -> tuple[int | None, int | None]:
    return enqueued_ms(message), locked_until_ms(message)


def test_times_are_found_behind_large_annotations_of_the_sender() -> None:
    assert times(encoded(LARGE)) == (SINCE_MS, UNTIL_MS)


@pytest.mark.parametrize("room", [0, 200, 3_000])
def test_bytes_in_a_value_of_the_sender_are_not_taken_for_a_time_of_the_service(room: int) -> None:
    own = {"x-opt-copy": b"".join(map(looks_like, NAMES)) + bytes(room)}
    assert times(encoded(own)) == (SINCE_MS, UNTIL_MS)


def test_a_map_that_the_sender_nested_is_not_taken_for_the_services() -> None:
    own = {"x-opt-copy": {Symbol(name): Timestamp(1) for name in NAMES}}
    assert times(encoded(own)) == (SINCE_MS, UNTIL_MS)


def test_a_copy_of_the_entry_in_the_body_changes_nothing() -> None:
    assert times(encoded({}, body=looks_like(NAMES[0]) + looks_like(NAMES[1]))) == (SINCE_MS, UNTIL_MS)


def test_what_is_not_written_or_of_another_type_is_no_time() -> None:
    assert times(backlogged("orders", "id", bytes(3_000))) == (None, None)
    assert times(sections.encode_message(annotations=dict.fromkeys(NAMES, "soon"), data=b"")) == (None, None)


@given(st.binary(max_size=80), st.sampled_from(NAMES), st.binary(max_size=80))
def test_bytes_that_are_no_message_have_no_fault_but_that(front: bytes, name: str, back: bytes) -> None:
    for raw in (front, front + looks_like(name)[:-4] + back, front + looks_like(name) + back):
        assert all(each is None or isinstance(each, int) for each in times(raw))


VALUES = st.text(max_size=20) | st.integers(0, 3_000).map(bytes) | st.sampled_from([looks_like(name) for name in NAMES])
OWN = st.dictionaries(st.text("abc", min_size=1).map("x-opt-my-{}".format), VALUES, max_size=4)


@given(OWN, st.binary(max_size=60))
def test_times_are_those_that_a_walk_finds(own: dict[str, Any], body: bytes) -> None:
    message = encoded(own, body=body)
    layout = sections.walk(message)
    assert times(message) == tuple(sections.read_annotation(message, layout, name) for name in NAMES)


def test_time_to_live_runs_on_for_a_message_with_large_annotations() -> None:
    harness = PumpHarness()
    harness.put("orders", "late", age_ms=8_000, annotations=LARGE, **with_ttl(3_000))
    harness.put("orders", "in time", age_ms=8_000, annotations=LARGE, **with_ttl(60_000))
    harness.run(1)
    assert harness.ids_at("orders") == ["in time"]
    assert header_ttl(harness.home["orders"][0]) == 52_000


def test_a_message_with_large_annotations_that_came_after_the_cutoff_stays() -> None:
    harness = PumpHarness(enqueued_before=datetime.fromtimestamp(START_MS / 1000, UTC) - timedelta(seconds=10))
    harness.put("orders", "before", age_ms=20_000, annotations=LARGE)
    harness.put("orders", "after", age_ms=1_000, annotations=LARGE)
    harness.run(1)
    assert harness.ids_at("orders") == ["before"]
    assert harness.left == 1
