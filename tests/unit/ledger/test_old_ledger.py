"""Segments that version 0.1.0 wrote."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

from version_0_1 import FOLDER, INVOICES, copied

from twinbus.ledger.kinds import Kind
from twinbus.ledger.reading.reader import LedgerReader

LEDGER = FOLDER / "ledger"


def test_every_record_is_read_and_nothing_stands_in_the_way() -> None:
    reader = LedgerReader(LEDGER)
    records = list(reader.records())
    lines = sum(len(file.read_bytes().splitlines()) for file in LEDGER.glob("*.jsonl"))
    assert (len(records), reader.problems, reader.rejections) == (lines, [], [])
    assert {seen.host for seen in reader.processes.values()} == {"host-1"}
    assert all(seen.closed for seen in reader.processes.values())
    assert {record.kind for record in records} <= set(map(str, Kind)), "a kind of record has gone"


def test_what_became_of_each_message_is_understood() -> None:
    by_kind: dict[str, set[str]] = {}
    for record in LedgerReader(LEDGER).records():
        by_kind.setdefault(record.kind, set()).update(record.message_ids or ())
    home = {f"home-{n}" for n in range(4)}
    assert by_kind[Kind.BACKLOGGED] == home | INVOICES
    assert by_kind[Kind.ACCEPTED] == {f"healthy-{n}" for n in range(3)}
    assert by_kind[Kind.SENT_HOME] == by_kind[Kind.RECEIVED_FROM_BACKLOG] == by_kind[Kind.COMPLETED] == home
    assert len(by_kind[Kind.RECEIVED]) == 1


def test_records_of_a_later_version_are_named_and_not_taken_for_ours(tmp_path: Path) -> None:
    ledger = copied("ledger", tmp_path)
    segment = next(iter(sorted(ledger.glob("*.jsonl"))))
    newer = [_of_version(99, line) for line in segment.read_bytes().splitlines()]
    segment.write_bytes(b"".join(newer))
    reader = LedgerReader(ledger)
    assert len(list(reader.records())) == sum(
        len(file.read_bytes().splitlines()) for file in ledger.glob("*.jsonl")
    ) - len(newer)
    (problem,) = reader.problems
    assert problem.count == len(newer)
    assert "schema version 99 is newer than 1: read it with a newer twinbus" in str(problem)
    assert segment.read_bytes() == b"".join(newer)


def _of_version(version: int, line: bytes) -> bytes:
    body = line.rpartition(b',"crc":')[0].replace(b'{"v":1,', b'{"v":%d,' % version, 1)
    return b'%b,"crc":%d}\n' % (body, crc32(body))
