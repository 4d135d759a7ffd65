"""Encoded messages as they arrive: bytes, and the few facts in them that decide what becomes of them.

A message is stored as it was sent; `core/delivery_format.py` adds what the service knows of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from twinbus.amqp.codec.types import Int, Timestamp, text_of
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Layout, PropertyField
from twinbus.errors import ArgumentError, DecodeError, MessageTooLarge

BATCH_FORMAT = 0x80013700
"""The vendor's message format of an envelope whose data sections are whole messages."""

SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"
PARTITION_KEY = "x-opt-partition-key"
HOPS = "x-opt-forward-hops"
"""How often a message was forwarded, where it matters later; it is never delivered."""
HEADER_BYTES_MAX = 64 * 1024
"""Everything but the body."""
PROPERTY_BYTES_MAX = 32 * 1024
"""One application property."""
BODY_SECTIONS_MAX = 10_000
"""Sections that the body of a message may consist of: looking at more would keep others waiting."""
NAME_LENGTH_MAX = 128
"""Of a message id, a session id and a partition key."""
PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"
_HOPS_BYTES = HOPS.encode("ascii")
_DECIDING_FIELDS = tuple(map(int, (PropertyField.MESSAGE_ID, PropertyField.CONTENT_TYPE, PropertyField.GROUP_ID)))


class Arrival(NamedTuple):
    """A message that was sent, before it has a sequence number."""

    payload: bytes
    message_id: str | None
    session_id: str | None
    ttl_ms: int | None
    due_at_ms: int | None
    """When it asks to be enqueued; None: at once."""
    is_ping: bool = False
    """It only asks whether the entity can be sent to: checked like any message, and then dropped."""
    partition_key: str | None = None
    properties_end: int = sys.maxsize
    """Where its application properties end, in the payload, at the latest; 0: it has none."""


def read_arrival(payload: bytes, new_message_id: Callable[[], str]) -> Arrival:
    """The facts that decide how a message is handled; raises `DecodeError` or `MessageTooLarge`.

    One without an id is given a new one: some clients cannot settle a message that has none.
    """
    layout = sections.walk(payload, BODY_SECTIONS_MAX)
    if len(payload) > PROPERTY_BYTES_MAX:
        _check_header_size(payload, layout)
    message_id, content_type, session_id = sections.read_properties(payload, layout, _DECIDING_FIELDS)
    ttl_ms = sections.read_header(payload, layout).ttl_ms if layout.header else None
    due_at_ms = partition_key = None
    if layout.message_annotations:
        partition_key = _partition_key(sections.read_annotation(payload, layout, PARTITION_KEY))
        due_at_ms = sections.read_annotation(payload, layout, SCHEDULED_TIME)
        if due_at_ms is not None and not isinstance(due_at_ms, Timestamp):
            raise DecodeError(f"{SCHEDULED_TIME} must be a timestamp, got {type(due_at_ms).__name__}")
    if layout.message_annotations or layout.delivery_annotations:
        # now: what cannot be read could not be delivered later
        sections.check_map(payload, layout.message_annotations)
        if layout.delivery_annotations:
            sections.read_delivery_annotations(payload, layout)
    properties_end = 0 if layout.application_properties is None else layout.application_properties[1]
    if message_id is None:
        message_id = new_message_id()
        read_bytes = len(payload)
        payload = sections.rewrite(payload, layout, set_properties={PropertyField.MESSAGE_ID: message_id})
        properties_end += len(payload) - read_bytes if properties_end else 0
    name = message_id if isinstance(message_id, str) else text_of(message_id)
    if session_id is not None and not isinstance(session_id, str):
        raise DecodeError(f"group-id must be a string, got {type(session_id).__name__}")
    if (
        len(name) > NAME_LENGTH_MAX
        or (session_id is not None and len(session_id) > NAME_LENGTH_MAX)
        or (partition_key is not None and len(partition_key) > NAME_LENGTH_MAX)
    ):
        raise ArgumentError(f"message ids, session ids and partition keys have at most {NAME_LENGTH_MAX} characters")
    due = None if due_at_ms is None else int(due_at_ms)
    is_ping = content_type == PING_CONTENT_TYPE
    # What `Arrival(...)` calls, without a call more: this is done for every message.
    return tuple.__new__(Arrival, (payload, name, session_id, ttl_ms, due, is_ping, partition_key, properties_end))


