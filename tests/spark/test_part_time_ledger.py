"""A primary that keeps a ledger only now and then: what it was not asked to record is not lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripted_ledger import BASE_MS, MINUTE, Script, write_lines

from twinbus.ledger import Event, Kind
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.compaction.manifest import NumberRange, Process
from twinbus.spark.compaction.namespace_records import RESTART_MS, primary_not_kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG_MS = 10 * RESTART_MS
CLIENT = Process(program="shop", first_ms=1, last_ms=10 * LONG_MS, roles=["client"], primaries=["Contoso"])


def primary(first_ms: int, last_ms: int, *, closed: bool = True, program: str = "contoso") -> Process:
    return Process(program=program, first_ms=first_ms, last_ms=last_ms, closed=closed, roles=["namespace"])


def test_a_primary_that_recorded_nothing_was_silent_at_no_particular_time() -> None:
    assert primary_not_kept([CLIENT]) == ()
    assert primary_not_kept([CLIENT, primary(5, 10, program="backup")]) == ()


def test_before_its_first_record_nothing_is_known() -> None:
    assert primary_not_kept([primary(7 * LONG_MS, 8 * LONG_MS), CLIENT, primary(2 * LONG_MS, 7 * LONG_MS)]) == (
        (0, 2 * LONG_MS),
    )
    assert primary_not_kept([primary(LONG_MS, LONG_MS)]) == ((0, LONG_MS),), (
        "where nobody has said which is the primary"
    )


def test_between_a_stop_and_a_start_it_may_have_worked_without_a_ledger() -> None:
    first, second = primary(LONG_MS, 2 * LONG_MS), primary(3 * LONG_MS, 4 * LONG_MS)
    assert primary_not_kept([CLIENT, second, first]) == ((0, LONG_MS), (2 * LONG_MS, 3 * LONG_MS))
    soon = primary(2 * LONG_MS + RESTART_MS, 4 * LONG_MS)
    assert primary_not_kept([CLIENT, first, soon]) == ((0, LONG_MS),), "a restart"


def test_after_a_kill_its_silence_is_what_one_looks_for() -> None:
    killed, again = primary(LONG_MS, 2 * LONG_MS, closed=False), primary(3 * LONG_MS, 4 * LONG_MS)
    assert primary_not_kept([CLIENT, killed, again]) == ((0, LONG_MS),)


def test_where_its_first_records_are_missing_it_kept_a_ledger_before_and_nobody_knows_since_when() -> None:
    first, second = primary(LONG_MS, 2 * LONG_MS), primary(3 * LONG_MS, 4 * LONG_MS)
    second.ranges = [NumberRange(4, 9, 3 * LONG_MS, 4 * LONG_MS)]
    assert primary_not_kept([CLIENT, first, second]) == ((0, LONG_MS),)
    assert primary_not_kept([CLIENT, second]) == ()


@pytest.mark.sample(1)
@pytest.mark.parametrize("begins_later", [True, False])
def test_messages_from_before_the_primary_kept_a_ledger_are_not_lost(
    spark: SparkSession, tmp_path: Path, begins_later: bool
) -> None:
    from twinbus.cost.prices import Prices
    from twinbus.spark.jobs.analysis import analyse

    day = 24 * 60 * MINUTE
    client, namespace = Script("0a", "client"), Script("0b", "contoso")
    if not begins_later:
        namespace.note(BASE_MS - MINUTE, Event(Kind.INVENTORY, "orders", "contoso", count=1))
    for number in range(5):
        early, late = BASE_MS + number * MINUTE, BASE_MS + day + number * MINUTE
        client.note(early, Event(Kind.ACCEPTED, "orders", "contoso", message_ids=(f"early-{number}",)))
        client.note(late, Event(Kind.ACCEPTED, "orders", "contoso", message_ids=(f"late-{number}",)))
        namespace.note(late, Event(Kind.STORED, "orders", "contoso", message_ids=(f"late-{number}",)))
        namespace.note(late + 500, Event(Kind.DELIVERED, "orders", "contoso", message_ids=(f"late-{number}",)))
    for script in (client, namespace):
        write_lines(tmp_path, script.process, script.lines())
    compacted = compact_ledger(read_in_process, tmp_path)
    found = analyse(spark, compacted, Prices(), horizon_min=15, tell=lambda _: None).reconciliation
    assert found.entities == {"orders": {"delivered": 5, "stored_on_primary" if begins_later else "lost": 5}}
