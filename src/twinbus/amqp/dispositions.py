"""Disposition frames by hand: there is one per message or range, and most say "accepted"."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from twinbus.amqp.composites import encode_composite
from twinbus.amqp.frames import frame
from twinbus.amqp.outcomes import ACCEPTED, Accepted, Outcome
from twinbus.amqp.performatives import Disposition, LinkRole, decode_performative
from twinbus.errors import DecodeError

_DESCRIPTOR = b"\x00\x53\x15"
_ACCEPTED = b"\x00\x53\x24\x45"
_NULL = b"\x40"
_TRUE, _FALSE = b"\x41", b"\x42"
_BOOLEANS = {b"\x41": True, b"\x42": False, b"\x56\x01": True, b"\x56\x00": False}

# A short list that says "accepted", whatever way its numbers and booleans are written:
# size, count, role, first, last, settled, state, batchable.
_BOOLEAN = rb"([\x41\x42]|\x56[\x00\x01])"
_ACCEPTING = re.compile(
    rb"\x00\x53\x15\xc0(.)(.)"
    + (_BOOLEAN + rb"(\x43|\x52.|\x70....)([\x40\x43]|\x52.|\x70....)" + _BOOLEAN)
    + rb"\x00\x53\x24\x45([\x40-\x42]|\x56[\x00\x01])?",
    re.DOTALL,
)
_RANGE = struct.Struct(">BIBI")
_NARROW = struct.Struct(">3sBBB")
_WIDE = struct.Struct(">3sBII")


class Settling(NamedTuple):
    """What a disposition says."""

    role: LinkRole
    first: int
    last: int
    settled: bool
    outcome: Outcome | None


def disposition_frame(
    channel: int, role: LinkRole, first: int, last: int, outcome: Outcome | None, settled: bool
) -> bytes:
    """A whole disposition frame."""
    state = _ACCEPTED if type(outcome) is Accepted else _NULL if outcome is None else encode_composite(outcome)
    fields = b"".join(
        (
            _TRUE if role is LinkRole.RECEIVER else _FALSE,
            _RANGE.pack(0x70, first, 0x70, last),
            _TRUE if settled else _FALSE,
            state,
            _NULL,
        )
    )
    size = len(fields) + 1
    head = _NARROW.pack(_DESCRIPTOR, 0xC0, size, 6) if size < 256 else _WIDE.pack(_DESCRIPTOR, 0xD0, size + 3, 6)
    return frame(channel, head + fields)


def read_disposition(body: bytes) -> Settling:
    """What the disposition in `body` says; DecodeError when it is malformed."""
    accepting = _ACCEPTING.fullmatch(body)
    if accepting is None:
        return _read_any(body)
    size, count, role, first, last, settled, batchable = accepting.groups()
    if size[0] != len(body) - 5 or count[0] != (5 if batchable is None else 6):
        raise DecodeError("a disposition whose list does not fit its frame")
    first_id = int.from_bytes(first[1:], "big")  # without its constructor; uint0 is nothing but one
    last_id = first_id if last == _NULL else int.from_bytes(last[1:], "big")
    return Settling(LinkRole(_BOOLEANS[role]), first_id, last_id, _BOOLEANS[settled], ACCEPTED)


def _read_any(body: bytes) -> Settling:
    found = decode_performative(body)
    if not isinstance(found, Disposition):
        raise DecodeError(f"{type(found).__name__.lower()} is no disposition")
    last = found.first if found.last is None else found.last
    return Settling(found.role, found.first, last, found.settled, found.state)
