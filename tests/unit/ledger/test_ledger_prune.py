"""Old segments are deleted, never what nobody has read or somebody writes; and nothing shows as missing."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from ledger_ends import let_go

from twinbus.cli.main import run
from twinbus.errors import OptionsError, StoreError
from twinbus.ledger import Event, Kind, Ledger, LedgerOptions, verify
from twinbus.ledger.reading import segment_files
from twinbus.ledger.reading.segment_files import segments_in
from twinbus.ledger.upkeep import pruning as notes
from twinbus.ledger.upkeep.pruning import Candidate, plan, prune
from twinbus.spark.compaction.compaction import FOLDER, compact_ledger, read_in_process
from twinbus.spark.compaction.coverage import find_coverage
from twinbus.storage import open_folder
from twinbus.units import parse_seconds, parse_size


def write_ledger(directory: Path, count: int = 30, *, keep_open: bool = False) -> Ledger:
    """A ledger of a few segments."""
    ledger = Ledger(LedgerOptions(directory=directory, program="shop", segment_bytes_max=1024))
    for number in range(count):
        ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=(f"{number}",), sizes=(5,)))
        assert ledger.flush()
    if not keep_open:
        ledger.close()
    return ledger


def made_old(directory: Path) -> None:
    for at, path in enumerate(segments_in(directory)):
        os.utime(path, (1_000_000 + at, 1_000_000 + at))


def pruned(directory: Path, *arguments: str) -> int:
    return run(["ledger", "prune", str(directory), *arguments])


def test_what_a_report_has_read_is_deleted_and_does_not_show_as_missing(tmp_path: Path) -> None:
    write_ledger(tmp_path)
    made_old(tmp_path)
    before = find_coverage(compact_ledger(read_in_process, tmp_path))
    assert pruned(tmp_path, "--older-than", "30d", "--yes") == 0
    assert segments_in(tmp_path) == []
    assert find_coverage(compact_ledger(read_in_process, tmp_path)) == before
    assert before.is_complete
    assert verify(tmp_path).is_complete


def test_some_segments_of_a_process_are_pruned_and_the_rest_is_complete(tmp_path: Path) -> None:
    write_ledger(tmp_path)
    compact_ledger(read_in_process, tmp_path)
    sizes = [path.stat().st_size for path in segments_in(tmp_path)]
    made_old(tmp_path)
    assert pruned(tmp_path, "--keep", f"{sum(sizes[-2:])}", "--yes") == 0
    assert len(segments_in(tmp_path)) == 2
    [process] = verify(tmp_path).processes
    assert (process.is_complete, process.records + process.pruned) == (True, 32)
    assert find_coverage(compact_ledger(read_in_process, tmp_path)).is_complete


def test_what_no_report_has_read_stays_unless_somebody_insists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_ledger(tmp_path)
    made_old(tmp_path)
    count = len(segments_in(tmp_path))
    assert pruned(tmp_path, "--older-than", "30d", "--yes") == 3
    assert "stays: no report has read it: make one first (twinbus pipeline report), or say --unread" in (
        capsys.readouterr().out
    )
    assert len(segments_in(tmp_path)) == count
    assert pruned(tmp_path, "--older-than", "30d", "--yes", "--unread") == 0
    assert segments_in(tmp_path) == []
    [unknown] = find_coverage(compact_ledger(read_in_process, tmp_path)).missing
    assert (unknown.program, unknown.records) == ("shop", 32)
    assert unknown.reason.endswith(": no report had read them")
    assert not verify(tmp_path).is_complete
    assert "no report had read them" in verify(tmp_path).processes[0].missing[0].reason


def test_what_was_added_since_the_report_is_unread(tmp_path: Path) -> None:
    write_ledger(tmp_path, 1)
    compact_ledger(read_in_process, tmp_path)
    [path] = segments_in(tmp_path)
    with path.open("ab") as file:
        file.write(b"more\n")
    [candidate] = plan(tmp_path, tmp_path / FOLDER, bytes_max=0).kept
    assert candidate.kept == "unread"


def test_a_store_that_does_not_have_what_was_pruned_says_so(tmp_path: Path) -> None:
    write_ledger(tmp_path)
    made_old(tmp_path)
    compact_ledger(read_in_process, tmp_path)
    assert pruned(tmp_path, "--older-than", "30d", "--yes") == 0
    [unknown] = find_coverage(compact_ledger(read_in_process, tmp_path, tmp_path / "another")).missing
    assert unknown.reason.endswith(": a report had read them, but into another store")
    assert unknown.records == 32


def test_a_segment_that_a_process_writes_to_stays(tmp_path: Path) -> None:
    ledger = write_ledger(tmp_path, keep_open=True)
    compact_ledger(read_in_process, tmp_path)
    assert pruned(tmp_path, "--keep", "0", "--yes", "--unread") == 3
    [left] = segments_in(tmp_path)
    ledger.record(Event(Kind.PING))
    assert ledger.close()
    assert left.exists()
    assert verify(tmp_path).is_complete, "what was pruned before goes on in the segment that stays"
    assert find_coverage(compact_ledger(read_in_process, tmp_path)).is_complete


def test_a_process_that_was_stopped_stays_complete_when_its_beginning_is_pruned(tmp_path: Path) -> None:
    let_go(write_ledger(tmp_path, keep_open=True))
    compact_ledger(read_in_process, tmp_path)
    made_old(tmp_path)
    assert pruned(tmp_path, "--keep", f"{segments_in(tmp_path)[-1].stat().st_size}", "--yes") == 0
    assert [each.ending for each in verify(tmp_path).processes] == ["stopped"]
    assert verify(tmp_path).is_complete


def test_a_process_that_was_stopped_after_the_report_stays_complete_when_all_of_it_is_pruned(tmp_path: Path) -> None:
    """The report saw it running, and everything that it wrote; its mark still says that nothing waited."""
    ledger = Ledger.at(tmp_path, "shop")
    ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=("one",)))
    assert ledger.flush(60.0)
    assert find_coverage(compact_ledger(read_in_process, tmp_path)).running == 1
    let_go(ledger)
    made = plan(tmp_path, tmp_path / FOLDER, bytes_max=0)
    prune(tmp_path, made.chosen, now_ms=1, on_pruned=lambda _: None)
    assert not segments_in(tmp_path)
    assert find_coverage(compact_ledger(read_in_process, tmp_path)).is_complete


def test_a_dry_run_says_what_would_go_and_deletes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ledger(tmp_path)
    made_old(tmp_path)
    compact_ledger(read_in_process, tmp_path)
    names = [path.name for path in segments_in(tmp_path)]
    assert pruned(tmp_path, "--older-than", "30d", "--dry-run", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["dry_run"], said["pruned"], said["pruned_unread"], said["kept"]) == (True, names, [], [])
    assert [path.name for path in segments_in(tmp_path)] == names
    assert not (tmp_path / notes.PRUNED_FILE).exists()


def test_young_and_few_segments_stay(tmp_path: Path) -> None:
    write_ledger(tmp_path)
    compact_ledger(read_in_process, tmp_path)
    count = len(segments_in(tmp_path))
    assert pruned(tmp_path, "--older-than", "1h", "--keep", "2GB", "--yes") == 0
    assert len(segments_in(tmp_path)) == count


def test_pruning_asks_or_needs_a_confirmation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ledger(tmp_path, 1)
    assert pruned(tmp_path, "--older-than", "30d") == 2
    assert "say --yes where nobody can be asked" in capsys.readouterr().err
    assert pruned(tmp_path, "--yes") == 2
    assert "say what to delete: --older-than, e.g. 30d, or --keep, e.g. 2GB" in capsys.readouterr().err


def test_no_report_reads_while_segments_are_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from twinbus.spark.compaction import manifest as manifests

    write_ledger(tmp_path, 1)
    compact_ledger(read_in_process, tmp_path)
    with manifests.lock_store(open_folder(tmp_path / FOLDER)):
        assert pruned(tmp_path, "--keep", "0", "--yes") == 1
    assert "a report is reading into" in capsys.readouterr().err
    assert len(segments_in(tmp_path)) == 1


class Killed(BaseException):
    """As kill -9: nothing runs after it."""


def test_whoever_is_killed_while_pruning_leaves_a_ledger_that_is_complete(tmp_path: Path) -> None:
    for step in range(12):
        directory = tmp_path / f"{step}"
        write_ledger(directory, 12)
        made_old(directory)
        before = find_coverage(compact_ledger(read_in_process, directory))
        chosen = plan(directory, directory / FOLDER, bytes_max=0).chosen
        die_at(directory, chosen, step)
        assert verify(directory).is_complete
        assert find_coverage(compact_ledger(read_in_process, directory)) == before
        assert pruned(directory, "--keep", "0", "--yes") == 0
        assert (segments_in(directory), verify(directory).is_complete) == ([], True)


def die_at(directory: Path, chosen: list[Candidate], step: int) -> None:
    """Before the note has its name, or after so many deletions."""
    gone: list[Candidate] = []

    def report_and_die(each: Candidate) -> None:
        gone.append(each)
        if len(gone) == step:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        if step == 0:
            patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(Killed))
        try:
            prune(directory, chosen, 0, report_and_die)
        except Killed:
            assert len(gone) == step
        else:
            assert len(gone) < step


PRUNES = """
import sys, time
from pathlib import Path
from twinbus.ledger.upkeep.pruning import plan, prune

