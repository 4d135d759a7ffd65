"""What stands in front of a batch that goes home."""

from __future__ import annotations

import pytest

from twinbus.amqp.codec.types import Value
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.pairing.sending.encoded_messages import encode_batch, stamp_of

KEY = "x-opt-partition-key"


def message(key: Value) -> bytes:
    return sections.encode_message(annotations={KEY: key}, properties={PropertyField.MESSAGE_ID: "id"}, data=b"x")


def key_in_front(first: bytes) -> Value:
    payload, _ = encode_batch([first, message("another")])
    return sections.read_annotation(payload, sections.walk(payload), KEY)


@pytest.mark.parametrize("key", ["p", b"p"])
def test_both_ways_say_the_text_of_a_partition_key_that_came_as_bytes(key: Value) -> None:
    assert key_in_front(message(key)) == "p"
    assert stamp_of(message(key)).partition_key == "p"


@pytest.mark.parametrize("key", [b"\xff", None])
def test_a_key_that_is_no_text_is_not_in_front(key: Value) -> None:
    assert key_in_front(message(key)) is None
    assert stamp_of(message(key)).partition_key is None


@pytest.mark.parametrize("session_id", ["s1", b"s1", b"\xff"])
def test_a_session_id_keeps_its_type_in_front(session_id: str | bytes) -> None:
    first = sections.encode_message(properties={PropertyField.GROUP_ID: session_id}, data=b"x")
    payload, _ = encode_batch([first, message("another")])
    (in_front,) = sections.read_properties(payload, sections.walk(payload), (int(PropertyField.GROUP_ID),))
    assert in_front == session_id
    assert type(in_front) is type(session_id)
