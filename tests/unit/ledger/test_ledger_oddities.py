"""Numbers that no ledger gives, two records with one number, and a file system without locks: a clear line each."""

from __future__ import annotations

import errno
import fcntl
import logging
from pathlib import Path

import pytest
from ledger_ends import let_go
from scripted_ledger import BASE_MS, Script, write_lines

from twinbus.errors import StoreError
from twinbus.ledger import Event, Kind, Ledger, verify
from twinbus.ledger.lines import NUMBER_MAX, LineWriter
from twinbus.spark.compaction import chunk as chunks
from twinbus.spark.compaction.compaction import CompactedLedger, compact_ledger, read_in_process
from twinbus.spark.compaction.coverage import find_coverage

PROCESS = "00000000000000aa"


def line(number: int, name: str = "one", process: str = PROCESS) -> bytes:
    writer = LineWriter(process=process, pid=7, host="here", program="shop")
    event = Event(Kind.ACCEPTED, "orders", message_ids=(name,), sizes=(5,))
    return writer.line(event, number=number, at_ns=BASE_MS * 1_000_000, monotonic_ns=5_000)


def lines(count: int = 3) -> list[bytes]:
    script = Script(PROCESS, "shop")
    for number in range(count):
        script.note(BASE_MS + number, Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",), sizes=(5,)))
    return script.lines()


def troubles(compacted: CompactedLedger) -> dict[str, str]:
    return {each.defect: each.text for each in compacted.manifest.troubles}


@pytest.mark.parametrize("number", [1 << 45, NUMBER_MAX + 1, (1 << 63) - 1, 1 << 64, 0, -5])
def test_a_number_that_no_ledger_gives_is_reported_with_its_line_and_is_no_record(tmp_path: Path, number: int) -> None:
    [path] = write_lines(tmp_path, PROCESS, [*lines(), line(number)])
    found = verify(tmp_path)
    assert [(each.defect, each.lines) for each in found.problems] == [("corrupt", [6])]
    if number < 1 << 63:
        assert f"record number {number} is impossible: numbers are from 1 to {NUMBER_MAX}" in str(found.problems[0])
    assert (found.records, found.is_complete) == (5, False)
    compacted = compact_ledger(read_in_process, tmp_path)
    [trouble] = compacted.manifest.troubles
    assert (trouble.segment, trouble.defect, trouble.lines) == (path.name, "corrupt", [6])
    assert compacted.manifest.records == 5
    assert find_coverage(compacted).is_complete, "all that this process wrote is there, and it said so"


def test_the_largest_number_leaves_a_hole_and_takes_no_room(tmp_path: Path) -> None:
    write_lines(tmp_path, PROCESS, [*lines(), line(NUMBER_MAX)])
    assert verify(tmp_path).processes[0].missing_count == NUMBER_MAX - 6
    [hole] = find_coverage(compact_ledger(read_in_process, tmp_path)).missing
    assert hole.records == NUMBER_MAX - 6


@pytest.fixture(params=["one segment", "two segments", "two reports", "two blocks"])
def other(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger in which record 3 is there twice, with another content."""
    write_lines(tmp_path, PROCESS, lines())
    match request.param:
        case "one segment":
            write_lines(tmp_path, PROCESS, [*lines(), line(3, "else")])
        case "two blocks":
            monkeypatch.setattr(chunks, "BLOCK_BYTES", 200)
            write_lines(tmp_path, PROCESS, [*lines(), line(3, "else")])
        case how:
            if how == "two reports":
                compact_ledger(read_in_process, tmp_path)
            (tmp_path / "other.jsonl").write_bytes(line(3, "else"))
    return tmp_path


def test_a_number_with_two_contents_is_named_and_makes_the_answer_unknown(other: Path) -> None:
    found = verify(other)
    assert [each.defect for each in found.problems] == ["conflict"]
    assert f"record 3 of process {PROCESS} was read before and says something else" in str(found.problems[0])
    assert not found.is_complete
    compacted = compact_ledger(read_in_process, other)
    assert troubles(compacted)["conflict"].startswith(f"record 3 of process {PROCESS} was read before")
    coverage = find_coverage(compacted)
    assert (coverage.is_complete, coverage.knows_all_accepted) == (False, False)
    assert compacted.manifest.records == 5


def test_a_number_with_the_same_content_twice_is_harmless(tmp_path: Path) -> None:
    write_lines(tmp_path, PROCESS, [*lines(), lines()[2]])
    (tmp_path / "copy.jsonl").write_bytes(b"".join(lines()[1:4]))
    assert [each.defect for each in verify(tmp_path).problems] == ["duplicate", "duplicate"]
    assert verify(tmp_path).is_complete
    compacted = compact_ledger(read_in_process, tmp_path)
    assert set(troubles(compacted)) == {"duplicate"}
    assert find_coverage(compacted).is_complete


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: object, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("no_locks")
def test_a_writer_without_locks_says_so_and_its_ledger_is_complete_when_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Ledger.at(tmp_path, "shop") as ledger:
        ledger.record(Event(Kind.PING))
    assert "is on a file system without file locks (No locks available)" in caplog.text
    assert verify(tmp_path).is_complete


@pytest.mark.usefixtures("no_locks")
def test_without_locks_nobody_says_whether_a_process_runs(tmp_path: Path) -> None:
    ledger = Ledger.at(tmp_path, "shop")
    ledger.record(Event(Kind.PING))
    assert ledger.flush()
    let_go(ledger)
    [process] = verify(tmp_path).processes
    assert process.end == "its file system has no file locks: unknown whether it still runs"
    assert not process.is_complete


@pytest.mark.usefixtures("no_locks")
def test_a_store_without_locks_is_refused_with_what_to_do(tmp_path: Path) -> None:
    write_lines(tmp_path, PROCESS, lines())
    with pytest.raises(StoreError, match=r"has no file locks \(No locks available\); choose another --store"):
        compact_ledger(read_in_process, tmp_path)
