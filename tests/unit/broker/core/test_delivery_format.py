"""What a receiver gets of a stored message: the short way for usual messages says the same as the long one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.decoding import decode
from twinbus.amqp.message.sections import (
    Header,
    PropertyField,
    bare_message_start,
    encode_message,
    read_annotations,
    read_delivery_annotations,
    read_header,
    walk,
)
from twinbus.broker.core import delivery_format as message
from twinbus.broker.core.delivery_format import encode_delivery, encode_settled_delivery
from twinbus.broker.store.api import MessageRow, MessageState

TOKEN = bytes(range(16))
UNTIL_MS = 1_700_000_060_000

headers = st.one_of(
    st.none(),
    st.builds(
        Header,
        durable=st.none() | st.booleans(),
        priority=st.none() | st.integers(0, 255),
        ttl_ms=st.none() | st.integers(0, 2**32 - 1),
        first_acquirer=st.none() | st.booleans(),
        delivery_count=st.integers(0, 3),
    ),
)
entries = st.none() | st.dictionaries(st.sampled_from(["a", "b", "x-opt-sequence-number"]), st.text(max_size=5))
messages = st.builds(
    encode_message,
    header=headers,
    delivery_annotations=st.none() | entries,
    annotations=st.none() | entries,
    properties=st.none() | st.fixed_dictionaries({PropertyField.MESSAGE_ID: st.text(max_size=300)}),
    application_properties=entries,
    data=st.none() | st.sampled_from([b"", b"x" * 255, b"x" * 256, b"\x00\x53\x71" * 9]),
)


def row_of(
    payload: bytes, delivery_count: int = 2, *, state: MessageState = MessageState.ACTIVE, enqueue_sequence: int = 7
) -> MessageRow:
    at_ms = 1_700_000_000_000
    return MessageRow(1, 7, state, enqueue_sequence, at_ms, None, None, delivery_count, "id", None, None, payload)


@given(messages, st.integers(0, 2**31), st.sampled_from(list(MessageState)), st.sampled_from([5, 7]))
def test_the_short_way_out_says_the_same_as_the_long_one(
    payload: bytes, delivery_count: int, state: MessageState, enqueue_sequence: int
) -> None:
    row = row_of(payload, delivery_count, state=state, enqueue_sequence=enqueue_sequence)
    assert encode_delivery(row, TOKEN, UNTIL_MS) == message._any_form(row, TOKEN, UNTIL_MS)


@pytest.mark.parametrize(
    ("state", "enqueue_sequence", "more"),
    [
        (MessageState.ACTIVE, 7, set()),
        (MessageState.DEFERRED, 7, {"x-opt-message-state"}),
        (MessageState.ACTIVE, 5, {"x-opt-enqueue-sequence-number"}),
    ],
)
def test_state_and_first_number_are_named_where_they_tell_something(
    state: MessageState, enqueue_sequence: int, more: set[str]
) -> None:
    delivered = encode_delivery(
        row_of(encode_message(data=b"x"), state=state, enqueue_sequence=enqueue_sequence), TOKEN, UNTIL_MS
    )
    usual = {"x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until"}
    assert set(read_annotations(delivered, walk(delivered))) == usual | more


@given(messages)
def test_what_is_deleted_when_received_has_delivery_annotations_even_if_empty(payload: bytes) -> None:
    delivered = encode_settled_delivery(row_of(payload))
    own, found = walk(payload), walk(delivered)
    assert found.delivery_annotations is not None
    said = {} if own.delivery_annotations is None else read_delivery_annotations(payload, own)
    assert read_delivery_annotations(delivered, found) == said


@given(messages)
def test_a_bare_message_starts_after_its_header(payload: bytes) -> None:
    layout = walk(payload)
    is_bare = layout.delivery_annotations is None and layout.message_annotations is None
    header_end = layout.header[1] if layout.header else 0
    assert bare_message_start(payload) == (header_end if is_bare else None)


def test_delivery_annotations_that_come_last_are_found() -> None:
    late = encode_message(data=b"x") + encode_message(delivery_annotations={"a": "b"})
    assert bare_message_start(late) is None
    assert b"\xa1\x01b" in encode_delivery(row_of(late), TOKEN, UNTIL_MS)[:200]


@pytest.mark.parametrize("more_fields", [0, 100])
def test_a_header_of_any_length_is_given_the_delivery_count(more_fields: int) -> None:
    fields = b"\x41" + b"\x40" * (4 + more_fields)
    header = b"\x00\x53\x70\xc0" + bytes((len(fields) + 1, len(fields))) + fields
    delivered = encode_delivery(row_of(header + encode_message(data=b"x")), TOKEN, UNTIL_MS)
    assert read_header(delivered, walk(delivered)) == Header(durable=True, delivery_count=2)


@pytest.mark.parametrize("flag", [None, False, True])
def test_flags_of_the_header_go_out_as_they_came_in(flag: bool | None) -> None:
    payload = encode_message(header=Header(durable=flag, first_acquirer=flag), data=b"x")
    delivered = encode_delivery(row_of(payload), TOKEN, UNTIL_MS)
    header, _ = decode(delivered, 3)
    assert header == [flag, None, None, flag, 2]


def test_a_message_without_a_header_is_given_no_flags() -> None:
    delivered = encode_delivery(row_of(encode_message(data=b"x")), TOKEN, UNTIL_MS)
    header, _ = decode(delivered, 3)
    assert header == [None, None, None, None, 2]
