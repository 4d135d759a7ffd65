"""What keeps a ledger from telling everything, though no number is missing in it."""

from __future__ import annotations

from pathlib import Path

from ledger_story import BASE_MS, Script, write_lines

from twinbus.ledger import Event, Kind, Ledger, verify
from twinbus.spark.compaction.compaction import compact_ledger, one_by_one
from twinbus.spark.compaction.coverage import coverage_of


def test_an_event_that_could_not_be_written_down_is_one_that_is_missing(tmp_path: Path) -> None:
    with Ledger.at(tmp_path, "shop") as ledger:
        ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=("one",)))
        ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=("\ud800",)))
        ledger.flush()
        compact_ledger(one_by_one, tmp_path)
        ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=("\ud800",)))
    coverage = coverage_of(compact_ledger(one_by_one, tmp_path))
    assert not coverage.is_complete
    assert not coverage.knows_all_accepted
    [unknown] = coverage.unknown
    assert (unknown.program, unknown.records) == ("shop", 2)
    assert unknown.reason.startswith("events that could not be written down: UnicodeEncodeError: ")
    assert unknown.since_ms < unknown.until_ms <= coverage.last_ms + 1
    found = verify(tmp_path)
    assert (found.is_complete, [each.rejected for each in found.processes]) == (False, [2])


def test_what_a_syphon_could_not_write_down_hides_no_acceptance(tmp_path: Path) -> None:
    told = Script("00000000000000aa", "syphon")
    told.note(BASE_MS, Event(Kind.SENT_HOME, "orders", message_ids=("one",)))
    told.note(BASE_MS + 7, Event(Kind.REJECTED, reason="too large"))
    write_lines(tmp_path, told.process, told.lines())
    coverage = coverage_of(compact_ledger(one_by_one, tmp_path))
    assert (coverage.is_complete, coverage.knows_all_accepted) == (False, True)
    assert (coverage.unknown[0].since_ms, coverage.dark_until_ms) == (BASE_MS + 7, BASE_MS + 8)