directory = Path(sys.argv[1])
chosen = plan(directory, directory / "compacted", bytes_max=0).chosen
def slowly(each):
    print(each.name, flush=True)
    time.sleep(0.05)
prune(directory, chosen, time.time_ns() // 1_000_000, slowly)
"""


def test_a_pruning_process_that_is_killed_leaves_a_complete_ledger(tmp_path: Path) -> None:
    write_ledger(tmp_path, 60)
    made_old(tmp_path)
    compact_ledger(read_in_process, tmp_path)
    count = len(segments_in(tmp_path))
    with subprocess.Popen([sys.executable, "-c", PRUNES, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert 0 < len(segments_in(tmp_path)) < count
    assert verify(tmp_path).is_complete
    assert find_coverage(compact_ledger(read_in_process, tmp_path)).is_complete


def test_a_note_of_what_was_pruned_that_is_damaged_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ledger(tmp_path, 1)
    (tmp_path / notes.PRUNED_FILE).write_text("{")
    assert run(["ledger", "verify", str(tmp_path)]) == 1
    assert "pruned.json is damaged" in capsys.readouterr().err


def test_a_ledger_that_is_nearly_full_is_warned_about(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = LedgerOptions(directory=tmp_path, directory_bytes_max=4096, segment_bytes_max=1024, free_bytes_min=0)
    minutes = count(60_000_000_000, 60_000_000_000)  # room is looked for again after some time
    with caplog.at_level(logging.WARNING), Ledger(options, monotonic_ns=lambda: next(minutes)) as ledger:
        for number in range(17):
            ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",)))
            ledger.flush()
    assert caplog.text.count("twinbus ledger prune makes room") == 1
    assert run(["ledger", "stats", str(tmp_path)]) == 0
    assert "twinbus ledger prune" not in capsys.readouterr().err
    monkeypatch.setattr(segment_files, "USUAL_MAX", 4096)
    for verb in ("stats", "verify"):
        run(["ledger", verb, str(tmp_path)])
        assert "writers stop at 4,096: twinbus ledger prune makes room" in capsys.readouterr().err


def test_everybody_who_wrote_is_expected_from_now_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ledger(tmp_path, 1)
    assert run(["ledger", "expect", str(tmp_path)]) == 0
    assert "1 writers were added to" in capsys.readouterr().out
    assert verify(tmp_path).is_complete
    for path in segments_in(tmp_path):
        path.unlink()
    assert run(["ledger", "verify", str(tmp_path)]) == 3
    assert "expected.toml expects shop on" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "size"), [("2GB", 2 * 10**9), ("1.5 MiB", 1_572_864), ("0", 0), ("7kb", 7_000)])
def test_sizes_are_written_as_people_do(text: str, size: int) -> None:
    assert parse_size(text, "--keep") == size


def test_what_is_no_size_or_time_is_refused() -> None:
    assert parse_seconds("1.5d", "--older-than") == 129_600
    with pytest.raises(OptionsError, match="--keep takes a number of bytes, or one with KB"):
        parse_size("much", "--keep")
    with pytest.raises(OptionsError, match="--older-than"):
        parse_seconds("long", "--older-than")


# --- links ---


@pytest.fixture
def linked(tmp_path: Path) -> tuple[Path, Path]:
    """A ledger with a link to the folder of another one, which a report has read; the folder of the other."""
    ledger, other = tmp_path / "ledger", tmp_path / "other"
    write_ledger(ledger, 3)
    write_ledger(other, 3)
    (ledger / "linked").symlink_to(other, target_is_directory=True)
    made_old(ledger)
    compact_ledger(read_in_process, ledger)
    return ledger, other


def test_nothing_behind_a_link_that_leads_out_of_the_folder_is_deleted_and_that_is_said(
    linked: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, other = linked
    theirs = segments_in(other)
    assert pruned(ledger, "--older-than", "30d", "--unread", "--yes") == 3
    assert segments_in(other) == theirs
    assert [path.parent.name for path in segments_in(ledger)] == ["linked"] * len(theirs), "its own are gone"
    said = capsys.readouterr().out.splitlines()[0]
    assert said.startswith("linked/")
    assert said.endswith(f": stays: a link leads to it, out of {ledger}: nothing is deleted there")
    assert verify(ledger).is_complete


def test_a_segment_that_is_a_link_stays_and_so_does_what_it_leads_to(tmp_path: Path) -> None:
    ledger, other = tmp_path / "ledger", tmp_path / "other"
    write_ledger(other, 1)
    ledger.mkdir()
    [segment] = segments_in(other)
    (ledger / segment.name).symlink_to(segment)
    made_old(ledger)
    [kept] = plan(ledger, ledger / FOLDER, before_ms=10**12, unread=True).kept
    assert (kept.kept, pruned(ledger, "--older-than", "30d", "--unread", "--yes")) == ("linked", 3)
    assert (segment.exists(), (ledger / segment.name).is_symlink()) == (True, True)


def test_what_lies_behind_a_link_costs_no_segment_of_the_folder_its_place(linked: tuple[Path, Path]) -> None:
    ledger, other = linked
    own = [path for path in segments_in(ledger) if path.parent == ledger]
    os.utime(own[0], (1, 1))
    assert pruned(ledger, "--keep", f"{sum(path.stat().st_size for path in own)}", "--yes") == 0
    assert len(segments_in(ledger)) == len(own) + len(segments_in(other))


def test_what_lies_behind_a_link_is_nothing_that_a_limit_in_bytes_could_ask_for(
    linked: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is older than all of the folder's own, whose oldest has to go; then the limit is kept."""
    ledger, other = linked
    own = [path for path in segments_in(ledger) if path.parent == ledger]
    for path in segments_in(other):
        os.utime(path, (1, 1))
    size = sum(path.stat().st_size for path in own)
    made = plan(ledger, ledger / FOLDER, bytes_max=size - 1)
    assert ([each.path for each in made.chosen], made.kept) == (own[:1], [])
    assert (made.segments, made.bytes) == (len(own), size), "what a link leads to takes up no room here"
    assert pruned(ledger, "--keep", f"{size - 1}", "--yes") == 0
    assert "stays" not in capsys.readouterr().out


def test_the_folder_itself_may_be_a_link_and_links_within_it_lead_nowhere_else(tmp_path: Path) -> None:
    write_ledger(tmp_path / "real" / "web-1", 3)
    (tmp_path / "real" / "again").symlink_to(tmp_path / "real" / "web-1", target_is_directory=True)
    (tmp_path / "ledger").symlink_to(tmp_path / "real", target_is_directory=True)
    made_old(tmp_path / "ledger")
    assert pruned(tmp_path / "ledger", "--older-than", "30d", "--unread", "--yes") == 0
    assert segments_in(tmp_path / "real") == []


def test_a_folder_that_became_a_link_since_it_was_looked_at_is_left_alone(tmp_path: Path) -> None:
    ledger, other = tmp_path / "ledger", tmp_path / "other"
    write_ledger(ledger / "web-1", 3)
    made = plan(ledger, ledger / FOLDER, bytes_max=0, unread=True)
    (ledger / "web-1").rename(other)
    (ledger / "web-1").symlink_to(other, target_is_directory=True)
    with pytest.raises(StoreError, match="a link leads to it"):
        prune(ledger, made.chosen, now_ms=1, on_pruned=lambda _: None)
    assert len(segments_in(other)) == len(made.chosen)


def test_the_note_is_never_written_through_a_link(linked: tuple[Path, Path]) -> None:
    ledger, other = linked
    theirs = other / "precious"
    theirs.write_text("theirs")
    (ledger / ".pruned.json.new").symlink_to(theirs)
    assert pruned(ledger, "--older-than", "30d", "--yes") == 3
    assert (theirs.read_text(), (ledger / notes.PRUNED_FILE).is_symlink()) == ("theirs", False)
