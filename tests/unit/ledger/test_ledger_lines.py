"""Events as lines: what they look like, and what is recognised as not being one."""

from __future__ import annotations

import json
from zlib import crc32

import pytest

from twinbus.amqp.codec.types import Long, Symbol
from twinbus.ledger.kinds import FACTS, Kind
from twinbus.ledger.lines import CRC_MARK, EVENT_BYTES_MAX, REASON_LENGTH_MAX, Flaw, LineWriter, read_line
from twinbus.ledger.schema import (
    ENVELOPE_FIELDS,
    EVENT_FIELDS,
    PER_MESSAGE_FIELDS,
    SCHEMA_VERSION,
    SPARK_SCHEMA,
    Envelope,
    Event,
    NoLedger,
    Record,
)

WRITER = LineWriter(process="abc", pid=7, host="here", program="test")
SENT = Event(Kind.ACCEPTED, "orders", "contoso", message_ids=("42",), sizes=(1024,), attempts=1)


def line_of(event: Event, number: int = 1) -> bytes:
    return WRITER.line(event, number=number, at_ns=5_000_000, monotonic_ns=9_000)


def sealed(fields: dict[str, object]) -> bytes:
    """A line with a fitting checksum, whatever is in it."""
    body = json.dumps(fields, separators=(",", ":")).encode()[:-1]
    return b"%b%b%d}\n" % (body, CRC_MARK, crc32(body))


def record_in(line: bytes) -> Record:
    record = read_line(line)
    assert isinstance(record, Record)
    return record


def flaw_in(line: bytes) -> Flaw:
    flaw = read_line(line)
    assert isinstance(flaw, Flaw)
    return flaw


def test_a_line_stands_for_itself() -> None:
    fields = json.loads(line_of(SENT, 3))
    assert fields.pop("crc") > 0
    assert fields == {
        "v": SCHEMA_VERSION,
        "process": "abc",
        "pid": 7,
        "host": "here",
        "program": "test",
        "number": 3,
        "at_ms": 5,
        "monotonic_us": 9,
        "kind": "accepted",
        "entity": "orders",
        "namespace": "contoso",
        "message_ids": ["42"],
        "sizes": [1024],
        "attempts": 1,
    }


def test_a_line_is_read_back_as_it_was_written() -> None:
    record = record_in(line_of(SENT, 3))
    assert {name: getattr(record, name) for name in EVENT_FIELDS} == {
        name: getattr(SENT, name) for name in EVENT_FIELDS
    }
    assert (record.process, record.number, record.at_ms, record.monotonic_us) == ("abc", 3, 5, 9)


@pytest.mark.parametrize("at", range(len(line_of(SENT))))
def test_a_flipped_bit_anywhere_is_noticed(at: int) -> None:
    line = bytearray(line_of(SENT))
    line[at] ^= 1
    assert isinstance(read_line(bytes(line)), Flaw)


def test_a_name_that_looks_like_the_end_of_a_line_is_only_a_name() -> None:
    name = 'x","crc":12}\n{"v":1'
    assert record_in(line_of(Event(Kind.ACCEPTED, name))).entity == name


def test_texts_and_numbers_as_they_come_from_the_wire_are_recorded_as_what_they_are() -> None:
    record = record_in(line_of(Event(Kind.THROTTLED, condition=Symbol("amqp:not-found"), sizes=(Long(7),))))
    assert (record.kind, record.condition, record.sizes) == (Kind.THROTTLED, "amqp:not-found", (7,))


def test_an_event_that_is_no_json_is_recorded_as_rejected() -> None:
    record = record_in(line_of(Event(Kind.ACCEPTED, "lone \ud800 surrogate"), 5))
    assert (record.kind, record.number) == (Kind.REJECTED, 5)
    assert "Unicode" in record.reason


def test_a_long_reason_is_cut() -> None:
    record = record_in(line_of(Event(Kind.ACCEPTED, reason="x" * 1_000_000)))
    assert (record.kind, record.reason) == (Kind.ACCEPTED, "x" * REASON_LENGTH_MAX + "...")


def test_an_event_too_large_for_a_line_is_recorded_as_rejected() -> None:
    record = record_in(line_of(Event(Kind.ACCEPTED, entity="x" * EVENT_BYTES_MAX)))
    assert record.kind == Kind.REJECTED
    assert "too large" in record.reason


def test_new_fields_and_new_kinds_are_no_new_version() -> None:
    line = sealed(json.loads(line_of(SENT)) | {"kind": "teleported", "colour": "blue"})
    assert record_in(line).kind == "teleported"


def test_a_newer_version_is_recognised_even_if_its_fields_have_changed() -> None:
    for changed in ({}, {"sizes": "large"}):
        flaw = flaw_in(sealed(json.loads(line_of(SENT, 8)) | {"v": SCHEMA_VERSION + 1} | changed))
        assert flaw.trouble == "newer"
        assert flaw.envelope == Envelope(SCHEMA_VERSION + 1, "abc", 8)


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{}\n",
        b"[1,2]\n",
        b"\xff\xfe\n",
        line_of(SENT)[:-20] + b"\n",
        sealed({"v": 1}),
        sealed({"v": 1, "process": "abc", "number": "many"}),
        sealed(json.loads(line_of(SENT)) | {"sizes": "large"}),
    ],
)
def test_what_is_no_record_is_called_corrupt(line: bytes) -> None:
    assert flaw_in(line).trouble == "corrupt"


def test_every_kind_is_explained_and_every_field_is_in_the_schema_for_spark() -> None:
    assert list(FACTS) == list(Kind)
    columns = dict(column.split(" ", 1) for column in SPARK_SCHEMA.split(", "))
    assert set(columns) == {*ENVELOPE_FIELDS, *EVENT_FIELDS, "_corrupt_record"}
    assert all(columns[name].startswith("ARRAY<") for name in PER_MESSAGE_FIELDS)
    assert columns["number"] == "BIGINT"


def test_no_ledger_takes_everything() -> None:
    NoLedger().record(SENT)
