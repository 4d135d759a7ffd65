"""Packing messages into batches, with the official client's own batch as a second opinion."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.message import BatchMessage, Properties
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.errors import TooLargeForDetour
from twinbus.pairing.backlog.envelope import address
from twinbus.pairing.sending.encoded_messages import (
    BATCH_MESSAGES_MAX,
    Stamp,
    pack,
    size_alone,
    size_in_batch,
    stamp_of,
)


def message(
    size: int, message_id: str | None = "id", partition_key: str | None = None, session_id: str | None = None
) -> bytes:
    fields = {PropertyField.MESSAGE_ID: message_id, PropertyField.GROUP_ID: session_id}
    return encode_message(
        annotations=None if partition_key is None else {"x-opt-partition-key": partition_key},
        properties={field: value for field, value in fields.items() if value is not None} or None,
        data=bytes(size),
    )


def size_on_the_wire(messages: list[bytes]) -> int:
    stamp = stamp_of(messages[0])
    annotations: dict[str | bytes, Any] | None = (
        None if stamp.partition_key is None else {"x-opt-partition-key": stamp.partition_key}
    )
    properties = Properties(message_id=stamp.message_id, group_id=stamp.session_id)
    out = bytearray()
    encode_payload(
        out,
        BatchMessage(
            message_annotations=annotations,
            properties=None if properties == Properties() else properties,
            data=messages,
        ),
    )
    return len(out)


def test_messages_that_fit_together_make_one_batch() -> None:
    messages = [message(10), message(20), message(30)]
    assert pack(messages, 1_000) == [messages]


def test_no_batch_has_more_messages_than_a_namespace_takes() -> None:
    messages = [message(0)] * (2 * BATCH_MESSAGES_MAX + 1)
    assert [len(batch) for batch in pack(messages, 10_000_000)] == [BATCH_MESSAGES_MAX, BATCH_MESSAGES_MAX, 1]


def test_no_messages_make_no_batch() -> None:
    assert pack([], 1_000) == []


def test_a_batch_is_filled_to_the_last_byte() -> None:
    messages = [message(300), message(10)]
    exact = size_alone(messages[0]) + size_in_batch(messages[1])
    assert pack(messages, exact) == [messages]
    assert pack(messages, exact - 1) == [messages[:1], messages[1:]]


def test_a_message_that_fits_no_batch_is_refused_with_its_numbers() -> None:
    big = message(900)
    sent = address(big, "orders")
    limit = size_alone(sent) - 1
    with pytest.raises(TooLargeForDetour) as refused:
        pack([message(1), sent], limit)
    error = refused.value
    assert (error.size_bytes, error.limit_bytes) == (limit + 1, limit)
    assert error.overhead_bytes == error.size_bytes - len(big) > len(sent) - len(big)
    assert pack([sent], limit + 1) == [[sent]]


def test_a_message_that_was_never_addressed_is_refused_too() -> None:
    big = message(900)
    with pytest.raises(TooLargeForDetour) as refused:
        pack([big], 900)
    assert refused.value.overhead_bytes == size_alone(big) - len(big)


def test_a_stamp_repeats_what_the_first_message_says() -> None:
    assert stamp_of(message(1, "id-1", "key", "session")) == Stamp("id-1", "session", "key")
    assert stamp_of(message(1, None)) == Stamp()
    assert Stamp().size_bytes == 0


TEXTS = st.none() | st.text(max_size=20) | st.text("aé漢", min_size=100, max_size=128)
MESSAGES = st.builds(message, st.integers(0, 400), TEXTS, TEXTS, TEXTS)


@given(st.lists(MESSAGES, max_size=12), st.integers(0, 3_000))
def test_batches_keep_the_order_fit_and_could_not_be_fewer(messages: list[bytes], more: int) -> None:
    limit = max(map(size_alone, messages), default=0) + more
    batches = pack(messages, limit)
    assert [each for batch in batches for each in batch] == messages
    assert all(batch and size_on_the_wire(batch) <= limit for batch in batches)
    for batch, following in pairwise(batches):
        together = size_alone(batch[0]) + sum(map(size_in_batch, [*batch[1:], following[0]]))
        assert together > limit


@given(MESSAGES, st.lists(MESSAGES, max_size=3))
def test_a_size_is_never_less_than_the_official_client_writes(first: bytes, others: list[bytes]) -> None:
    counted = size_alone(first) + sum(map(size_in_batch, others))
    assert counted - 12 <= size_on_the_wire([first, *others]) <= counted
