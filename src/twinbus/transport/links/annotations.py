"""What the service writes into the annotations of a message it delivers or shows."""

from __future__ import annotations

import struct

from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message.sections import read_annotation, walk
from twinbus.errors import DecodeError

_TIMESTAMP = struct.Struct(">q").unpack_from
_SIZE = struct.Struct(">I").unpack_from
_ENQUEUED = "x-opt-enqueued-time"
_LOCKED_UNTIL = "x-opt-locked-until"
_ENTRIES = {name: bytes((0xA3, len(name))) + name.encode() + b"\x83" for name in (_ENQUEUED, _LOCKED_UNTIL)}
_ANNOTATIONS = b"\x00\x53\x72"
_SEARCHED_BYTES = 2_048
"""Usually the service's annotations come first; those of a sender may stand before them."""
_ACTIVE, _SCHEDULED = 0, 2


def sequence_of(message: bytes) -> int:
    """The sequence number. Raises `DecodeError` if there is none."""
    value = read_annotation(message, walk(message), "x-opt-sequence-number")
    if not isinstance(value, int):
        raise DecodeError("a peeked message has no sequence number")
    return int(value)


def is_waiting(message: bytes) -> bool:
    """Whether a receiver will get the message: it is neither scheduled nor deferred."""
    return read_annotation(message, walk(message), "x-opt-message-state") in (None, _ACTIVE)


def is_scheduled(message: bytes) -> bool:
    return bool(read_annotation(message, walk(message), "x-opt-message-state") == _SCHEDULED)


def enqueued_ms(message: bytes) -> int | None:
    """When the queue stored the message, by the namespace's clock."""
    return _time(message, _ENQUEUED)


def locked_until_ms(message: bytes) -> int | None:
    """When its lock ends, by the namespace's clock."""
    return _time(message, _LOCKED_UNTIL)


def _time(message: bytes, name: str) -> int | None:
    """Searches for the bytes of the entry: decoding all annotations costs ten times as much, for every message."""
    entry = _ENTRIES[name]
    at = message.find(entry, 0, _SEARCHED_BYTES)
    # A second one means that a value of the sender's looks like an entry: only decoding tells which is which.
    if at < 0 or message.find(entry, at + 1, _annotations_end(message, at)) >= 0:
        return _decoded_time(message, name)
    value = at + len(entry)
    return int(_TIMESTAMP(message, value)[0]) if value + 8 <= len(message) else None


def _annotations_end(message: bytes, inside: int) -> int:
    """Where the section ends that begins before the byte at `inside`."""
    start = message.find(_ANNOTATIONS, 0, inside)
    if start >= 0 and message[start + 3] == 0xC1:
        return start + 5 + message[start + 4]
    return start + 8 + int(_SIZE(message, start + 4)[0]) if start >= 0 else len(message)


def _decoded_time(message: bytes, name: str) -> int | None:
    try:
        value = read_annotation(message, walk(message), name)
    except DecodeError:  # reported where more of the message is read
        return None
    return int(value) if isinstance(value, Timestamp) else None
