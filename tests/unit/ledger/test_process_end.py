"""What is known of processes that did not close their ledger: when they were killed, and when the power was cut."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest
from ledger_ends import let_go

from twinbus.ledger import Event, Kind, Ledger, LedgerOptions, LedgerReader, verify
from twinbus.ledger.reading import process_end
from twinbus.ledger.reading.process_end import FOREVER_MS
from twinbus.ledger.reading.segment_files import segments_in
from twinbus.ledger.writing import liveness
from twinbus.ledger.writing.liveness import NOTED, WRITING, LivenessMark, read_liveness
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.compaction.coverage import StoreCoverage, find_coverage

QUIET = """
import sys, time
from twinbus.ledger import Event, Kind, Ledger

ledger = Ledger.at(sys.argv[1], "shop")
ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=("one",)))
assert ledger.flush(60.0)
print(ledger.process, flush=True)
time.sleep(600)
"""

HAS_MORE_TO_SAY = (
    QUIET.replace(
        'Ledger.at(sys.argv[1], "shop")',
        """Ledger(
    LedgerOptions(directory=Path(sys.argv[1]), program="shop", write_interval_s=60.0))""",
    )
    .replace(
        "print(",
        """ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=("two",)))
print(""",
    )
    .replace("import sys, time", "import sys, time\nfrom pathlib import Path")
    .replace("Kind, Ledger", "Kind, Ledger, LedgerOptions")
)


@pytest.fixture(autouse=True)
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where marks of this test's own process are."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(liveness, "FOLDER", folder)
    return folder


def stopped(program: str, directory: Path, how: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a process that recorded and was stopped."""
    monkeypatch.undo()  # the child has the marks of the machine
    with subprocess.Popen([sys.executable, "-c", program, str(directory)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        name = child.stdout.readline().strip()
        child.send_signal(how)
    assert child.returncode == -how
    return name


def covered(directory: Path) -> StoreCoverage:
    return find_coverage(compact_ledger(read_in_process, directory))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_was_stopped_while_nothing_waited_has_recorded_everything(
    tmp_path: Path, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = stopped(QUIET, tmp_path / "ledger", how, monkeypatch)
    try:
        found = verify(tmp_path / "ledger")
        assert ([each.ending for each in found.processes], found.is_complete) == (["stopped"], True)
        assert covered(tmp_path / "ledger").is_complete
        assert covered(tmp_path / "ledger").knows_all_accepted
    finally:
        forget(name)
    assert covered(tmp_path / "ledger").is_complete, "what was found out is kept"
    assert not verify(tmp_path / "ledger").is_complete, "without its mark nobody can tell"


def test_a_process_that_was_stopped_while_events_waited_is_killed_and_its_end_is_dark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = stopped(HAS_MORE_TO_SAY, tmp_path / "ledger", signal.SIGKILL, monkeypatch)
    try:
        assert [each.ending for each in verify(tmp_path / "ledger").processes] == ["killed"]
        coverage = covered(tmp_path / "ledger")
        [unknown] = coverage.missing
        assert "its last 60 s" in unknown.reason
        assert coverage.last_ms + 60_000 <= unknown.until_ms < coverage.last_ms + 120_000
        assert not coverage.knows_all_accepted
    finally:
        forget(name)


def forget(process: str) -> None:
    (Path("/dev/shm") / f"twinbus-{os.getuid()}" / process).unlink(missing_ok=True)


def abandoned(directory: Path, **options: float | None) -> str:
    """A ledger that was written and then let go, as by a process that ended; nothing waits."""
    chosen = LedgerOptions(directory=directory, program="shop", **options)  # type: ignore[arg-type]
    ledger = Ledger(chosen)
    ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=("one",)))
    assert ledger.flush()
    let_go(ledger)
    return ledger.process


def test_after_another_start_of_the_machine_the_sync_interval_is_dark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned(tmp_path / "ledger")
    assert verify(tmp_path / "ledger").is_complete
    monkeypatch.setattr(process_end, "boot_id", lambda: "a later start")
    assert not verify(tmp_path / "ledger").is_complete
    coverage = covered(tmp_path / "ledger")
    [unknown] = coverage.missing
    assert "a power cut cannot be excluded: the records of its last 5 s may be missing" in unknown.reason
    assert unknown.until_ms >= coverage.last_ms + 5000


def test_what_a_power_cut_takes_is_what_the_process_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sync_s, said in ((7.0, "the records of its last 7 s"), (None, "all it wrote last")):
        process = abandoned(tmp_path / f"{sync_s}", sync_interval_s=sync_s)
        [opened] = [each for each in LedgerReader(tmp_path / f"{sync_s}").records() if each.kind == Kind.OPENED]
        assert (opened.process, opened.sync_us) == (process, -1 if sync_s is None else 7_000_000)
        with monkeypatch.context() as patch:
            patch.setattr(process_end, "boot_id", lambda: "a later start")
            [unknown] = covered(tmp_path / f"{sync_s}").missing
        assert said in unknown.reason


def test_a_power_cut_ended_a_process_before_the_machine_was_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned(tmp_path / "ledger")
    last_ms = verify(tmp_path / "ledger").processes[0].last_ms
    monkeypatch.setattr(process_end, "boot_id", lambda: "a later start")
    monkeypatch.setattr(process_end, "booted_ms", lambda: last_ms + 20_000)
    assert covered(tmp_path / "ledger").missing[0].until_ms <= last_ms + 20_000


def test_of_a_process_on_another_machine_it_is_unknown_whether_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned(tmp_path / "ledger")
    monkeypatch.setattr(process_end, "boot_id", lambda: "another machine")
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    [unknown] = covered(tmp_path / "ledger").missing
    assert unknown.until_ms == FOREVER_MS
    assert "from here it is unknown whether it still runs" in unknown.reason


def test_the_last_segment_of_a_killed_process_is_missed(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    ledger = Ledger(LedgerOptions(directory=directory, segment_bytes_max=1024))
    for number in range(30):
        ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",)))
        assert ledger.flush()
    let_go(ledger)
    assert verify(directory).is_complete
    segments_in(directory)[-1].unlink()
    [unknown] = covered(directory).missing
    assert unknown.records is not None
    assert unknown.reason == f"its last {unknown.records:,} records are not there: were segments removed?"
    assert unknown.records + covered(directory).records == 31


def test_a_mark_is_gone_when_its_ledger_is_closed_and_a_child_has_its_own(tmp_path: Path, marks: Path) -> None:
    with Ledger.at(tmp_path / "ledger") as ledger:
        ledger.record(Event(Kind.PING))
        assert ledger.flush()
        before = read_liveness(ledger.process, os.getuid())
        assert before is not None
        assert (before.is_clear, before.written) == (True, 2)
        child = os.fork()
        if not child:
            ledger.record(Event(Kind.PING))
            os._exit(0 if ledger.flush() else 1)
        assert os.waitpid(child, 0)[1] == 0
        after = read_liveness(ledger.process, os.getuid())
        assert after is not None
        assert (after.is_clear, after.written) == (True, 2)
        assert len(list(marks.glob("*/*"))) == 2
    assert len(list(marks.glob("*/*"))) == 1, "of the child, which did not close its ledger"


def test_a_mark_of_somebody_else_is_not_believed(tmp_path: Path, marks: Path) -> None:
    process = abandoned(tmp_path / "ledger")
    assert read_liveness(process, os.getuid()) is not None
    assert read_liveness(process, os.getuid() + 1) is None
    assert read_liveness("../" + process, os.getuid()) is None
    (marks / f"twinbus-{os.getuid()}" / process).write_bytes(b"short")
    assert read_liveness(process, os.getuid()) is None


def test_without_shared_memory_a_ledger_is_written_and_a_killed_process_is_dark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "FOLDER", tmp_path / "nowhere")
    abandoned(tmp_path / "ledger")
    found = verify(tmp_path / "ledger")
    assert ([each.ending for each in found.processes], found.records) == (["killed"], 2)


def test_whenever_a_process_is_stopped_a_clear_mark_means_that_nothing_waits() -> None:
    """Every way in which the steps of two recorders and two rounds of the writer can follow each other."""
    recorders, rounds = 2, 2
    writer = ["begin", "take", "end"] * rounds
    for places in combinations(range(len(writer) + 2 * recorders), 2 * recorders):
        for owners in ((0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 0)):
            check_one_course(writer, places, owners)


def check_one_course(writer: list[str], places: tuple[int, ...], owners: tuple[int, ...]) -> None:
    """An event is in the queue first; then its recorder sets the mark, and its caller goes on."""
    mark, steps, at = LivenessMark(), iter(writer), dict(zip(places, owners, strict=True))
    mark.cells[NOTED] = 1
    put, promised, waits = set[int](), set[int](), set[int]()
    for moment in range(len(writer) + len(places)):
        if moment in at:
            owner = at[moment]
            if owner in put:
                mark.cells[NOTED] = 1
                promised.add(owner)
            else:
                put.add(owner)
                waits.add(owner)
        else:
            step = next(steps)
            if step == "begin":
                mark.begin()
            elif step == "take":
                waits.clear()
            else:
                mark.end(0, 0)
        is_clear = not mark.cells[NOTED] and not mark.cells[WRITING]
        assert not (is_clear and waits & promised), (places, owners, moment)
