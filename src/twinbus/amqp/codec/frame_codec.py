"""Transfer and disposition frames, coded by hand: there is at least one per message, so no object is built.

`read_transfer` goes through the fields in order without looking back; a value that would reach over the end of the
list is found by one comparison at the end. `TransferWriter` keeps the parts of the frame that never change. Most
dispositions say "accepted" and are recognised by one pattern; `composites` decodes the others.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from twinbus.amqp.codec.composites import encode_composite, read_composite
from twinbus.amqp.codec.decoding import decode, skip
from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.codec.frames import frame
from twinbus.amqp.codec.outcomes import ACCEPTED, Accepted, DeliveryState, TransactionalState
from twinbus.amqp.codec.performatives import Disposition, LinkRole, decode_performative
from twinbus.amqp.codec.types import UInt
from twinbus.errors import DecodeError

TAG_BYTES_MAX = 32
TRANSACTION_ID_BYTES_MAX = 256
"""Ours have 8; those of other makers are passed on."""

TransferFields = tuple[int, int | None, bytes | None, int | None, bool, bool, bool, int, bytes | None]
"""(handle, delivery id, tag, message format, settled, more, aborted, where the payload starts, transaction)"""

_U32 = struct.Struct(">I").unpack_from
_SIZE_AND_COUNT = struct.Struct(">II").unpack_from
_NULL, _TRUE, _FALSE, _UINT_ZERO, _SMALL_UINT, _UINT = 0x40, 0x41, 0x42, 0x43, 0x52, 0x70

_TRANSACTIONAL = (b"\x00\x53\x34", b"\x00\xa3\x1damqp:transactional-state:list", b"\x00\x80\0\0\0\0\0\0\0\x34")
"""How the state of a delivery begins that is part of a transaction, in all its spellings."""

# The fields after `more` (settle mode, state, resume, aborted, batchable) when none of them is set.
_PLAIN_TAILS = frozenset(
    bytes(tail[:length])
    for tail in product(b"\x40", b"\x40", b"\x40\x42", b"\x40\x42", b"\x40\x41\x42")
    for length in range(6)
)


def read_transfer(buffer: bytes, at: int, end: int) -> TransferFields:
    """The fields of the transfer whose list starts at `at` in a frame that ends at `end`."""
    try:
        fields = _read_fields(buffer, at, end)
    except (IndexError, struct.error):
        raise DecodeError("transfer is truncated") from None
    if fields[7] > end:
        raise DecodeError("transfer exceeds its frame")
    return fields


def _read_fields(buffer: bytes, at: int, end: int) -> TransferFields:
    # One long function on purpose: this runs per frame, and calls are expensive.
    constructor = buffer[at]
    if constructor == 0xC0:
        fields_end = at + 2 + buffer[at + 1]
        count = buffer[at + 2]
        at += 3
    elif constructor == 0xD0:
        size, count = _SIZE_AND_COUNT(buffer, at + 1)
        fields_end = at + 5 + size
        at += 9
    else:
        raise DecodeError("a transfer needs a list of fields with a handle")
    if not 0 < count < 12:
        raise DecodeError(f"a transfer has 1 to 11 fields, got {count}")
    delivery_id: int | None = None
    tag: bytes | None = None
    message_format: int | None = None
    settled = more = aborted = False
    transaction: bytes | None = None

    code = buffer[at]
    if code == _SMALL_UINT:
        handle = buffer[at + 1]
        at += 2
    elif code == _UINT_ZERO:
        handle = 0
        at += 1
    elif code == _UINT:
        handle = _U32(buffer, at + 1)[0]
        at += 5
    else:
        raise DecodeError("transfer.handle is not a uint")

    if count > 1:
        code = buffer[at]
        if code == _UINT:
            delivery_id = _U32(buffer, at + 1)[0]
            at += 5
        elif code == _SMALL_UINT:
            delivery_id = buffer[at + 1]
            at += 2
        elif code == _UINT_ZERO:
            delivery_id = 0
            at += 1
        elif code == _NULL:
            at += 1
        else:
            raise DecodeError("transfer.delivery-id is not a uint")
    if count > 2:
        code = buffer[at]
        if code == 0xA0:
            tag_end = at + 2 + buffer[at + 1]
            tag = buffer[at + 2 : tag_end]
            at = tag_end
        elif code == _NULL:
            at += 1
        elif code == 0xB0:
            tag_end = at + 5 + int(_U32(buffer, at + 1)[0])
            tag = buffer[at + 5 : min(tag_end, end)]
            at = tag_end
        else:
            raise DecodeError("transfer.delivery-tag is not binary")
        if tag is not None and len(tag) > TAG_BYTES_MAX:
            raise DecodeError(f"a delivery tag has at most {TAG_BYTES_MAX} bytes, got {len(tag)}")
    if count > 3:
        code = buffer[at]
        if code == _UINT_ZERO:
            message_format = 0
            at += 1
        elif code == _UINT:
            message_format = _U32(buffer, at + 1)[0]
            at += 5
        elif code == _NULL:
            at += 1
        elif code == _SMALL_UINT:
            message_format = buffer[at + 1]
            at += 2
        else:
            raise DecodeError("transfer.message-format is not a uint")
    if count > 4:
        code = buffer[at]
        at += 1
        if code == _TRUE:
            settled = True
        elif code == 0x56:
            settled = buffer[at] == 1
            at += 1
        elif code != _FALSE and code != _NULL:
            raise DecodeError("transfer.settled is not a boolean")
    if count > 5:
        code = buffer[at]
        at += 1
        if code == _TRUE:
            more = True
        elif code == 0x56:
            more = buffer[at] == 1
            at += 1
        elif code != _FALSE and code != _NULL:
            raise DecodeError("transfer.more is not a boolean")
        if fields_end - at == count - 6 and buffer[at:fields_end] in _PLAIN_TAILS:
            at = fields_end
        else:
            at, aborted, transaction = _read_tail(buffer, at, count)
    if at != fields_end:
        raise DecodeError("the fields of a transfer do not end where its list does")
    return handle, delivery_id, tag, message_format, settled, more, aborted, fields_end, transaction


def _read_tail(buffer: bytes, at: int, count: int) -> tuple[int, bool, bytes | None]:
    """Read the fields from the settle mode on: where they end, whether `aborted` is set, and the transaction."""
    aborted, transaction = False, None
    for index in range(6, count):
        if index == 7 and buffer.startswith(_TRANSACTIONAL, at):
            transaction = _read_transaction(buffer, at)
        elif index == 9:
            aborted = buffer[at] == _TRUE or (buffer[at] == 0x56 and buffer[at + 1] == 1)
        at = skip(buffer, at)
    return at, aborted, transaction


def _read_transaction(buffer: bytes, at: int) -> bytes:
    state = read_composite(decode(buffer, at)[0])
    if not isinstance(state, TransactionalState) or len(state.txn_id) > TRANSACTION_ID_BYTES_MAX:
        raise DecodeError(f"the id of a transaction has at most {TRANSACTION_ID_BYTES_MAX} bytes")
    return state.txn_id


_TAG_PREFIXES = [bytes((0xA0, size)) for size in range(TAG_BYTES_MAX + 1)]


class TransferWriter:
    def __init__(self, channel: int, handle: int) -> None:
        encoded = encode(UInt(handle))
        self._start = b"\x02\x00" + struct.pack(">H", channel) + b"\x00\x53\x14\xc0"
        self._count_and_handle = b"\x0b" + encoded + b"\x70"
        self._head = struct.Struct(f">I8sB{len(encoded) + 2}sI").pack
        self._next_head = struct.Struct(f">I8sBB{len(encoded)}s").pack
        self._handle = encoded
        self._tails: dict[tuple[int, bool, bool], bytes] = {}

    def first(self, delivery_id: int, tag: bytes, message_format: int, settled: bool, more: bool, room: int) -> bytes:
        """A delivery's first frame up to the payload, of which `room` bytes follow."""
        tail = self._tails.get((message_format, settled, more)) or self._tail(message_format, settled, more)
        return self._first(delivery_id, tag, tail, room)

    def in_transaction(
        self, delivery_id: int, tag: bytes, message_format: int, settled: bool, more: bool, room: int, state: bytes
    ) -> bytes:
        """The same for a delivery whose state is this, encoded: that of a transaction."""
        flags = (b"\x41" if settled else b"\x42") + (b"\x41" if more else b"\x42")
        tail = encode(UInt(message_format)) + flags + b"\x40" + state + b"\x40" * 3
        fields = len(self._count_and_handle) + 4 + 2 + len(tag) + len(tail)
        if fields < 256:
            return self._first(delivery_id, tag, tail, room)
        inside = self._count_and_handle[1:] + struct.pack(">I", delivery_id) + _TAG_PREFIXES[len(tag)] + tag + tail
        head = self._start[:-1] + b"\xd0" + struct.pack(">II", len(inside) + 4, 11) + inside
        return struct.pack(">I", 4 + len(head) + room) + head

    def _first(self, delivery_id: int, tag: bytes, tail: bytes, room: int) -> bytes:
        # Never null, although it may be empty: the Go client closes a link whose first frame has no tag.
        tag = _TAG_PREFIXES[len(tag)] + tag
        fields = len(self._count_and_handle) + 4 + len(tag) + len(tail)
        return self._head(13 + fields + room, self._start, fields, self._count_and_handle, delivery_id) + tag + tail

    def following(self, settled: bool, more: bool, room: int) -> bytes:
        """The same for a later frame: only the first one may name the delivery."""
        tail = b"\x40\x40\x40" + _flags(settled, more)
        fields = 1 + len(self._handle) + len(tail)
        return self._next_head(13 + fields + room, self._start, fields, 11, self._handle) + tail

    def _tail(self, message_format: int, settled: bool, more: bool) -> bytes:
        tail = encode(UInt(message_format)) + _flags(settled, more)
        if len(self._tails) < 16:
            self._tails[message_format, settled, more] = tail
        return tail


