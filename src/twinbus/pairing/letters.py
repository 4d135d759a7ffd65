"""Letters on their way: how many fit into one batch.

A batch is one message whose data sections are whole letters. In front of them stands a stamp, a copy of the first
letter's id, session id and partition key, as the official clients write it: the service finds a partition by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twinbus.amqp.sections import Layout, PropertyField, read_annotation, read_properties, walk
from twinbus.amqp.types import Value, encode
from twinbus.errors import EnvelopeError, TooLargeForDetour
from twinbus.pairing.envelope import address, open_envelope

PARTITION_KEY = "x-opt-partition-key"
BATCH_LETTERS_MAX = 4_500
"""Namespaces refuse a batch with more messages, however small they are."""

_SHORT_LETTER_BYTES = 256
_SECTION_START_BYTES = 5, 8
"""What a batch adds to a letter shorter than that, and to any other (the official client's own rule)."""

_FIELDS_START_BYTES = 3 + 9 + 11
"""Descriptor, list and thirteen fields of the stamp, all but the two it has."""
_ANNOTATIONS_START_BYTES = 3 + 9 + 2 + len(PARTITION_KEY)

_STAMPED_FIELDS = int(PropertyField.MESSAGE_ID), int(PropertyField.GROUP_ID)


class Stamp(NamedTuple):
    """What stands in front of a batch, copied from the first letter in it; None is what that does not say."""

    message_id: Value = None
    session_id: str | None = None
    partition_key: str | None = None

    @property
    def size_bytes(self) -> int:
        """At most so many bytes of the batch."""
        message_id, session_id, key = self
        size = 0
        if message_id is not None or session_id is not None:
            size += _FIELDS_START_BYTES + len(encode(message_id)) + len(encode(session_id))
        return size if key is None else size + _ANNOTATIONS_START_BYTES + len(encode(key))


def stamp_of(letter: bytes) -> Stamp:
    """The stamp of a batch that begins with this letter."""
    layout = walk(letter)
    message_id, session_id = read_properties(letter, layout, _STAMPED_FIELDS)
    return Stamp(message_id, _text(session_id), partition_key_of(letter, layout))


def partition_key_of(letter: bytes, layout: Layout) -> str | None:
    """The partition key as a batch repeats it; None if there is none, or none that could be one."""
    return _text(read_annotation(letter, layout, PARTITION_KEY)) if layout.message_annotations else None


def _text(value: Value) -> str | None:
    """The official Python client sends on what it received with bytes for texts."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None


def size_in_batch(letter: bytes) -> int:
    """How many bytes of a batch the letter takes."""
    return len(letter) + _SECTION_START_BYTES[len(letter) >= _SHORT_LETTER_BYTES]


def size_alone(letter: bytes) -> int:
    """How many bytes a batch has that holds only this letter."""
    return stamp_of(letter).size_bytes + size_in_batch(letter)


def fits(letter: bytes, path: str, limit_bytes: int) -> bool:
    """Whether the letter, addressed to `path`, can be put into a backlog queue that takes so many bytes at once."""
    return size_alone(address(letter, path)) <= limit_bytes


def pack(letters: Iterable[bytes], limit_bytes: int) -> list[list[bytes]]:
    """As few batches as fit, the letters in their order; no batch is empty.

    Raises `TooLargeForDetour` if one of them does not fit even alone.
    """
    batches: list[list[bytes]] = []
    size = limit_bytes + 1  # of the last batch: the first letter opens one
    for letter in letters:
        size += size_in_batch(letter)
        if size <= limit_bytes and len(batches[-1]) < BATCH_LETTERS_MAX:
            batches[-1].append(letter)
            continue
        size = size_alone(letter)
        if size > limit_bytes:
            raise TooLargeForDetour(size, limit_bytes, size - _size_at_home(letter))
        batches.append([letter])
    return batches


def _size_at_home(letter: bytes) -> int:
    try:
        return len(open_envelope(letter).letter)
    except EnvelopeError:  # it was not addressed, then nothing but the batch makes it longer
        return len(letter)
