"""The ledger of a process: what is recorded is read back, by whichever way it got there."""

from __future__ import annotations

import errno
import logging
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ledger_disks import HangingDisk, RefusingDisk

from twinbus.errors import OptionsError
from twinbus.ledger import Event, Kind, Ledger, LedgerOptions, LedgerReader, Record, verify
from twinbus.ledger.reading.segment_files import segments_in
from twinbus.ledger.writing.segment import Disk


def read(directory: Path) -> list[Record]:
    reader = LedgerReader(directory)
    records = list(reader.records())
    assert reader.problems == []
    return records


def sent(number: int) -> Event:
    return Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",), sizes=(number,))


def ids_of(records: list[Record]) -> list[str]:
    return [record.message_ids[0] for record in records if record.message_ids]


def ledger_in(directory: Path, disk: Any = None, **options: Any) -> Ledger:
    return Ledger(LedgerOptions(directory=directory, **{"free_bytes_min": 0, **options}), disk=disk)


def test_what_was_recorded_is_read_back_in_order_between_opened_and_closed(tmp_path: Path) -> None:
    with Ledger.at(tmp_path, "shop") as ledger:
        for number in range(1000):
            ledger.record(sent(number))
    records = read(tmp_path)
    assert [record.number for record in records] == list(range(1, 1003))
    assert ids_of(records) == [f"{number}" for number in range(1000)]
    assert (records[0].kind, records[-1].kind) == (Kind.OPENED, Kind.CLOSED)
    assert {(record.process, record.pid, record.program) for record in records} == {
        (ledger.process, os.getpid(), "shop")
    }
    assert verify(tmp_path).is_complete


def test_times_are_those_of_the_recording(tmp_path: Path) -> None:
    before_ms, before_us = time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000
    with Ledger.at(tmp_path) as ledger:
        ledger.record(sent(1))
        after_ms, after_us = time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000
    record = read(tmp_path)[1]
    assert before_ms <= record.at_ms <= after_ms
    assert before_us <= record.monotonic_us <= after_us


def writers_since(before: set[threading.Thread]) -> list[threading.Thread]:
    """Threads of ledgers that were not there before: those of earlier tests may end at any time."""
    return [each for each in threading.enumerate() if each.name == "twinbus-ledger" and each not in before]


def open_files(directory: Path) -> list[Path]:
    """What this process has open in there."""
    targets = [Path(os.path.realpath(each)) for each in Path("/proc/self/fd").iterdir()]
    return [target for target in targets if target.is_relative_to(directory.resolve())]


def test_a_ledger_that_records_nothing_leaves_no_file_and_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with Ledger.at(tmp_path) as ledger:
        assert ledger.flush()
        assert writers_since(before) == []
    assert list(tmp_path.iterdir()) == []