def _flags(settled: bool, more: bool) -> bytes:
    return (b"\x41" if settled else b"\x42") + (b"\x41" if more else b"\x42") + b"\x40" * 5


def split_payload(payload: bytes, first_room: int, next_room: int) -> Iterator[bytes]:
    """Pieces of a payload: the first of at most `first_room` bytes, the others of at most `next_room`."""
    yield payload[:first_room]
    for start in range(first_room, len(payload), next_room):
        yield payload[start : start + next_room]


_DESCRIPTOR = b"\x00\x53\x15"
_ACCEPTED = b"\x00\x53\x24\x45"
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


class DispositionFields(NamedTuple):
    """The fields of a disposition, `last` filled in."""

    role: LinkRole
    first: int
    last: int
    settled: bool
    outcome: DeliveryState | None


def disposition_frame(
    channel: int, role: LinkRole, first: int, last: int, outcome: DeliveryState | None, settled: bool
) -> bytes:
    state = _ACCEPTED if type(outcome) is Accepted else b"\x40" if outcome is None else encode_composite(outcome)
    fields = b"".join(
        (
            b"\x41" if role is LinkRole.RECEIVER else b"\x42",
            _RANGE.pack(0x70, first, 0x70, last),
            b"\x41" if settled else b"\x42",
            state,
            b"\x40",
        )
    )
    size = len(fields) + 1
    head = _NARROW.pack(_DESCRIPTOR, 0xC0, size, 6) if size < 256 else _WIDE.pack(_DESCRIPTOR, 0xD0, size + 3, 6)
    return frame(channel, head + fields)


def read_disposition(body: bytes) -> DispositionFields:
    accepting = _ACCEPTING.fullmatch(body)
    if accepting is None:
        return _read_any(body)
    size, count, role, first, last, settled, batchable = accepting.groups()
    if size[0] != len(body) - 5 or count[0] != (5 if batchable is None else 6):
        raise DecodeError("the list of a disposition does not fit its frame")
    first_id = int.from_bytes(first[1:], "big")  # without its constructor; uint0 is nothing but one
    last_id = first_id if last == b"\x40" else int.from_bytes(last[1:], "big")
    return DispositionFields(LinkRole(_BOOLEANS[role]), first_id, last_id, _BOOLEANS[settled], ACCEPTED)


def _read_any(body: bytes) -> DispositionFields:
    found = decode_performative(body)
    if not isinstance(found, Disposition):
        raise DecodeError(f"{type(found).__name__.lower()} is not a disposition")
    last = found.first if found.last is None else found.last
    return DispositionFields(found.role, found.first, last, found.settled, found.state)
