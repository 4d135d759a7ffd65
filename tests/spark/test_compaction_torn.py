"""A last line that is not whole is reported, and read when its rest has come."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_ledger import BASE_MS, Script

from twinbus.ledger import Event, Kind, verify
from twinbus.spark.compaction.compaction import CompactedLedger, compact_ledger, read_in_process
from twinbus.spark.compaction.coverage import find_coverage


def lines(process: str = "0a") -> list[bytes]:
    records = Script(process, "shop")
    for number in range(4):
        records.note(BASE_MS + number, Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",)))
    return records.lines()


def defects(compacted: CompactedLedger) -> list[tuple[str, list[int]]]:
    return [(each.defect, each.lines) for each in compacted.manifest.troubles]


@pytest.mark.parametrize("name", ["20250309T060000Z-0a-000001.jsonl", "somebody.jsonl"])
@pytest.mark.parametrize("step", [23, pytest.param(7, marks=pytest.mark.long)])
def test_a_copy_may_end_anywhere_and_go_on_later(tmp_path: Path, name: str, step: int) -> None:
    """Whatever was there at each run, the last one has read every record once."""
    whole = b"".join(lines())
    for first in range(1, len(whole), step):
        ledger = tmp_path / f"{first}"
        ledger.mkdir()
        for size in (first, first + (len(whole) - first) // 2, len(whole)):
            (ledger / name).write_bytes(whole[:size])
            compacted = compact_ledger(read_in_process, ledger)
        assert (compacted.manifest.records, compacted.manifest.steps, defects(compacted)) == (6, 6, [])
        assert [each.lines for each in compacted.manifest.segments.values()] == [6]
        assert find_coverage(compacted).is_complete
        assert verify(ledger).is_complete


def test_a_torn_line_is_reported_at_every_run_and_read_once(tmp_path: Path) -> None:
    segment = tmp_path / "somebody.jsonl"
    segment.write_bytes(b"".join(lines())[:-9])
    for read in (1, 0, 0):
        compacted = compact_ledger(read_in_process, tmp_path)
        assert (compacted.segments_read, defects(compacted)) == (read, [("torn", [6])])
        assert not find_coverage(compacted).is_complete
    segment.unlink()
    assert defects(compact_ledger(read_in_process, tmp_path)) == [("torn", [6])]


def test_a_torn_line_that_is_no_record_when_it_is_whole_is_corrupt(tmp_path: Path) -> None:
    segment = tmp_path / "somebody.jsonl"
    segment.write_bytes(b"".join(lines()) + b"what")
    assert defects(compact_ledger(read_in_process, tmp_path)) == [("torn", [7])]
    segment.write_bytes(segment.read_bytes() + b" is this?\n")
    assert defects(compact_ledger(read_in_process, tmp_path)) == [("corrupt", [7])]
