"""What stands in front of a batch that goes home."""

from __future__ import annotations

import pytest

from twinbus.amqp import sections
from twinbus.amqp.sections import PropertyField
from twinbus.amqp.types import Value
from twinbus.pairing.letters import stamp_of
from twinbus.syphon.batches import encode_batch

KEY = "x-opt-partition-key"


def letter(key: Value) -> bytes:
    return sections.encode_message(annotations={KEY: key}, properties={PropertyField.MESSAGE_ID: "id"}, data=b"x")


def key_in_front(first: bytes) -> Value:
    payload, _ = encode_batch([first, letter("another")])
    return sections.read_annotation(payload, sections.walk(payload), KEY)


@pytest.mark.parametrize("key", ["p", b"p"])
def test_both_ways_say_the_text_of_a_partition_key_that_came_as_bytes(key: Value) -> None:
    assert key_in_front(letter(key)) == "p"
    assert stamp_of(letter(key)).partition_key == "p"


@pytest.mark.parametrize("key", [b"\xff", None])
def test_a_key_that_is_no_text_is_not_in_front(key: Value) -> None:
    assert key_in_front(letter(key)) is None
    assert stamp_of(letter(key)).partition_key is None
