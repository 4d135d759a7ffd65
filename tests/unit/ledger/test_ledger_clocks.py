"""A clock that is wrong for a while, or was never set: it concerns its own process, is named, and hides nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_ledger import BASE_MS, MINUTE, Script, write_lines

from twinbus.ledger import Event, Kind, Ledger, LedgerOptions
from twinbus.spark.compaction.compaction import CompactedLedger, compact_ledger, read_in_process
from twinbus.spark.compaction.coverage import find_coverage
from twinbus.spark.jobs.merge import choose_bucket_ms

DAY_MS = 86_400_000


def compacted_ledger(directory: Path, *wrong_ms: int, program: str = "shop") -> CompactedLedger:
    """A ledger of records a second apart; each is as wrong as said."""
    clock = [0, 0]
    ledger = Ledger(
        LedgerOptions(directory=directory, program=program),
        clock_ns=lambda: (clock[0] + clock[1]) * 1_000_000,
        monotonic_ns=lambda: (clock[0] - BASE_MS + 5_000) * 1_000_000,
    )
    with ledger:
        for number, wrong in enumerate(wrong_ms):
            clock[:] = [BASE_MS + number * 1000, wrong]
            ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=(f"{number}",), sizes=(5,)))
            assert ledger.flush(60.0)
    return compact_ledger(read_in_process, directory)


def times_in(compacted: CompactedLedger) -> list[int]:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    tables = [
        pq.read_table(compacted.store.path() / file, columns=["number", "at_ms"]) for file in compacted.manifest.files
    ]
    return [
        at_ms for _, at_ms in sorted(row for table in tables for row in zip(*table.to_pydict().values(), strict=True))
    ]


@pytest.mark.parametrize("wrong", [DAY_MS, -DAY_MS, -BASE_MS, 365 * DAY_MS])
def test_one_record_from_a_clock_that_is_wrong_has_the_time_it_was_written(tmp_path: Path, wrong: int) -> None:
    compacted = compacted_ledger(tmp_path, 0, 0, wrong, wrong + 3, 0, 0)
    assert times_in(compacted)[1:-1] == [BASE_MS + number * 1000 for number in range(6)]
    coverage = find_coverage(compacted)
    assert (coverage.first_ms, coverage.last_ms) == (BASE_MS, BASE_MS + 5000)
    [process] = compacted.manifest.processes.values()
    assert (process.clock.count, abs(process.clock.most_ms - wrong) <= 3) == (2, True)
    [line] = coverage.clocks
    assert "the clock of" in line
    assert "was wrong by" in line
    assert coverage.is_complete


def test_a_clock_that_is_set_and_stays_is_left_alone(tmp_path: Path) -> None:
    compacted = compacted_ledger(tmp_path, 0, 0, DAY_MS, DAY_MS, DAY_MS)
    assert times_in(compacted)[-2] == BASE_MS + 4000 + DAY_MS
    assert (
        next(iter(compacted.manifest.processes.values())).clock.count <= 1
    )  # `closed`, written with the clock put back


def test_records_of_which_the_other_clock_says_nothing_are_left_alone(tmp_path: Path) -> None:
    script = Script("00000000000000aa", "shop")
    for number in range(5):
        script.note(BASE_MS + number * MINUTE, Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",)))
    write_lines(tmp_path, script.process, script.lines())
    compacted = compact_ledger(read_in_process, tmp_path)
    assert times_in(compacted)[1:-1] == [BASE_MS + number * MINUTE for number in range(5)]
    assert find_coverage(compacted).clocks == ()


def test_a_process_whose_clock_was_never_set_does_not_stretch_what_a_report_shows(tmp_path: Path) -> None:
    compacted_ledger(tmp_path, *[0] * 30)
    compacted = compacted_ledger(tmp_path, *[-BASE_MS] * 5, program="device")
    coverage = find_coverage(compacted)
    assert (coverage.first_ms, coverage.last_ms) == (BASE_MS, BASE_MS + 29_000)
    assert choose_bucket_ms(coverage.last_ms - coverage.first_ms) == 1000
    [unknown] = coverage.missing
    assert unknown.program == "device"
    assert "the clock of" in unknown.reason


def test_a_process_whose_clock_is_ahead_of_the_reader_is_named(tmp_path: Path) -> None:
    compacted_ledger(tmp_path, *[0] * 30)
    ahead = 100 * 365 * DAY_MS
    coverage = find_coverage(compacted_ledger(tmp_path, *[ahead] * 5, program="device"))
    assert coverage.last_ms == BASE_MS + 29_000
    [unknown] = coverage.missing
    assert (unknown.program, "is ahead" in unknown.reason) == ("device", True)
