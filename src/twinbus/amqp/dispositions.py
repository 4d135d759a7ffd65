"""Disposition frames by hand: there is one per message or range, and most say "accepted"."""

from __future__ import annotations

import struct
from typing import NamedTuple

from twinbus.amqp.composites import encode_composite
from twinbus.amqp.frames import frame
from twinbus.amqp.outcomes import ACCEPTED, Accepted, Outcome
from twinbus.amqp.performatives import Disposition, LinkRole, decode_performative

_DESCRIPTOR = b"\x00\x53\x15"
_ACCEPTED = b"\x00\x53\x24\x45"
_NULL = b"\x40"
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
            b"\x41" if role is LinkRole.RECEIVER else b"\x42",
            _RANGE.pack(0x70, first, 0x70, last),
            b"\x41" if settled else b"\x42",
            state,
            _NULL,
        )
    )
    size = len(fields) + 1
    head = _NARROW.pack(_DESCRIPTOR, 0xC0, size, 6) if size < 256 else _WIDE.pack(_DESCRIPTOR, 0xD0, size + 3, 6)
    return frame(channel, head + fields)


def read_disposition(body: bytes) -> Settling:
    """What the disposition in `body` says; DecodeError when it is malformed."""
    found = decode_performative(body)
    if not isinstance(found, Disposition):  # pragma: no cover - the caller looked at the descriptor
        raise TypeError(type(found).__name__)
    last = found.first if found.last is None else found.last
    outcome = ACCEPTED if type(found.state) is Accepted else found.state
    return Settling(found.role, found.first, last, found.settled, outcome)