class MessageReader:
    """Reads messages within the limits of a namespace."""

    def __init__(self, message_bytes_max: int, new_message_id: Callable[[], str]) -> None:
        self._message_bytes_max = message_bytes_max
        self._new_message_id = new_message_id

    def read(self, payload: bytes) -> Arrival:
        """Raises `MessageTooLarge` or `DecodeError`."""
        self.check_size(payload)
        return read_arrival(payload, self._new_message_id)

    def check_size(self, payload: bytes) -> None:
        if len(payload) > self._message_bytes_max:
            text = f"the message has {len(payload)} bytes, at most {self._message_bytes_max} are allowed"
            raise MessageTooLarge(text)


def _partition_key(given: object) -> str | None:
    """A client that sends on what it received has bytes where there was a string."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, bytes):
        with suppress(UnicodeDecodeError):
            return given.decode()
    raise DecodeError(f"{PARTITION_KEY} must be a string, got {type(given).__name__}")


def check_header_size(payload: bytes) -> None:
    """Raise `MessageTooLarge` if a message says more about itself than a message may."""
    _check_header_size(payload, sections.walk(payload))


def _check_header_size(payload: bytes, layout: Layout) -> None:
    spans = (layout.properties, layout.application_properties, layout.message_annotations)
    size = sum(span[1] - span[0] for span in spans if span is not None)
    if size > HEADER_BYTES_MAX:
        raise MessageTooLarge(f"the message's properties have {size} bytes, at most {HEADER_BYTES_MAX} are allowed")
    if size > PROPERTY_BYTES_MAX and layout.application_properties is not None:
        for name, size in sections.large_values(payload, layout.application_properties, PROPERTY_BYTES_MAX):
            text = f"the property {name!r:.60} has {size} bytes, at most {PROPERTY_BYTES_MAX} are allowed"
            raise MessageTooLarge(text)


def time_to_live_ms(payload: bytes) -> int | None:
    """How long a message says it may live; None if it does not say."""
    layout = sections.walk(payload)
    return sections.read_header(payload, layout).ttl_ms if layout.header else None


def scheduled_time_ms(payload: bytes) -> int | None:
    """When a message asks to be enqueued; None: at once."""
    due_at_ms = sections.read_annotation(payload, sections.walk(payload), SCHEDULED_TIME)
    return int(due_at_ms) if isinstance(due_at_ms, Timestamp) else None


def hops_of(payload: bytes) -> int:
    """How often a message was forwarded, as far as it is written on it."""
    if _HOPS_BYTES not in payload:
        return 0
    layout = sections.walk(payload)
    hops = sections.read_annotation(payload, layout, HOPS) if layout.message_annotations else None
    return max(0, int(hops)) if isinstance(hops, int) else 0  # a sender may have written anything


def with_hops(payload: bytes, hops: int) -> bytes:
    """The message with that number written on it."""
    return sections.rewrite(payload, set_annotations={HOPS: Int(hops)})


def partition_key_of(payload: bytes) -> str | None:
    """To which partition a stored message belongs, if it says so."""
    layout = sections.walk(payload)
    return (
        _partition_key(sections.read_annotation(payload, layout, PARTITION_KEY)) if layout.message_annotations else None
    )


def unpack_batch(envelope: bytes, most: int) -> list[bytes]:
    """The messages of a batch, in order; raises `MessageTooLarge` if they are more than `most`.

    What the envelope says beside them is only a copy of the first.
    """
    try:
        layout = sections.walk(envelope, most)
    except sections.TooManySections:
        raise MessageTooLarge(f"a batch has at most {most} messages: send the rest in another one") from None
    if layout.body_kind != "data":
        raise DecodeError("a batch must consist of data sections, one for each message")
    return list(sections.data_sections(envelope, layout))


def with_properties(payload: bytes, properties: dict[str, Any] | None) -> bytes:
    """The message with these application properties set; everything else keeps its bytes.

    One whose properties cannot be read keeps them: they are not checked when it is sent, and a message that could
    neither be abandoned nor dead-lettered would block its queue.
    """
    if not properties:
        return payload
    try:
        return sections.rewrite(payload, set_application_properties=properties)
    except DecodeError:
        return payload


def without_properties(payload: bytes, names: list[str]) -> bytes:
    """The message without these application properties, if it can be read; everything else keeps its bytes."""
    try:
        return sections.rewrite(payload, remove_application_properties=names) if names else payload
    except DecodeError:
        return payload


def properties_of(payload: bytes) -> dict[str, Any]:
    """The application properties; raises `DecodeError` if they cannot be read."""
    return sections.read_application_properties(payload, sections.walk(payload))
