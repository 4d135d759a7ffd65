"""What the primary's silence proves, and whose ledger it is: from what is known of each process, without Spark."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from twinbus.ledger.reading.process_end import FOREVER_MS
from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.compaction.coverage import find_coverage
from twinbus.spark.compaction.manifest import Manifest, NumberRange, Process, SkippedLines
from twinbus.spark.compaction.namespace_records import RESTART_MS, NamespaceRecords, primary_records
from twinbus.spark.compaction.primaries import primary_names, split_name, unidentified_namespaces, unique_names
from twinbus.storage.local_folder import LocalFolder

DAY = 86_400_000
CLIENT = Process(program="shop", first_ms=1, last_ms=9 * DAY, closed=True, roles=["client"], primaries=["Contoso"])


def namespace(first_ms: int, last_ms: int, *, name: str = "contoso", closed: bool = True, holes: int = 0) -> Process:
    """With a hole in the middle of its records, if asked for."""
    middle = (first_ms + last_ms) // 2
    whole = [NumberRange(1, 9, first_ms, last_ms)]
    torn = [NumberRange(1, 4, first_ms, middle - holes), NumberRange(6, 9, middle + holes, last_ms)]
    return Process(
        program=name,
        first_ms=first_ms,
        last_ms=last_ms,
        wait_us=100_000,
        closed=closed,
        roles=["namespace"],
        stores=[name],
        ranges=torn if holes else whole,
    )


def silence(
    *processes: Process, running: frozenset[str] = frozenset(), troubles: list[SkippedLines] | None = None
) -> NamespaceRecords:
    known = {f"{number}": each for number, each in enumerate(processes)}
    compacted = CompactedLedger(
        LocalFolder(Path()), Manifest(processes=known, troubles=troubles or []), running, 0, 0, read_ms=10 * DAY
    )
    return primary_records(compacted, find_coverage(compacted))


def test_a_ledger_is_complete_from_its_first_record_to_its_last() -> None:
    found = silence(CLIENT, namespace(DAY, 2 * DAY))
    assert (found.is_kept, found.complete) == (True, ((DAY, 2 * DAY),))
    assert found.not_kept == ((0, DAY), (2 * DAY + 1, FOREVER_MS)), "before and after it was not kept"


def test_the_ledger_of_another_namespace_proves_nothing() -> None:
    assert silence(CLIENT, namespace(DAY, 2 * DAY, name="backup")) == NamespaceRecords()


def test_nobody_says_which_namespace_is_the_primary() -> None:
    assert silence(namespace(DAY, 2 * DAY)).complete == ()


def test_a_restart_is_no_hole_and_a_day_without_a_ledger_is() -> None:
    soon = namespace(2 * DAY + RESTART_MS, 3 * DAY)
    assert silence(CLIENT, namespace(DAY, 2 * DAY), soon).complete == ((DAY, 3 * DAY),)
    later = namespace(4 * DAY, 5 * DAY)
    assert silence(CLIENT, namespace(DAY, 2 * DAY), later).complete == ((DAY, 2 * DAY), (4 * DAY, 5 * DAY))


def test_records_that_are_missing_are_taken_out() -> None:
    hour = DAY // 24
    found = silence(CLIENT, namespace(DAY, 3 * DAY, holes=hour))
    assert found.complete == ((DAY, 2 * DAY - hour), (2 * DAY + hour, 3 * DAY))


def test_a_killed_namespace_has_recorded_everything_up_to_its_last_record() -> None:
    found = silence(CLIENT, namespace(DAY, 2 * DAY, closed=False))
    assert found.complete == ((DAY, 2 * DAY),)
    assert found.not_kept == ((0, DAY),), "after a kill its silence is what one looks for"
    assert not found.is_running


def test_what_a_killed_namespace_kept_is_dark_only_until_the_next_one_began() -> None:
    found = silence(CLIENT, namespace(DAY, 2 * DAY, closed=False), namespace(2 * DAY + 1000, 3 * DAY))
    assert found.complete == ((DAY, 2 * DAY), (2 * DAY + 1000, 3 * DAY))


def test_a_running_namespace_has_recorded_everything_up_to_its_last_record() -> None:
    found = silence(CLIENT, namespace(DAY, 2 * DAY, closed=False), running=frozenset({"1"}))
    assert (found.complete, found.is_running, found.read_ms) == (((DAY, 2 * DAY),), True, 10 * DAY)


def test_lines_that_nobody_can_read_may_be_of_any_process() -> None:
    damaged = [SkippedLines("some.jsonl", "unreadable", "no such file", 1)]
    found = silence(CLIENT, namespace(DAY, 2 * DAY), troubles=damaged)
    assert (found.is_kept, found.complete) == (True, ())


@pytest.mark.parametrize(
    ("processes", "called", "strange"),
    [
        ([CLIENT, namespace(1, 2), namespace(1, 2, name="Backup")], {"contoso"}, set()),
        ([namespace(1, 2, name="Fabrikam")], {"fabrikam"}, set()),
        ([namespace(1, 2), namespace(1, 2, name="backup")], set(), {"contoso", "backup"}),
        ([namespace(1, 2), namespace(1, 2, name="backup"), Process(secondaries=["Backup"])], {"contoso"}, set()),
        ([CLIENT, namespace(1, 2, name="fabrikam")], {"contoso"}, {"fabrikam"}),
        ([CLIENT, namespace(1, 2, name="backup"), Process(secondaries=["BACKUP"])], {"contoso"}, set()),
        ([CLIENT, Process(program="CONTOSO", first_ms=1)], {"contoso"}, set()),
    ],
)
def test_the_primary_is_whom_clients_name_or_the_only_namespace_there_is(
    processes: list[Process], called: set[str], strange: set[str]
) -> None:
    assert primary_names(processes) == called
    assert unidentified_namespaces(processes) == strange


def test_an_entity_of_another_namespace_has_its_name_before_it() -> None:
    assert split_name("backup:orders") == ("backup", "orders")
    assert split_name("orders/a") == ("", "orders/a")


def test_a_namespace_of_several_spellings_is_called_the_same_in_whatever_order_they_are_read() -> None:
    names = ("contoso", "Contoso", "CONTOSO", "backup")
    assert {tuple(unique_names(each)) for each in permutations(names)} == {("CONTOSO", "backup")}
    assert unique_names([*unique_names(["contoso", "backup"]), "Contoso"]) == ["Contoso", "backup"]
