"""Events to lines and back. A line that is not exactly what was written is recognised by its checksum."""

from __future__ import annotations

from typing import Literal, NamedTuple
from zlib import crc32

import msgspec

from twinbus.ledger.kinds import Kind
from twinbus.ledger.schema import SCHEMA_VERSION, Envelope, Event, Record

EVENT_BYTES_MAX = 8 << 20
REASON_LENGTH_MAX = 4_000
"""Characters of a reason; the rest is left out, and an ellipsis says so."""
LINE_BYTES_MAX = EVENT_BYTES_MAX + 4096
CRC_MARK = b',"crc":'
NUMBER_MAX = 1 << 40
"""No process lives long enough to write more records; a higher number was not given by a ledger."""
Trouble = Literal["corrupt", "newer"]


class Flaw(NamedTuple):
    """Why a line is not a record; `envelope` is set if at least that part can be trusted."""

    trouble: Trouble
    text: str
    envelope: Envelope | None = None


class LineWriter:
    def __init__(self, *, process: str, pid: int, host: str, program: str) -> None:
        encoder = msgspec.json.Encoder(enc_hook=_plain)
        head = {"v": SCHEMA_VERSION, "process": process, "pid": pid, "host": host, "program": program}
        self._head = encoder.encode(head)[:-1]
        self._encode = encoder.encode

    def line(self, event: Event, *, number: int, at_ns: int, monotonic_ns: int) -> bytes:
        """The line with its end. An event that JSON cannot hold becomes a `rejected` one."""
        encoded = self._encode_event(event)
        body = b'%b,"number":%d,"at_ms":%d,"monotonic_us":%d,%b' % (
            self._head,
            number,
            at_ns // 1_000_000,
            monotonic_ns // 1_000,
            encoded[1:-1],
        )
        return b"%b%b%d}\n" % (body, CRC_MARK, crc32(body))

    def _encode_event(self, event: Event) -> bytes:
        try:
            if len(event.reason) > REASON_LENGTH_MAX:  # others choose it: a server, a receiver
                event = msgspec.structs.replace(event, reason=f"{event.reason[:REASON_LENGTH_MAX]}...")
            encoded = self._encode(event)
        except Exception as error:  # whatever is wrong with an event, its number must not be missing
            return self._encode_rejection(f"{type(error).__name__}: {str(error)!a}"[:500])
        if len(encoded) > EVENT_BYTES_MAX:
            return self._encode_rejection(f"{len(encoded)} bytes are too large for a line")
        return encoded

    def _encode_rejection(self, reason: str) -> bytes:
        return self._encode(Event(Kind.REJECTED, reason=reason))


def _plain(value: object) -> object:
    """Subclasses of str and int, e.g. the types of AMQP, are recorded as plain values."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"a record holds texts and numbers, got {type(value).__name__}")


_decode_record = msgspec.json.Decoder(Record).decode
_decode_envelope = msgspec.json.Decoder(Envelope).decode


def read_line(line: bytes) -> Record | Flaw:
    """The record in a line, or what is wrong with it."""
    body, mark, crc = line.rstrip(b"\r\n").rpartition(CRC_MARK)
    if not mark:
        return Flaw("corrupt", "no checksum: not a record, or not all of it")
    if crc != b"%d}" % crc32(body):
        return Flaw("corrupt", "the checksum does not match")
    try:
        record = _decode_record(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _flaw_of(line, error)
    if not 1 <= record.number <= NUMBER_MAX:
        return _impossible(record.number)
    return record if record.v <= SCHEMA_VERSION else _too_new(Envelope(record.v, record.process, record.number))


def _flaw_of(line: bytes, error: Exception) -> Flaw:
    try:
        envelope = _decode_envelope(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Flaw("corrupt", f"not a record: {error}")
    if not 1 <= envelope.number <= NUMBER_MAX:
        return _impossible(envelope.number)
    return _too_new(envelope) if envelope.v > SCHEMA_VERSION else Flaw("corrupt", f"not a record: {error}", envelope)


def _impossible(number: int) -> Flaw:
    return Flaw("corrupt", f"record number {number} is impossible: numbers are from 1 to {NUMBER_MAX}")


def _too_new(envelope: Envelope) -> Flaw:
    text = f"schema version {envelope.v} is newer than {SCHEMA_VERSION}: read it with a newer twinbus"
    return Flaw("newer", text, envelope)
