"""Every accepted message is somewhere, and exactly the planted ones are lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from duck_oracle import Oracle
from random_ledger import random_ledger
from scripted_ledger import (
    BASE_MS,
    MINUTE,
    PRIMARY,
    Scenario,
    Script,
    make_scenario,
    recorded_by_receivers,
    without_numbers,
    write_lines,
)

from twinbus.ledger import Event, Kind
from twinbus.spark.compaction.clocks import ProcessClock, ProcessClocks
from twinbus.spark.compaction.compaction import CompactedLedger, compact_ledger, read_in_process
from twinbus.spark.compaction.coverage import find_coverage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.spark.jobs.findings import Reconciliation

HORIZON_MIN = 15


def reconciled(spark: SparkSession, compacted: CompactedLedger) -> Reconciliation:
    from twinbus.spark.jobs.analysis import find_evidence, reconcile
    from twinbus.spark.jobs.compaction import steps_in
    from twinbus.spark.transforms.accounts import accounts
    from twinbus.spark.transforms.message_states import message_states, state_counts, watched

    found = message_states(accounts(steps_in(spark, compacted))).persist()
    coverage = find_coverage(compacted)
    return reconcile(state_counts(found), watched(found), coverage, find_evidence(compacted, coverage, HORIZON_MIN))


def verdicts(spark: SparkSession, compacted: CompactedLedger, missing_until_ms: int = 0) -> dict[tuple[str, str], str]:
    from twinbus.spark.jobs.compaction import steps_in
    from twinbus.spark.transforms.accounts import accounts, removals
    from twinbus.spark.transforms.message_states import message_states, state_counts, without_removed
    from twinbus.spark.transforms.reconciliation import Evidence, verdicts

    steps = steps_in(spark, compacted)
    states = message_states(accounts(steps)).persist()
    # As if each ran on a machine of its own, whose clock nobody ever set.
    clocks = ProcessClocks(tuple(ProcessClock(name, name, 0) for name in compacted.manifest.processes))
    evidence = Evidence(HORIZON_MIN, missing_until_ms, clocks=clocks)
    judged = verdicts(without_removed(states, removals(steps)), state_counts(states), evidence)
    return {(row["entity"], row["message_id"]): row["verdict"] for row in judged.collect()}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_exactly_the_planted_misfortunes_are_found(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    scenario = make_scenario(seed, 2000)
    scenario.write(tmp_path)
    compacted = compact_ledger(read_in_process, tmp_path)
    found = verdicts(spark, compacted)
    assert found == scenario.expected
    assert Oracle(compacted).verdicts(HORIZON_MIN) == scenario.expected


@pytest.mark.long
def test_receivers_record_what_was_delivered_where_no_namespace_does(spark: SparkSession, tmp_path: Path) -> None:
    from twinbus.spark.jobs.balance_frames import collect_rows
    from twinbus.spark.jobs.compaction import steps_in
    from twinbus.spark.transforms import ordering as order
    from twinbus.spark.transforms.accounts import accounts

    scenario = recorded_by_receivers(make_scenario(6, 2000))
    scenario.write(tmp_path)
    compacted = compact_ledger(read_in_process, tmp_path)
    assert verdicts(spark, compacted) == scenario.expected
    assert Oracle(compacted).verdicts(HORIZON_MIN) == scenario.expected
    assert sum(verdict == "delivered" for verdict in scenario.expected.values()) > 1500
    rows = collect_rows(
        order.ordering(order.ordering_by_session(order.sent_messages(accounts(steps_in(spark, compacted)))))
    )
    assert {row["basis"] for row in rows} == {"received"}
    assert {row["entity"]: (row["arrived"], row["late"]) for row in rows} == Oracle(compacted).late("received")


ONE, OTHER, DEAD = "/Subscriptions/one", "/subscriptions/other", "/$DeadLetterQueue"
WORDS: list[tuple[str, list[tuple[Kind, str]]]] = [
    ("stored_on_primary", [(Kind.ACCEPTED, "")]),
    ("delivered", [(Kind.ACCEPTED, ""), (Kind.RECEIVED, "")]),
    ("duplicated", [(Kind.ACCEPTED, ""), (Kind.RECEIVED, ""), (Kind.RECEIVED, "")]),
    ("delivered", [(Kind.ACCEPTED, ""), (Kind.DELIVERED, ""), (Kind.RECEIVED, "")]),
    ("delivered", [(Kind.ACCEPTED, ""), (Kind.DELIVERED, ""), (Kind.RECEIVED, ""), (Kind.RECEIVED, "")]),
    ("duplicated", [(Kind.ACCEPTED, ""), (Kind.DELIVERED, ""), (Kind.DELIVERED, ""), (Kind.RECEIVED, "")]),
    ("delivered", [(Kind.ACCEPTED, ""), (Kind.RECEIVED, ONE), (Kind.RECEIVED, OTHER)]),
    ("duplicated", [(Kind.ACCEPTED, ""), (Kind.RECEIVED, ONE), (Kind.RECEIVED, ONE.upper())]),
    ("dead_lettered", [(Kind.ACCEPTED, ""), (Kind.DEAD_LETTERED, "")]),
    ("dead_lettered", [(Kind.ACCEPTED, ""), (Kind.DEAD_LETTERED, ""), (Kind.RECEIVED, DEAD)]),
    ("delivered", [(Kind.ACCEPTED, ""), (Kind.RECEIVED, ONE), (Kind.DEAD_LETTERED, OTHER)]),
    ("stored_on_primary", [(Kind.ACCEPTED, ""), (Kind.RECEIVED, DEAD)]),
    ("stored_on_primary", [(Kind.ACCEPTED, ""), (Kind.RECEIVED, ONE + DEAD)]),
    ("delivered", [(Kind.STORED, ""), (Kind.ACCEPTED, ""), (Kind.RECEIVED, "")]),
    ("delivered", [(Kind.IN_DOUBT, ""), (Kind.RECEIVED, "")]),
    ("delivered", [(Kind.BACKLOGGED, ""), (Kind.RECEIVED, "")]),
    ("duplicated", [(Kind.ACCEPTED, ""), (Kind.SENT_HOME, ""), (Kind.RECEIVED, "")]),
    ("sent_elsewhere", [(Kind.RECEIVED, "")]),
    ("waiting", [(Kind.SPOOLED, "")]),
    ("waiting", [(Kind.SPOOLED, ""), (Kind.SPOOLED, ""), (Kind.LEFT_SPOOL, "")]),
    ("stored_on_primary", [(Kind.SPOOLED, ""), (Kind.SENT_HOME, "")]),
    ("stored_on_primary", [(Kind.SPOOLED, ""), (Kind.SENT_HOME, ""), (Kind.LEFT_SPOOL, "")]),
    ("delivered", [(Kind.SPOOLED, ""), (Kind.SENT_HOME, ""), (Kind.LEFT_SPOOL, ""), (Kind.RECEIVED, "")]),
    ("waiting", [(Kind.SPOOLED, ""), (Kind.MOVED_TO_BACKLOG, ""), (Kind.LEFT_SPOOL, "")]),
    ("lost", [(Kind.SPOOLED, ""), (Kind.LEFT_SPOOL, "")]),
    ("lost", [(Kind.SPOOLED, ""), (Kind.MOVED_TO_BACKLOG, ""), (Kind.LEFT_SPOOL, ""), (Kind.COMPLETED, "")]),
    ("dead_lettered", [(Kind.SPOOLED, ""), (Kind.SPOOL_DEAD_LETTERED, "")]),
    ("expired", [(Kind.SPOOLED, ""), (Kind.SPOOL_EXPIRED, "")]),
    ("in_doubt", [(Kind.SPOOL_IN_DOUBT, "")]),
    ("duplicated", [(Kind.ACCEPTED, ""), (Kind.SPOOLED, ""), (Kind.SENT_HOME, "")]),
]
"""A verdict, and what was recorded before it: what happened, and below which path of the entity."""


@pytest.mark.long
def test_a_receivers_word_counts_where_the_namespace_says_nothing(spark: SparkSession, tmp_path: Path) -> None:
    script = Script("0a", "any")
    for number, (_, recorded) in enumerate(WORDS):
        for later, (kind, below) in enumerate(recorded):
            script.note(BASE_MS + later, Event(kind, f"e{number}{below}", message_ids=("m",)))
    write_lines(tmp_path, script.process, script.lines())
    compacted = compact_ledger(read_in_process, tmp_path)
    expected = {(f"e{number}", "m"): verdict for number, (verdict, _) in enumerate(WORDS)}
    assert verdicts(spark, compacted) == expected
    assert Oracle(compacted).verdicts(HORIZON_MIN) == expected


@pytest.mark.long
def test_what_receivers_without_a_ledger_took_is_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    """One of two receivers records: how far it has come says nothing about the messages that the other one got."""
    client = Script("0a", "client")
    for number in range(100):
        at = BASE_MS + number * MINUTE
        client.note(at, Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",)))
        if number % 2:
            client.note(at + 5, Event(Kind.RECEIVED, "orders", message_ids=(f"{number}",), outcome="completed"))
    write_lines(tmp_path, client.process, client.lines())
    compacted = compact_ledger(read_in_process, tmp_path)
    found = reconciled(spark, compacted)
    assert found.entities == {"orders": {"delivered": 50, "stored_on_primary": 50}}
    assert (found.verdict, found.overtaken) == ("nothing lost", 0)
    assert Oracle(compacted).verdicts(HORIZON_MIN)["orders", "0"] == "stored_on_primary"


@pytest.mark.long
def test_a_message_in_a_spool_waits_whoever_passes_it(spark: SparkSession, tmp_path: Path) -> None:
    client = Script("0a", "client")
    for number in range(100):
        at = BASE_MS + number * MINUTE
        kind = Kind.SPOOLED if number < 10 else Kind.ACCEPTED
        client.note(at, Event(kind, "orders", message_ids=(f"{number}",)))
        if number >= 10:
            client.note(at + 5, Event(Kind.DELIVERED, "orders", message_ids=(f"{number}",)))
    write_lines(tmp_path, client.process, client.lines())
    found = reconciled(spark, compact_ledger(read_in_process, tmp_path))
    assert found.entities == {"orders": {"delivered": 90, "waiting": 10}}
    assert found.verdict == "nothing lost"


@pytest.mark.long
def test_any_ledger_at_all_is_judged_as_duckdb_judges_it(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(3):
        directory = tmp_path / f"{seed}"
        directory.mkdir()
        for script in random_ledger(seed, (30, 300, 900)[seed]):
            write_lines(directory, script.process, script.lines())
        compacted = compact_ledger(read_in_process, directory)
        assert verdicts(spark, compacted) == Oracle(compacted).verdicts(HORIZON_MIN)


def with_a_gap(scenario: Scenario, directory: Path, program: str, missing: set[int]) -> None:
    for name, script in scenario.scripts.items():
        lines = script.lines()
        write_lines(directory, script.process, without_numbers(lines, missing) if name == program else lines)


@pytest.mark.long
def test_a_gap_turns_lost_nothing_into_unknown(spark: SparkSession, tmp_path: Path) -> None:
    scenario = make_scenario(3, 600, misfortunes=0)
    scenario.write(tmp_path / "whole")
    whole = reconciled(spark, compact_ledger(read_in_process, tmp_path / "whole"))
    assert (whole.lost, whole.verdict) == (0, "nothing lost")
    assert whole.entities == scenario.counts()

    (tmp_path / "gap").mkdir()
    with_a_gap(scenario, tmp_path / "gap", "receiver", {200})
    torn = reconciled(spark, compact_ledger(read_in_process, tmp_path / "gap"))
    assert torn.lost is None
    assert torn.verdict.startswith("unknown: records are missing; 1 of ")
    assert torn.count("unknown") == 1
    assert torn.as_dict()["lost"] is None


@pytest.mark.long
def test_what_is_lost_after_the_gap_is_lost_for_certain(spark: SparkSession, tmp_path: Path) -> None:
    """On one machine: its clock says what was after."""
    scenario = make_scenario(4, 1500, misfortunes=2)
    for script in scenario.scripts.values():
        script.boot = "one"
    with_a_gap(scenario, tmp_path, "client1", {2})
    compacted = compact_ledger(read_in_process, tmp_path)
    found = reconciled(spark, compacted)
    lost = [name for name, verdict in scenario.expected.items() if verdict == "lost"]
    assert found.verdict == f"at least {len(lost)} lost; whether more is unknown: records are missing"
    assert {(row["entity"], row["message_id"]) for row in found.named if row["verdict"] == "lost"} == set(lost)
    dark = verdicts(spark, compacted, missing_until_ms=BASE_MS + 300 * MINUTE)
    assert {name for name, verdict in dark.items() if verdict == "unknown"} == set(lost)


@pytest.mark.long
def test_clocks_that_disagree_a_little_widen_the_horizon_and_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    scenario = make_scenario(5, 600, misfortunes=0)
    scenario.scripts["receiver"].ahead_ms = scenario.scripts["syphon"].ahead_ms = -30_000
    scenario.write(tmp_path)
    found = reconciled(spark, compact_ledger(read_in_process, tmp_path))
    assert (found.lost, found.verdict) == (0, "nothing lost")
    assert found.backwards_ms == pytest.approx(30_000, abs=2000)
    assert found.horizon_min == HORIZON_MIN + 1
    assert found.entities == scenario.counts()


@pytest.mark.long
def test_a_clock_that_is_wrong_makes_unknown_what_looks_lost_and_hides_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A client whose clock is a day ahead sends once, and what it sends is delivered."""
    scenario = make_scenario(5, 600, misfortunes=2)
    ahead, receiver = Script("00000000000000dd", "late shop", ahead_ms=86_400_000), scenario.scripts["receiver"]
    ahead.note(BASE_MS, Event(Kind.ACCEPTED, "ahead", PRIMARY, message_ids=("one",), sizes=(5,)))
    receiver.note(BASE_MS + 5, Event(Kind.DELIVERED, "ahead", PRIMARY, message_ids=("one",), sizes=(5,)))
    scenario.scripts["ahead"] = ahead
    scenario.write(tmp_path)
    found = reconciled(spark, compact_ledger(read_in_process, tmp_path))
    lost = {name for name, verdict in scenario.expected.items() if verdict == "lost"}
    assert found.horizon_min == HORIZON_MIN
    assert found.lost is None
    assert {(row["entity"], row["message_id"]) for row in found.named if row["verdict"] == "unknown"} >= lost


