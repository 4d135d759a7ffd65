"""What keeps a ledger from telling everything, though no number is missing in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scripted_ledger import BASE_MS, Script, write_lines

from twinbus.ledger import Event, Kind, Ledger, verify
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.compaction.coverage import find_coverage


def test_an_event_that_could_not_be_written_down_is_one_that_is_missing(tmp_path: Path) -> None:
    with Ledger.at(tmp_path, "shop") as ledger:
        ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=("one",)))
        ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=("\ud800",)))
        ledger.flush()
        compact_ledger(read_in_process, tmp_path)
        ledger.record(Event(Kind.ACCEPTED, "orders", message_ids=("\ud800",)))
    coverage = find_coverage(compact_ledger(read_in_process, tmp_path))
    assert not coverage.is_complete
    assert not coverage.knows_all_accepted
    [unknown] = coverage.missing
    assert (unknown.program, unknown.records) == ("shop", 2)
    assert unknown.reason.startswith("events that could not be written down: UnicodeEncodeError: ")
    assert unknown.since_ms < unknown.until_ms <= coverage.last_ms + 1
    found = verify(tmp_path)
    assert (found.is_complete, [each.rejected for each in found.processes]) == (False, [2])


def test_what_a_syphon_could_not_write_down_hides_no_acceptance(tmp_path: Path) -> None:
    records = Script("00000000000000aa", "syphon")
    records.note(BASE_MS, Event(Kind.SENT_HOME, "orders", message_ids=("one",)))
    records.note(BASE_MS + 7, Event(Kind.REJECTED, reason="too large"))
    write_lines(tmp_path, records.process, records.lines())
    coverage = find_coverage(compact_ledger(read_in_process, tmp_path))
    assert (coverage.is_complete, coverage.knows_all_accepted) == (False, True)
    assert (coverage.missing[0].since_ms, coverage.missing_until_ms) == (BASE_MS + 7, BASE_MS + 8)


def told_by(process: str, *events: Event) -> Script:
    records = Script(process, "somebody")
    for number, event in enumerate(events):
        records.note(BASE_MS + number, event)
    return records


def write(ledger: Path, *scripts: Script) -> None:
    for script in scripts:
        write_lines(ledger, script.process, script.lines())


def accepted(primary: str) -> Event:
    return Event(Kind.ACCEPTED, "orders", primary, message_ids=("one",))


def in_backlog(kind: Kind, primary: str) -> Event:
    return Event(kind, "orders", "backup", f"{primary}/x-servicebus-transfer/0", message_ids=("one",))


@pytest.mark.parametrize(
    "other",
    [
        accepted("fabrikam"),
        Event(Kind.SENT_HOME, "orders", "fabrikam", message_ids=("one",)),
        Event(Kind.PAIRED, namespace="fabrikam"),
        in_backlog(Kind.BACKLOGGED, "fabrikam"),
        in_backlog(Kind.RECEIVED_FROM_BACKLOG, "fabrikam"),
    ],
    ids=lambda event: event.kind,
)
def test_a_ledger_of_two_primaries_is_not_complete_and_says_why(tmp_path: Path, other: Event) -> None:
    write(tmp_path, told_by("0a", accepted("contoso")))
    assert find_coverage(compact_ledger(read_in_process, tmp_path)).is_complete
    write(tmp_path, told_by("0b", other))
    coverage = find_coverage(compact_ledger(read_in_process, tmp_path))
    [unknown] = coverage.missing
    assert unknown.reason == (
        "the ledger tells of several primaries (contoso, fabrikam): give each pair a folder of its own"
    )
    assert not coverage.knows_all_accepted
    assert coverage.missing_until_ms > BASE_MS * 1000


def test_both_namespaces_of_a_pair_may_write_to_one_ledger(tmp_path: Path) -> None:
    write(
        tmp_path,
        told_by("0a", accepted("contoso"), accepted("CONTOSO"), in_backlog(Kind.BACKLOGGED, "Contoso"), accepted("")),
        told_by("0b", Event(Kind.STORED, "orders", "contoso", message_ids=("one",))),
        told_by("0c", Event(Kind.STORED, "", "backup", "fabrikam/x-servicebus-transfer/3", message_ids=("one",))),
        told_by("0d", in_backlog(Kind.RECEIVED_FROM_BACKLOG, "contoso"), in_backlog(Kind.COMPLETED, "contoso")),
        told_by("0e", accepted("unnamed")),
    )
    assert find_coverage(compact_ledger(read_in_process, tmp_path)).missing == ()


def test_a_store_that_was_made_before_primaries_were_kept_is_read_on(tmp_path: Path) -> None:
    write(tmp_path, told_by("0a", accepted("contoso")))
    compacted = compact_ledger(read_in_process, tmp_path)
    file = compacted.store.path() / manifests.NAME
    kept = json.loads(file.read_bytes())
    for name in ("primaries", "rejected"):
        del kept["processes"]["0a"][name]
    file.write_text(json.dumps(kept))
    write(tmp_path, told_by("0b", accepted("fabrikam")))
    again = compact_ledger(read_in_process, tmp_path)
    assert [each.primaries for each in again.manifest.processes.values()] == [[], ["fabrikam"]]
    assert find_coverage(again).is_complete
