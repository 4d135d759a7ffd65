"""Letters for one destination put together: one transfer, one answer.

A batch is what the official clients send for a list of messages: an envelope whose data sections are whole messages.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

from twinbus.amqp import sections
from twinbus.amqp.sections import PropertyField
from twinbus.amqp.types import Value
from twinbus.pairing.letters import PARTITION_KEY, partition_key_of
from twinbus.syphon.letters import Held

BATCH_FORMAT = 0x80013700
_NARROW, _WIDE = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0"
_SIZE = struct.Struct(">I").pack
HEAD_BYTES_MAX = 1_024
"""What the envelope may say of its first message: two names and a partition key, each of at most 128 characters."""
SECTION_BYTES = 8


class Batch(NamedTuple):
    """Letters on their way, until the destination answers."""

    number: int
    letters: list[Held]
    sizes: tuple[int, ...]
    """Of each letter as it goes home."""
    sent_ms: int

    @property
    def size(self) -> int:
        return sum(self.sizes)


def take_batch(waiting: deque[Held], limit_bytes: int, most: int) -> list[Held]:
    """The first letters of a line that fit together, at least one of them. They leave the line."""
    room = limit_bytes - HEAD_BYTES_MAX
    taken: list[Held] = []
    while waiting and len(taken) < most:
        room -= len(waiting[0].letter) + SECTION_BYTES  # on its way home it does not grow
        if room < 0 and taken:
            break
        taken.append(waiting.popleft())
    return taken


def encode_batch(letters: list[bytes]) -> tuple[bytes, int]:
    """Payload and message format of one transfer with these letters; one letter alone goes as it is."""
    if len(letters) == 1:
        return letters[0], 0
    parts = [_head_like(letters[0])]
    for letter in letters:
        size = len(letter)
        parts.append(_NARROW + bytes((size,)) if size < 256 else _WIDE + _SIZE(size))
        parts.append(letter)
    return b"".join(parts), BATCH_FORMAT


def _head_like(first: bytes) -> bytes:
    """The envelope's own sections: what the service needs to find the partition, as the official clients say it."""
    layout = sections.walk(first)
    fields = (PropertyField.MESSAGE_ID, PropertyField.GROUP_ID)
    values = sections.read_properties(first, layout, tuple(map(int, fields)))
    properties: dict[PropertyField, Value] = {
        field: value for field, value in zip(fields, values, strict=True) if value is not None
    }
    key = partition_key_of(first, layout)
    annotations = None if key is None else {PARTITION_KEY: key}
    head = sections.encode_message(annotations=annotations, properties=properties or None)
    return head if len(head) <= HEAD_BYTES_MAX else b""
