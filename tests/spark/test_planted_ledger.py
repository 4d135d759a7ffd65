"""A large ledger with everything planted that can go wrong: exactly that is found.

`make test` takes 50,000 events, `make test-ledger` a million. What has to be found is known to whoever planted it, or
is counted in plain Python.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from plain_oracle import late_of_each_entity, messages_of_each_kind
from scripted_ledger import (
    BASE_MS,
    FIRST_BACK,
    FIRST_OUT,
    MINUTE,
    PRIMARY,
    SECOND_OUT,
    Scenario,
    make_scenario,
    without_numbers,
    write_lines,
)

from twinbus.cost.prices import Prices
from twinbus.ledger import Event, Kind
from twinbus.spark.compaction.compaction import compact_ledger
from twinbus.spark.jobs.findings import Findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENTITIES, MISFORTUNES, INVERSIONS = 5, 20, 30
EVENTS_PER_MESSAGE = 2.5
"""About: two for a message that went straight, five for one that took the detour."""
SIZES = [
    pytest.param(50_000, id="50k"),
    pytest.param(1_000_000, id="1M", marks=[pytest.mark.large, pytest.mark.timeout(1800)]),
]


def plant_inversions(scenario: Scenario, count: int) -> None:
    """Messages of a quiet entity, one a second; every third of them is delivered a minute late, `count` in all."""
    client, receiver = scenario.scripts["client1"], scenario.scripts["receiver"]
    for number in range(count * 3):
        at = BASE_MS + 5 * MINUTE + number * 1000
        common = {"namespace": PRIMARY, "message_ids": (f"quiet-{number}",), "sizes": (10,)}
        client.note(at, Event(Kind.ACCEPTED, "quiet", **common))  # type: ignore[arg-type]
        late = MINUTE if number % 3 == 0 else 0
        receiver.note(at + 500 + late, Event(Kind.DELIVERED, "quiet", **common))  # type: ignore[arg-type]
        scenario.expected["quiet", f"quiet-{number}"] = "delivered"
    client.note(BASE_MS + 30 * MINUTE, Event(Kind.ACCEPTED, "quiet", PRIMARY, message_ids=("quiet-last",)))
    receiver.note(BASE_MS + 30 * MINUTE + 1, Event(Kind.DELIVERED, "quiet", PRIMARY, message_ids=("quiet-last",)))
    scenario.expected["quiet", "quiet-last"] = "delivered"


def planted(events: int) -> Scenario:
    scenario = make_scenario(11, round(events / EVENTS_PER_MESSAGE), misfortunes=MISFORTUNES, entities=ENTITIES)
    plant_inversions(scenario, INVERSIONS)
    return scenario


def findings(spark: SparkSession, ledger: Path) -> Findings:
    from twinbus.spark.jobs.analysis import analyse
    from twinbus.spark.jobs.compaction import on

    return analyse(spark, compact_ledger(on(spark), ledger), Prices(), horizon_min=15, tell=lambda _: None)


@pytest.mark.long
@pytest.mark.parametrize("events", SIZES)
def test_exactly_what_was_planted_in_a_large_ledger_is_found(spark: SparkSession, tmp_path: Path, events: int) -> None:
    scenario = planted(events)
    scenario.write(tmp_path)
    found = findings(spark, tmp_path)
    assert found.coverage.records > events * 0.9
    assert found.coverage.is_complete
    assert found.reconciliation.entities == scenario.counts()
    assert_misfortunes_are_named(found, scenario)
    assert_outages_are_found(found)
    assert_order_is_found(found, tmp_path)
    assert_cost_is_found(found, tmp_path)


def assert_misfortunes_are_named(found: Findings, scenario: Scenario) -> None:
    lost = {name for name, verdict in scenario.expected.items() if verdict == "lost"}
    assert len(lost) == 3 * MISFORTUNES
    named = {(row["entity"], row["message_id"]) for row in found.reconciliation.named if row["verdict"] == "lost"}
    assert named == lost
    assert found.reconciliation.count("duplicated") == 3 * MISFORTUNES
    assert found.reconciliation.verdict == f"{len(lost)} lost"


def assert_outages_are_found(found: Findings) -> None:
    ends = ((FIRST_OUT, FIRST_BACK), (SECOND_OUT, None))
    expected = [
        (f"entity{number}", BASE_MS + begin, None if end is None else BASE_MS + end)
        for number in range(ENTITIES)
        for begin, end in ends
    ]
    assert [(row["entity"], row["failed_over_ms"], row["recovered_ms"]) for row in found.outages] == expected


def assert_order_is_found(found: Findings, ledger: Path) -> None:
    order = {row["entity"]: (row["arrived"], row["late"]) for row in found.ordering}
    assert order == late_of_each_entity(ledger)
    assert order["quiet"] == (INVERSIONS * 3 + 1, INVERSIONS)


def assert_cost_is_found(found: Findings, ledger: Path) -> None:
    counted = messages_of_each_kind(ledger)
    stages = {str(line.stage): line.use.messages for line in found.bills[0].lines}
    assert stages["receive from backlog"] == counted["received_from_backlog", True]
    assert stages["send home to primary"] == counted["sent_home", False]
    assert stages["receive from primary"] == counted["delivered", False] + counted["dead_lettered", False]


@pytest.mark.long
@pytest.mark.parametrize("events", SIZES)
def test_planted_gaps_are_found_and_turn_a_number_into_unknown(
    spark: SparkSession, tmp_path: Path, events: int
) -> None:
    scenario = make_scenario(12, round(events / EVENTS_PER_MESSAGE), misfortunes=0, entities=ENTITIES)
    gaps = {"receiver": {500, 501, 502}, "syphon": {40}, "client2": {77, 78, 200}}
    for name, script in scenario.scripts.items():
        write_lines(tmp_path, script.process, without_numbers(script.lines(), gaps.get(name, set())))
    found = findings(spark, tmp_path)
    holes = sorted((each.process, each.records) for each in found.coverage.missing)
    ids = {name: script.process for name, script in scenario.scripts.items()}
    assert holes == sorted(
        [(ids["receiver"], 3), (ids["syphon"], 1), (ids["client2"], 2), (ids["client2"], 1)],
    )
    assert found.reconciliation.lost is None
    assert found.reconciliation.verdict.startswith("unknown: records are missing")
    assert found.reconciliation.count("lost") == 0