@pytest.mark.long
def test_a_receiver_that_stopped_has_lost_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """What nobody has overtaken waits, however long."""
    client, receiver = Script("0a", "client"), Script("0b", "receiver")
    for number in range(100):
        at = BASE_MS + number * MINUTE
        client.note(at, Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",)))
        if number < 50:
            receiver.note(at + 5, Event(Kind.DELIVERED, "orders", message_ids=(f"{number}",)))
        client.note(at, Event(Kind.ACCEPTED, "unseen", message_ids=(f"{number}",)))
    for script in (client, receiver):
        write_lines(tmp_path, script.process, script.lines())
    found = reconciled(spark, compact_ledger(read_in_process, tmp_path))
    assert found.entities == {
        "orders": {"delivered": 50, "stored_on_primary": 50},
        "unseen": {"stored_on_primary": 100},
    }
    assert found.verdict == "nothing lost"
    assert found.named == []


@pytest.mark.long
def test_an_acknowledgement_that_the_namespace_knows_nothing_of_is_a_loss(spark: SparkSession, tmp_path: Path) -> None:
    client, namespace = Script("0a", "client"), Script("0c", "contoso")
    for number in range(60):
        at = BASE_MS + number * MINUTE
        client.note(at, Event(Kind.ACCEPTED, "orders", message_ids=(f"{number}",)))
        if number != 7:
            namespace.note(at, Event(Kind.STORED, "orders", message_ids=(f"{number}",)))
        if number not in (7, 9):
            namespace.note(at, Event(Kind.DELIVERED, "orders", message_ids=(f"{number}",)))
    for script in (client, namespace):
        write_lines(tmp_path, script.process, script.lines())
    found = reconciled(spark, compact_ledger(read_in_process, tmp_path))
    assert found.entities == {"orders": {"delivered": 58, "lost": 1, "waiting": 1}}
    assert [row["message_id"] for row in found.named] == ["7"]
    assert found.overtaken == 1
