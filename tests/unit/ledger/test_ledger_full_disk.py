"""A disk that is full: the application goes on, and the gap shows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ledger_disks import RefusingDisk, SmallDisk

from twinbus.ledger import Event, Kind, Ledger, LedgerOptions, LedgerReader, verify
from twinbus.ledger.reading.verify import ProcessCoverage

ROOM = 20_000


def sent(number: int) -> Event:
    return Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",), sizes=(number,))


def ledger_on(disk: Any, directory: Path, **options: Any) -> Ledger:
    return Ledger(LedgerOptions(directory=directory, **{"free_bytes_min": 0, **options}), disk=disk)


def ids_in(directory: Path) -> list[str]:
    return [record.message_ids[0] for record in LedgerReader(directory).records() if record.message_ids]


def only_process(directory: Path) -> ProcessCoverage:
    found = verify(directory)
    assert [problem for problem in found.problems if problem.defect != "duplicate"] == []
    (process,) = found.processes
    return process


def test_what_the_disk_refused_for_a_while_is_written_later_without_a_gap(tmp_path: Path) -> None:
    disk = RefusingDisk(ROOM)
    with ledger_on(disk, tmp_path) as ledger:
        for number in range(200):
            ledger.record(sent(number))
        assert not ledger.flush()
        disk.room = None
    assert only_process(tmp_path).is_complete
    assert ids_in(tmp_path) == [f"{number}" for number in range(200)]


def test_what_finds_no_room_in_memory_either_is_a_gap_that_is_explained(tmp_path: Path) -> None:
    disk = RefusingDisk(ROOM)
    with ledger_on(disk, tmp_path, memory_bytes_max=100_000) as ledger:
        ledger.record(sent(0))
        ledger.flush()
        disk.room = 10
        for number in range(1, 1000):
            ledger.record(sent(number))
        assert not ledger.flush()
        lost = ledger.health().lost
        disk.room = None
        ledger.flush()
        ledger.record(sent(1000))
    process = only_process(tmp_path)
    (gap,) = process.missing
    assert gap.count == lost
    assert "No space left" in gap.reason
    assert process.records + gap.count == 1001 + 3, "every event has its number, beside opened, gap and closed"
    assert ids_in(tmp_path) == [f"{number}" for number in [*range(1000 - lost), 1000]]


def test_a_file_that_cannot_be_cut_back_is_left_alone_and_nothing_follows_its_torn_line(tmp_path: Path) -> None:
    disk = RefusingDisk(ROOM)
    disk.cuts_back = False
    with ledger_on(disk, tmp_path) as ledger:
        for number in range(200):
            ledger.record(sent(number))
        assert not ledger.flush()
        disk.room = None
    found = verify(tmp_path)
    assert sorted(problem.defect for problem in found.problems) == ["duplicate", "torn"]
    assert found.processes[0].missing == ()
    assert ids_in(tmp_path) == [f"{number}" for number in range(200)]


def test_closing_on_a_full_disk_gives_up_in_bounded_time(tmp_path: Path) -> None:
    ledger = ledger_on(RefusingDisk(0), tmp_path)
    ledger.record(sent(1))
    assert not ledger.close(10)
    assert ledger.health().lost == 2, "the event and the opening record"
    assert ids_in(tmp_path) == []


def test_a_directory_at_its_limit_gets_no_more_records_but_its_gap_and_its_end(tmp_path: Path) -> None:
    with ledger_on(None, tmp_path, directory_bytes_max=ROOM) as ledger:
        for number in range(500):
            ledger.record(sent(number))
            ledger.flush()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < ROOM + 2_000
    process = only_process(tmp_path)
    assert process.ending == "closed"
    (gap,) = process.missing
    assert "directory_bytes_max (20000)" in gap.reason
    assert process.records + gap.count == 500 + 3
    assert ids_in(tmp_path) == [f"{number}" for number in range(500 - gap.count)]


def test_segments_of_others_count_towards_the_limit_and_are_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_bytes(b"x" * ROOM)
    with ledger_on(None, tmp_path, directory_bytes_max=ROOM) as ledger:
        ledger.record(sent(1))
        assert not ledger.flush()
        (tmp_path / "other.jsonl").unlink()  # its owner has compacted it
        assert ledger.flush()
    assert only_process(tmp_path).is_complete


def test_the_rest_of_the_file_system_is_left_to_others(tmp_path: Path) -> None:
    with ledger_on(SmallDisk(ROOM), tmp_path, free_bytes_min=ROOM // 2) as ledger:
        for number in range(100):
            ledger.record(sent(number))
            ledger.flush()
        assert "free_bytes_min" in ledger.health().trouble
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= ROOM // 2


ON_A_REAL_TMPFS = """
import sys
from pathlib import Path
from twinbus.ledger import Event, Kind, Ledger, LedgerOptions, verify

where = Path(sys.argv[1])
filler = where / "filler"
filler.write_bytes(b"x" * 100_000)
with Ledger(LedgerOptions(directory=where, free_bytes_min=0, memory_bytes_max=200_000)) as ledger:
    for number in range(3000):
        ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",)))
        if number % 100 == 0:
            ledger.flush()
    assert "No space left" in ledger.health().trouble, ledger.health()
    filler.unlink()
    assert ledger.flush()
found = verify(where)
(process,) = found.processes
assert found.problems == (), found.problems
assert process.ending == "closed"
assert process.records + process.missing_count == 3000 + 3, process
print("missing", process.missing_count, process.missing[0].reason)
"""


def test_a_real_file_system_that_runs_full_behaves_the_same(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    script = tmp_path / "fill.py"
    script.write_text(ON_A_REAL_TMPFS)
    (tmp_path / "small").mkdir()
    command = 'mount -t tmpfs -o size=256k none "$1" || exit 77; exec "$2" "$3" "$1"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command, "sh", str(tmp_path / "small"), sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("may not mount here")
    assert done.returncode == 0, done.stderr
    assert "missing" in done.stdout
    assert "No space left" in done.stdout
