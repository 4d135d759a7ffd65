"""Encoded messages on their way: how many fit into one batch.

A batch is one message whose data sections are whole messages. In front of them stands a stamp, a copy of the first
message's id, session id and partition key, as the official clients write it: the service finds a partition by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.codec.types import Value
from twinbus.amqp.message.sections import Layout, PropertyField, encode_message, read_annotation, read_properties, walk
from twinbus.errors import EnvelopeError, ReservedProperty, TooLargeForDetour
from twinbus.pairing.backlog.envelope import address, open_envelope, reserved_names_in

PARTITION_KEY = "x-opt-partition-key"
BATCH_MESSAGES_MAX = 4_500
"""Namespaces refuse a batch with more messages, however small they are."""
BATCH_FORMAT = 0x80013700
"""The message format of a transfer with a batch."""
HEAD_BYTES_MAX = 1_024
"""The most that stands in front of a batch: two ids and a partition key, each of at most 128 characters."""
SECTION_BYTES = 8
"""The most that a batch adds to each message."""

_SHORT_MESSAGE_BYTES = 256
_SECTION_START_BYTES = 5, 8
"""What a batch adds to a message shorter than that, and to any other (the official client's own rule)."""

_NARROW_DATA, _WIDE_DATA = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0"

_FIELDS_START_BYTES = 3 + 9 + 11
"""Descriptor, list and thirteen fields of the stamp, all but the two it has."""
_ANNOTATIONS_START_BYTES = 3 + 9 + 2 + len(PARTITION_KEY)

_STAMPED_FIELDS = int(PropertyField.MESSAGE_ID), int(PropertyField.GROUP_ID)


class Stamp(NamedTuple):
    """What stands in front of a batch, copied from the first message in it; None is what that does not say."""

    message_id: Value = None
    session_id: str | None = None
    partition_key: str | None = None

    @property
    def size_bytes(self) -> int:
        """Its share of the batch, at most."""
        message_id, session_id, key = self
        size = 0
        if message_id is not None or session_id is not None:
            size += _FIELDS_START_BYTES + len(encode(message_id)) + len(encode(session_id))
        return size if key is None else size + _ANNOTATIONS_START_BYTES + len(encode(key))


def stamp_of(encoded: bytes) -> Stamp:
    """The stamp of a batch that begins with this message."""
    layout = walk(encoded)
    message_id, session_id = read_properties(encoded, layout, _STAMPED_FIELDS)
    return Stamp(message_id, _text(session_id), partition_key_of(encoded, layout))


def partition_key_of(encoded: bytes, layout: Layout) -> str | None:
    """The partition key as a batch repeats it; None if there is none, or none that could be one."""
    return _text(read_annotation(encoded, layout, PARTITION_KEY)) if layout.message_annotations else None


def _text(value: Value) -> str | None:
    """The official Python client sends on what it received with bytes for texts."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None


def size_in_batch(encoded: bytes) -> int:
    """How many bytes of a batch the message takes."""
    return len(encoded) + _SECTION_START_BYTES[len(encoded) >= _SHORT_MESSAGE_BYTES]


def size_alone(encoded: bytes) -> int:
    """How many bytes a batch has that holds only this message."""
    return stamp_of(encoded).size_bytes + size_in_batch(encoded)


def pack(encoded_messages: Iterable[bytes], limit_bytes: int) -> list[list[bytes]]:
    """As few batches as fit, the messages in their order; no batch is empty.

    Raises `TooLargeForDetour` if one of them does not fit even alone.
    """
    batches: list[list[bytes]] = []
    size = limit_bytes + 1  # of the last batch: the first message opens one
    for encoded in encoded_messages:
        size += size_in_batch(encoded)
        if size <= limit_bytes and len(batches[-1]) < BATCH_MESSAGES_MAX:
            batches[-1].append(encoded)
            continue
        size = size_alone(encoded)
        if size > limit_bytes:
            raise TooLargeForDetour(size, limit_bytes, size - _size_at_home(encoded))
        batches.append([encoded])
    return batches


def pack_for_backlog(encoded_messages: Sequence[bytes], path: str, limit_bytes: int) -> tuple[tuple[bytes, ...], ...]:
    """The messages in envelopes, bound for the entity at `path`, in as few batches as fit.

    Raises `ReservedProperty` with the names of all of them, or `TooLargeForDetour`.
    """
    reserved = dict.fromkeys(name for message in encoded_messages for name in reserved_names_in(message))
    if reserved:
        raise ReservedProperty(tuple(reserved))
    packed = pack([address(message, path) for message in encoded_messages], limit_bytes)
    return tuple([tuple(batch) for batch in packed])


def _size_at_home(encoded: bytes) -> int:
    try:
        return len(open_envelope(encoded).encoded)
    except EnvelopeError:  # it was not addressed, then nothing but the batch makes it longer
        return len(encoded)


def encode_batch(messages: list[bytes]) -> tuple[bytes, int]:
    """Payload and message format of one transfer with these messages; one message alone goes as it is."""
    if len(messages) == 1:
        return messages[0], 0
    layout = walk(messages[0])
    fields = PropertyField.MESSAGE_ID, PropertyField.GROUP_ID  # both keep their AMQP type
    values = zip(fields, read_properties(messages[0], layout, _STAMPED_FIELDS), strict=True)
    properties = {field: value for field, value in values if value is not None}
    key = partition_key_of(messages[0], layout)
    annotations = None if key is None else {PARTITION_KEY: key}
    head = encode_message(annotations=annotations, properties=properties or None)
    parts = [head if len(head) <= HEAD_BYTES_MAX else b""]
    for message in messages:
        size = len(message)
        parts.append(_NARROW_DATA + bytes((size,)) if size < _SHORT_MESSAGE_BYTES else _WIDE_DATA + size.to_bytes(4))
        parts.append(message)
    return b"".join(parts), BATCH_FORMAT
