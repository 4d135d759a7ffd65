"""The short way to open an envelope leads where the long one does."""

from __future__ import annotations

import uuid
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from seeds import examples

from twinbus.amqp.codec.types import Int, Long, Symbol, Timestamp
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Header, PropertyField
from twinbus.broker.core.delivery_format import encode_delivery
from twinbus.broker.store.api import MessageRow
from twinbus.errors import DecodeError, EnvelopeError
from twinbus.pairing.backlog.envelope import address, open_envelope, read_aliases
from twinbus.syphon.pump.backlog_message import read_envelope

TEXT = st.text(max_size=20)
VALUES: st.SearchStrategy[Any] = st.one_of(
    TEXT, st.booleans(), st.integers(0, 1000).map(Int), st.binary(max_size=20), st.just("x-ms-path"), st.none()
)
MESSAGES = st.fixed_dictionaries(
    {
        "header": st.sampled_from([None, Header(), Header(durable=True), Header(ttl_ms=5_000)]),
        "properties": st.sampled_from([None, {PropertyField.MESSAGE_ID: "m1"}, {PropertyField.GROUP_ID: "s1"}]),
        "annotations": st.sampled_from([None, {"x-opt-partition-key": "k"}, {"mine": Long(3)}]),
        "delivery_annotations": st.sampled_from([None, {"mine": Int(1)}]),
        "application_properties": st.one_of(
            st.none(), st.dictionaries(TEXT.filter(lambda key: not key.startswith("x-ms-")), VALUES, max_size=4)
        ),
    }
)


def row(payload: bytes, delivery_count: int) -> MessageRow:
    found = dict.fromkeys(MessageRow._fields, 0)
    values: dict[str, Any] = found | {
        "payload": payload,
        "delivery_count": delivery_count,
        "sequence": 7,
        "enqueue_sequence": 7,
        "enqueued_at_ms": 1_700_000_000_000,
        "dead_letter_source": None,
    }
    return MessageRow(**values)


@given(MESSAGES, st.binary(max_size=400), TEXT.filter(bool), st.integers(0, 1))
@example(
    {
        "header": None,
        "properties": None,
        "annotations": None,
        "delivery_annotations": None,
        "application_properties": None,
    },
    b"",
    "orders",
    0,
)
@settings(max_examples=examples(200))
def test_the_short_way_gives_the_same_bytes_as_the_long_one(
    parts: dict[str, Any], body: bytes, path: str, delivery_count: int
) -> None:
    stored = address(sections.encode_message(**parts, data=body), path)
    raw = encode_delivery(row(stored, delivery_count), uuid.uuid4().bytes, 1_700_000_060_000)
    aliases, home = read_envelope(raw)
    assert aliases == read_aliases(raw)
    if home is not None:
        assert home == open_envelope(raw).encoded


def test_the_short_way_is_taken_by_the_usual_message() -> None:
    message = sections.encode_message(
        header=Header(durable=True),
        properties={PropertyField.MESSAGE_ID: "m1"},
        application_properties={"a": Int(1)},
        data=b"body",
    )
    raw = encode_delivery(row(address(message, "orders"), 0), uuid.uuid4().bytes, 1_700_000_060_000)
    aliases, home = read_envelope(raw)
    assert aliases.path == "orders"
    assert home == open_envelope(raw).encoded


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_reported_as_on_the_long_way(raw: bytes) -> None:
    try:
        wanted: Any = read_aliases(raw)
    except (DecodeError, EnvelopeError) as error:
        wanted = str(error)
    try:
        found: Any = read_envelope(raw)[0]
    except (DecodeError, EnvelopeError) as error:
        found = str(error)
    assert found == wanted


def test_an_entry_in_disguise_is_not_taken_for_the_services() -> None:
    hidden = Symbol("x-opt-sequence-number")
    annotations: dict[str, Any] = {"x-opt-enqueued-time": Timestamp(1), "mine": hidden}
    encoded = sections.encode_message(annotations=annotations, application_properties={"x-ms-path": "orders"}, data=b"")
    assert read_envelope(encoded)[1] is None
    assert b"mine" in open_envelope(encoded).encoded


def test_a_name_that_begins_like_one_of_the_services_is_another() -> None:
    """Read as if it ended there, the rest would be a value and one more entry."""
    odd = {"x-opt-message-stateT\x05": Symbol("x-opt-message-stateT\x07")}
    encoded = sections.encode_message(annotations=odd, application_properties={"x-ms-path": "orders"}, data=b"")
    assert read_envelope(encoded) == (read_aliases(encoded), None)