def test_closing_leaves_no_thread_and_no_open_file(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with Ledger.at(tmp_path) as ledger:
        ledger.record(sent(1))
        assert ledger.flush()
        assert (len(writers_since(before)), len(open_files(tmp_path))) == (1, 1)
    assert (writers_since(before), open_files(tmp_path)) == ([], [])
    assert ledger.close()


def test_a_flush_returns_when_everything_so_far_is_in_a_file(tmp_path: Path) -> None:
    with ledger_in(tmp_path, write_interval_s=60) as ledger:
        for number in range(10):
            ledger.record(sent(number))
            assert ledger.flush()
            assert ids_of(read(tmp_path))[-1] == f"{number}"
        assert verify(tmp_path).processes[0].ending == "running"


def test_what_is_recorded_after_closing_is_counted_as_lost_and_nothing_else(tmp_path: Path) -> None:
    with Ledger.at(tmp_path) as ledger:
        ledger.record(sent(1))
    ledger.record(sent(2))
    assert ledger.health().lost == 1
    assert ids_of(read(tmp_path)) == ["1"]


def test_threads_that_record_at_once_lose_nothing_and_share_the_numbers(tmp_path: Path) -> None:
    def record_many(thread: int) -> None:
        for number in range(500):
            ledger.record(sent(thread * 1000 + number))

    with Ledger.at(tmp_path) as ledger:
        threads = [threading.Thread(target=record_many, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    records = read(tmp_path)
    assert [record.number for record in records] == list(range(1, 4003))
    assert len(set(ids_of(records))) == 4000


def test_a_signal_handler_may_record(tmp_path: Path) -> None:
    with Ledger.at(tmp_path) as ledger:
        previous = signal.signal(signal.SIGUSR1, lambda *_: ledger.record(sent(7)))
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
        finally:
            signal.signal(signal.SIGUSR1, previous)
    assert ids_of(read(tmp_path)) == ["7"]


@pytest.mark.parametrize("nonsense", [None, 5, object(), Event(Kind.ACCEPTED, message_ids=(None,))])  # type: ignore[arg-type]
def test_an_event_that_is_none_raises_nothing_and_leaves_a_trace(tmp_path: Path, nonsense: Any) -> None:
    with Ledger.at(tmp_path) as ledger:
        ledger.record(nonsense)
        ledger.record(sent(1))
    records = read(tmp_path)
    assert [record.kind for record in records] == [Kind.OPENED, Kind.REJECTED, Kind.ACCEPTED, Kind.CLOSED]


@pytest.mark.parametrize("kind", [Kind.OPENED, Kind.CLOSED, "gap"])
def test_nobody_but_the_ledger_says_that_it_is_closed_or_has_a_gap(tmp_path: Path, kind: str) -> None:
    with Ledger.at(tmp_path) as ledger:
        ledger.record(Event(kind, missing_first=1, missing_last=9))
    assert [record.kind for record in read(tmp_path)] == [Kind.OPENED, Kind.REJECTED, Kind.CLOSED]


def test_a_large_segment_is_followed_by_another(tmp_path: Path) -> None:
    with ledger_in(tmp_path, segment_bytes_max=2000) as ledger:
        for number in range(30):
            ledger.record(sent(number))
            ledger.flush()
    segments = sorted(tmp_path.iterdir())
    assert len(segments) > 3
    assert all(segment.stat().st_size <= 2000 for segment in segments)
    assert ids_of(read(tmp_path)) == [f"{number}" for number in range(30)]


def test_an_old_segment_is_followed_by_another_and_held_until_then(tmp_path: Path) -> None:
    now = [0]
    options = LedgerOptions(directory=tmp_path, segment_age_max_s=10, free_bytes_min=0)
    with Ledger(options, monotonic_ns=lambda: now[0]) as ledger:
        ledger.record(sent(1))
        ledger.flush()
        now[0] = 10_000_000_000
        ledger.flush()
        assert verify(tmp_path).processes[0].ending == "running", "a process that is idle is not dead"
        ledger.record(sent(2))
    assert len(list(tmp_path.iterdir())) == 2
    assert ids_of(read(tmp_path)) == ["1", "2"]


def test_syncs_happen_when_asked_for_at_the_end_and_after_the_interval(tmp_path: Path) -> None:
    now, disk = [0], RefusingDisk()
    options = LedgerOptions(directory=tmp_path, sync_interval_s=5, free_bytes_min=0)
    with Ledger(options, disk=disk, monotonic_ns=lambda: now[0]) as ledger:
        ledger.record(sent(1))
        ledger.flush()
        assert disk.syncs == 0
        ledger.flush(sync=True)
        ledger.flush(sync=True)
        assert disk.syncs == 1, "what is synced is not synced again"
        now[0] = 5_000_000_000
        ledger.record(sent(2))
        ledger.flush()
        assert disk.syncs == 2
    assert disk.syncs == 3


class DustyDisk(Disk):
    """Knows the names of files that a power cut would take something from."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.dusty: set[str] = set()
        self.fails = False

    def create(self, path: Path) -> int:
        file = super().create(path)
        self.names[file] = path.name
        self.dusty.add(path.parent.name)
        return file

    def write(self, file: int, data: bytes | memoryview) -> int:
        self.dusty.add(self.names[file])
        return super().write(file, data)

    def sync(self, file: int) -> None:
        self._clean(self.names[file])

    def sync_ended(self, path: Path) -> None:
        super().sync_ended(path)
        self._clean(path.name)

    def sync_names(self, directory: Path) -> None:
        self._clean(directory.name)

    def _clean(self, name: str) -> None:
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.dusty.discard(name)


@pytest.mark.parametrize("every_s", [None, 3600.0])
def test_a_flush_with_sync_is_about_all_segments(tmp_path: Path, every_s: float | None) -> None:
    disk = DustyDisk()
    with ledger_in(tmp_path, disk, sync_interval_s=every_s, segment_bytes_max=1024) as ledger:
        for number in range(20):
            ledger.record(sent(number))
            ledger.flush()
        if every_s is None:
            assert len(disk.dusty) == len(segments_in(tmp_path)) + 1, "the system decides when, until somebody asks"
        segments_in(tmp_path)[2].rename(tmp_path / "moved away")
        assert ledger.flush(sync=True)
        assert {name for name in disk.dusty if (tmp_path / name).exists() or name == tmp_path.name} == set()
        disk.fails = True
        ledger.record(sent(20))
        assert not ledger.flush(sync=True)
        disk.fails = False
        assert ledger.flush(sync=True)
        ledger.record(sent(21))
    assert ledger.flush(sync=True)
    assert {name for name in disk.dusty if (tmp_path / name).exists() or name == tmp_path.name} == set()


def test_a_segment_that_could_not_be_synced_as_it_ended_is_synced_later(tmp_path: Path) -> None:
    disk = DustyDisk()
    with ledger_in(tmp_path, disk, sync_interval_s=3600.0, segment_bytes_max=1024) as ledger:
        ledger.record(sent(1))
        assert ledger.flush()
        disk.fails = True
        for number in range(2, 10):
            ledger.record(sent(number))
            ledger.flush()
        disk.fails = False
        assert ledger.flush(sync=True)
        assert disk.dusty == set()


def test_a_disk_that_hangs_holds_up_neither_a_record_nor_a_bounded_flush_nor_close(tmp_path: Path) -> None:
    disk = HangingDisk()
    ledger = ledger_in(tmp_path, disk)
    ledger.record(sent(1))
    assert not ledger.flush(0.01)
    assert disk.reached.wait(60)
    ledger.record(sent(2))
    assert not ledger.close(0.01)
    disk.let_go.set()
    assert ledger.close()
    assert ids_of(read(tmp_path)) == ["1", "2"]


def test_memory_is_bounded_while_the_disk_hangs_and_the_gap_is_recorded(tmp_path: Path) -> None:
    disk = HangingDisk()
    ledger = ledger_in(tmp_path, disk, memory_bytes_max=100_000)
    ledger.record(sent(0))
    ledger.flush(0.01)
    assert disk.reached.wait(60)
    for number in range(1, 1000):
        ledger.record(sent(number))
    health = ledger.health()
    assert health.waiting < 200
    assert health.lost == 1000 - health.waiting
    disk.let_go.set()
    assert ledger.close()
    (gap,) = verify(tmp_path).processes[0].missing
    assert gap.count == health.lost
    assert "100000 bytes" in gap.reason
    assert ids_of(read(tmp_path)) == [f"{number}" for number in range(health.waiting)]


def test_long_names_count_towards_the_memory(tmp_path: Path) -> None:
    disk = HangingDisk()
    ledger = ledger_in(tmp_path, disk, memory_bytes_max=1_000_000)
    ledger.record(sent(0))
    ledger.flush(0.01)
    for _ in range(100):
        ledger.record(Event(Kind.SENT_HOME, message_ids=("x" * 50_000,), session_ids=("y" * 50_000,)))
    assert ledger.health().waiting <= 11
    disk.let_go.set()
    ledger.close()


def test_a_burst_wakes_the_writer_before_memory_is_full(tmp_path: Path) -> None:
    deadline = time.monotonic() + 60
    with ledger_in(tmp_path, write_interval_s=60, memory_bytes_max=200_000) as ledger:
        for number in range(200):  # more than half of what there is room for
            ledger.record(sent(number))
        while not ledger.health().written:
            assert time.monotonic() < deadline, "the writer slept on"
            time.sleep(0)
        assert ledger.health().lost == 0


@pytest.mark.parametrize("wrong", ["write_interval_s", "memory_bytes_max", "segment_bytes_max", "directory_bytes_max"])
def test_an_option_out_of_range_is_named(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=wrong):
        LedgerOptions(directory=tmp_path, **{wrong: 0})  # type: ignore[arg-type]


def test_every_option_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=r"segment_age_max_s .*free_bytes_min"):
        LedgerOptions(directory=tmp_path, segment_age_max_s=0, free_bytes_min=-1)


def test_a_path_that_can_never_be_a_ledger_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OptionsError, match="file"):
            Ledger.at(path)


def test_a_directory_that_was_removed_is_made_again(tmp_path: Path) -> None:
    with Ledger.at(tmp_path / "a" / "b") as ledger:
        (tmp_path / "a" / "b").rmdir()
        ledger.record(sent(1))
    assert ids_of(read(tmp_path / "a" / "b")) == ["1"]


def test_trouble_is_logged_once_when_it_begins_and_once_when_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = RefusingDisk(room=0)
    with caplog.at_level(logging.WARNING, "twinbus.ledger"), ledger_in(tmp_path, disk) as ledger:
        ledger.record(sent(1))
        assert [ledger.flush() for _ in range(3)] == [False] * 3
        assert "No space left" in ledger.health().trouble
        disk.room = None
        assert ledger.flush()
        assert ledger.health().trouble == ""
    assert [("cannot be written" in message, "again" in message) for message in caplog.messages] == [
        (True, False),
        (False, True),
    ]


def test_what_is_made_later_is_recorded_as_of_when_it_was_handed_in(tmp_path: Path) -> None:
    ledger = Ledger.at(tmp_path)

    def make(entity: str) -> Event:
        return Event(Kind.ACCEPTED, entity)

    ledger.record_later(100, make, ("first",))
    ledger.record(Event(Kind.ACCEPTED, "second"))
    ledger.record_later(100, make, ("third", "too many arguments"))
    assert ledger.close()
    found = [(record.kind, record.entity) for record in LedgerReader(tmp_path).records()]
    assert found[1:4] == [("accepted", "first"), ("accepted", "second"), ("rejected", "")]
    assert [each.defect for each in verify(tmp_path).problems] == ["rejected"]
