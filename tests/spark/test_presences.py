"""When a process was there and kept its ledger: only then is its silence one that means something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ledger_disks import RefusingDisk

from twinbus.ledger import Event, Kind, Ledger, LedgerOptions
from twinbus.ledger.reading import segment_files
from twinbus.ledger.reading.process_end import FOREVER_MS, ProcessEnd
from twinbus.ledger.upkeep.expected import ExpectedWriter
from twinbus.ledger.writing.liveness import LivenessSeen
from twinbus.spark.compaction.clocks import find_clocks
from twinbus.spark.compaction.compaction import CompactedLedger, compact_ledger, read_in_process
from twinbus.spark.compaction.coverage import WRITE_LATE_MS, LedgerPresence, find_coverage, find_presences
from twinbus.spark.compaction.manifest import ClockCheck, Manifest, NumberRange, Process
from twinbus.spark.jobs.analysis import knows_all_accepted
from twinbus.spark.jobs.presence import ARRIVAL_MS, unkept_time, with_absent_in_window
from twinbus.spark.transforms.selection import LedgerSelection
from twinbus.storage.local_folder import LocalFolder

MINUTE = 60_000
FIRST, LAST, NOW = 60 * MINUTE, 120 * MINUTE, 300 * MINUTE
WINDOW = LedgerSelection(200 * MINUTE)
SHOP = (ExpectedWriter(program="shop"),)


def shop(*, closed: bool = False, end: ProcessEnd | None = None, offsets: tuple[int, ...] = ()) -> Process:
    return Process(
        host="web-1",
        program="shop",
        first_ms=FIRST,
        last_ms=LAST,
        wait_us=200_000,
        closed=closed,
        end=end,
        roles=["client"],
        clock=ClockCheck(offsets=list(offsets)),
        ranges=[NumberRange(1, 9, FIRST, LAST)],
    )


def read(
    process: Process,
    mark: LivenessSeen | None = None,
    expected: tuple[ExpectedWriter, ...] = (),
    *,
    has_locks: bool = True,
) -> CompactedLedger:
    """A ledger with one process; it runs unless it has an end."""
    running = frozenset() if process.closed or process.end else frozenset({"aa"})
    marks = {} if mark is None else {"aa": mark}
    manifest = Manifest(processes={"aa": process})
    folder = LocalFolder(Path())
    return CompactedLedger(folder, manifest, running, 0, 0, NOW, expected, {}, marks, has_locks)


def last_ms(compacted: CompactedLedger) -> int:
    [found] = find_presences(compacted)
    return found.last_ms


def test_a_running_process_was_idle_until_now_if_its_mark_says_that_nothing_waits() -> None:
    idle = read(shop(), LivenessSeen(True, NOW - 100, 9), SHOP)
    stopped = read(shop(), LivenessSeen(True, LAST, 9), SHOP)
    for compacted in (idle, stopped):
        assert last_ms(compacted) == NOW
        assert with_absent_in_window(find_coverage(compacted), compacted, WINDOW).missing == ()


@pytest.mark.parametrize("late_ms", [0, 5_000, WRITE_LATE_MS])
def test_a_busy_process_whose_write_is_a_little_late_takes_no_certainty(late_ms: int) -> None:
    compacted = read(shop(), LivenessSeen(False, NOW - late_ms, 9), SHOP)
    assert find_coverage(compacted).is_complete
    assert last_ms(compacted) == NOW - late_ms
    assert with_absent_in_window(find_coverage(compacted), compacted, WINDOW).missing == ()


def test_a_running_process_that_cannot_write_has_recorded_nothing_since_its_last_record() -> None:
    compacted = read(shop(), LivenessSeen(False, NOW - WRITE_LATE_MS - 201, 9), SHOP)
    [unknown] = find_coverage(compacted).missing
    assert (unknown.since_ms, unknown.until_ms, unknown.hides_accepted) == (LAST, FOREVER_MS, True)
    assert "cannot write its last events" in unknown.reason
    assert last_ms(compacted) == LAST
    assert len(with_absent_in_window(find_coverage(compacted), compacted, WINDOW).missing) == 3


def test_a_process_that_could_never_write_is_missed_too() -> None:
    compacted = read(shop(closed=True))
    running = replace(compacted, running=frozenset({"bb"}), marks={"bb": LivenessSeen(False, 0, 0)})
    [unknown] = find_coverage(running).missing
    assert (unknown.process, unknown.since_ms, unknown.until_ms) == ("bb", 0, FOREVER_MS)


def test_a_process_that_begins_has_half_a_minute_for_its_first_write(tmp_path: Path) -> None:
    disk = RefusingDisk(10_000)
    disk.room = 10
    with Ledger(LedgerOptions(directory=tmp_path, program="shop", free_bytes_min=0), disk=disk) as ledger:
        ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=("one",)))
        assert not ledger.flush(60)
        compacted = compact_ledger(read_in_process, tmp_path)
        assert compacted.running == {ledger.process}
        assert not compacted.manifest.processes
        assert find_coverage(compacted).is_complete
        later = replace(compacted, read_ms=compacted.read_ms + WRITE_LATE_MS)
        [unknown] = find_coverage(later).missing
        assert (unknown.process, unknown.since_ms) == (ledger.process, 0)
        disk.room = None


def test_a_running_process_without_a_mark_was_there_until_its_last_record() -> None:
    compacted = read(shop(), None, SHOP)
    assert find_coverage(compacted).is_complete
    assert last_ms(compacted) == LAST
    _, silent = with_absent_in_window(find_coverage(compacted), compacted, WINDOW).missing
    assert silent.hides_accepted


def test_a_process_whose_mark_cannot_be_read_may_be_unable_to_write_if_its_folder_is_full() -> None:
    full = replace(read(shop()), in_full_folders=frozenset({"aa"}))
    [unknown] = find_coverage(full).missing
    assert (unknown.process, unknown.since_ms, unknown.until_ms) == ("aa", LAST, FOREVER_MS)
    assert "segments in its folder" in unknown.reason
    assert find_coverage(replace(full, read_ms=LAST + WRITE_LATE_MS)).is_complete, "it has just written"
    assert find_coverage(replace(full, marks={"aa": LivenessSeen(True, LAST, 9)})).is_complete, "it is idle"
    silent = replace(full, running=frozenset({"aa", "bb"}), in_full_folders=frozenset({"bb"}))
    assert [each.process for each in find_coverage(silent).missing] == ["bb"], "nothing of it is there"


def test_a_report_knows_who_writes_to_a_folder_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("full", "other"):
        (tmp_path / name).mkdir()
    with Ledger.at(tmp_path / "full", "shop") as full, Ledger.at(tmp_path / "other", "shop") as other:
        for ledger, count in ((full, 20), (other, 1)):
            for number in range(count):
                ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=(f"{number}",)))
            assert ledger.flush(60)
        assert compact_ledger(read_in_process, tmp_path).in_full_folders == frozenset()
        monkeypatch.setattr(segment_files, "USUAL_MAX", 3_000)
        assert compact_ledger(read_in_process, tmp_path).in_full_folders == {full.process}


def test_a_ledger_whose_folder_is_full_is_not_complete_while_its_process_runs(tmp_path: Path) -> None:
    disk = RefusingDisk(10_000)
    with Ledger(LedgerOptions(directory=tmp_path, program="shop", free_bytes_min=0), disk=disk) as ledger:
        ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=("one",)))
        assert ledger.flush(60)
        assert find_coverage(compact_ledger(read_in_process, tmp_path)).is_complete
        disk.room = 10
        ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=("two",)))
        assert not ledger.flush(60)
        compacted = compact_ledger(read_in_process, tmp_path)
        assert ledger.process in compacted.running
        later = replace(compacted, read_ms=compacted.read_ms + 2 * WRITE_LATE_MS)
        [unknown] = find_coverage(later).missing
        assert (unknown.process, unknown.hides_accepted) == (ledger.process, True)
        disk.room = None


def test_a_process_that_was_stopped_is_vouched_for_until_it_was_read_at_most() -> None:
    assert last_ms(read(shop(end=ProcessEnd(True, NOW + 5_000, "")))) == NOW
    assert last_ms(read(shop(end=ProcessEnd(True, LAST + 7, "")))) == LAST + 7
    assert last_ms(read(shop(end=ProcessEnd(False, NOW, "")))) == LAST


def test_a_process_whose_clock_was_set_is_vouched_for_only_in_the_time_that_is_sure() -> None:
    [found] = find_presences(read(shop(closed=True, offsets=(0, 10 * MINUTE))))
    assert (found.first_ms, found.last_ms) == (FIRST + 10 * MINUTE, LAST - 10 * MINUTE)
    [found] = find_presences(read(shop(closed=True, offsets=(-FIRST, FIRST))))
    assert (found.first_ms, found.last_ms) == (FIRST, FIRST)


def test_an_expected_writer_that_is_idle_and_runs_is_present_after_its_last_record() -> None:
    since = (ExpectedWriter(program="shop", since_ms=LAST + 1),)
    assert find_coverage(read(shop(), LivenessSeen(True, NOW, 9), since)).is_complete
    assert not find_coverage(read(shop(), None, since)).is_complete


def test_what_may_not_have_arrived_at_a_url_yet_is_not_vouched_for() -> None:
    def missing(window: LedgerSelection, *, has_locks: bool, closed_ms: int) -> list[str]:
        process = shop(closed=True)
        process.last_ms = closed_ms
        compacted = read(process, None, SHOP, has_locks=has_locks)
        return [each.reason for each in with_absent_in_window(find_coverage(compacted), compacted, window).missing]

    hour = LedgerSelection(NOW - ARRIVAL_MS)
    [reason] = missing(hour, has_locks=False, closed_ms=NOW - 54 * MINUTE)
    assert "later ones may not have arrived" in reason
    assert missing(hour, has_locks=False, closed_ms=NOW) == []
    assert missing(hour, has_locks=True, closed_ms=NOW - 54 * MINUTE) == []
    earlier = LedgerSelection(NOW - 2 * ARRIVAL_MS, NOW - ARRIVAL_MS)
    assert missing(earlier, has_locks=False, closed_ms=NOW - 100 * MINUTE) == [], "it has arrived by now"


@pytest.mark.parametrize(
    ("roles", "hides_accepted"),
    [((), True), (("client",), True), (("namespace",), True), (("namespace", "syphon"), True), (("syphon",), False)],
)
def test_only_a_syphon_that_is_absent_hides_no_acceptance(roles: tuple[str, ...], hides_accepted: bool) -> None:
    writer, idle = shop(closed=True), shop(closed=True)
    writer.roles, idle.roles = [*roles], []
    compacted = replace(read(idle, None, SHOP), manifest=Manifest(processes={"aa": writer, "bb": idle}))
    absent = with_absent_in_window(find_coverage(compacted), compacted, WINDOW).missing
    assert [each.hides_accepted for each in absent if each.program == "shop on *"] == [hides_accepted]


@pytest.mark.parametrize("clock", [{"is_unset": True}, {"ahead_ms": 90 * MINUTE}, {}])
def test_what_is_recorded_by_a_wrong_clock_may_be_of_any_window(clock: dict[str, Any]) -> None:
    process = shop(closed=True)
    process.clock = ClockCheck(offsets=[0, 0], **clock)
    compacted = read(process)
    coverage, clocks = find_coverage(compacted), find_clocks(compacted.manifest.processes, (), ())
    for window in (LedgerSelection(None, FIRST - MINUTE), WINDOW):
        assert knows_all_accepted(coverage, window, clocks) is not bool(clock)


def test_a_client_that_was_read_by_an_older_version_takes_messages() -> None:
    assert [each.takes_messages for each in find_presences(read(shop(closed=True)))] == [True]
    later, before = shop(closed=True), shop(closed=True)
    later.uses, before.uses = ["receives"], ["receives", "sends"]
    assert [each.takes_messages for each in find_presences(read(later))] == [False]
    later.add(before)
    assert [each.takes_messages for each in find_presences(read(later))] == [True]


def test_pauses_are_restarts_only_if_they_are_few() -> None:
    def chain(pause_ms: int, count: int) -> list[LedgerPresence]:
        each_ms = 60 * MINUTE // count
        return [
            LedgerPresence("web-1", "shop", at, at + each_ms - pause_ms, ("client",))
            for at in range(0, 60 * MINUTE, each_ms)
        ]

    window = LedgerSelection(0, 60 * MINUTE)
    assert unkept_time(window, chain(5_000, 6), NOW) is None
    assert unkept_time(window, chain(60_000 - 10, 60), NOW) == (MINUTE + 10, 2 * MINUTE)
    assert unkept_time(window, [LedgerPresence("web-1", "syphon", 0, NOW)], NOW) == (0, 60 * MINUTE)
