"""Ledger, forecast and the meters of the namespaces agree about one and the same scenario (C1 to C3)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import cost_scenario
import pytest
from cost_scenario import DETOURED, DIRECT, ENTITIES, LOOKS, PINGS, QUEUES, USAGE, looks_of_clients, metered

from twinbus.cost.bill import Use
from twinbus.cost.forecast import ALIAS_BYTES, uses
from twinbus.cost.prices import Prices
from twinbus.cost.stages import Stage
from twinbus.ledger.kinds import DELIVERY_BYTES
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.testing import LocalNamespace, NamespacePair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AWAY = len(ENTITIES) * DETOURED
ALL = len(ENTITIES) * (DIRECT + DETOURED)
LARGE = len(ENTITIES)
"""Messages of two steps."""

Meter = Counter[tuple[str, str]]


class Counts:
    """The same scenario by all who have counted."""

    def __init__(self, primary: Meter, secondary: Meter, actual: dict[Stage, Use], ledger: Path) -> None:
        self.primary = primary
        self.secondary = secondary
        self.actual = actual
        self.forecast = uses(USAGE)
        self.ledger = ledger


@pytest.fixture(scope="module")
def counts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Counts:
    from twinbus.client.aio import pair_runner as aio_pair_runner
    from twinbus.client.sync import pair_runner

    folder = tmp_path_factory.mktemp("agrees")
    with (
        pytest.MonkeyPatch.context() as patched,
        LocalNamespace("contoso", queues=ENTITIES) as primary,
        LocalNamespace("backup") as secondary,
    ):
        for module in (pair_runner, aio_pair_runner):  # no look but those of the scenario, however busy the machine is
            patched.setattr(module, "FIRST_RECHECK_S", 3_600.0)
        cost_scenario.run(NamespacePair(primary, secondary), folder)
        counted = metered(primary), metered(secondary)
    return Counts(*counted, actual_uses(spark, folder), folder)


def actual_uses(spark: SparkSession, ledger: Path) -> dict[Stage, Use]:
    from twinbus.spark.jobs.analysis import actual_cost
    from twinbus.spark.jobs.compaction import steps_in
    from twinbus.spark.transforms.traffic import traffic

    compacted = compact_ledger(read_in_process, ledger)
    found: dict[Stage, Use] = {}
    for month in actual_cost(traffic(steps_in(spark, compacted)), Prices()):
        for line in month.lines:
            found[line.stage] = found.get(line.stage, Use()) + line.use
    return found


@pytest.mark.long
def test_looks_and_queues_are_counted_alike_by_ledger_forecast_and_meter(counts: Counts) -> None:
    """One listing by each of two processes and one by the syphon, which a month has every 15 minutes; the queues; and
    two requests and a peek of each queue for every look.
    """
    looks = 2 * LOOKS
    expected = 2 + 1 + QUEUES + 2 * looks
    assert counts.secondary["manage", "operations"] == expected
    assert counts.actual[Stage.MANAGE].full == expected
    assert counts.forecast[Stage.MANAGE].full == expected - 1 + USAGE.searches
    assert counts.actual[Stage.MANAGE].documents == counts.forecast[Stage.MANAGE].documents == 0
    assert looks_of_clients(counts.ledger) == counts.forecast[Stage.LOOK].full == looks * QUEUES
    assert counts.secondary["peek", "operations"] == counts.actual[Stage.LOOK].full
    assert counts.actual[Stage.LOOK].documents == counts.forecast[Stage.LOOK].documents == 0


def test_pings_are_counted_alike_by_ledger_forecast_and_meter(counts: Counts) -> None:
    """Entities x clients x pings, with their bytes."""
    expected = len(ENTITIES) * PINGS
    assert counts.primary["ping", "operations"] == expected
    for counted in (counts.actual[Stage.PING], counts.forecast[Stage.PING]):
        assert (counted.documents, counted.full) == (expected, expected)
        assert counted.bytes == counts.primary["ping", "size"] > 0


def test_a_detour_is_four_charges_by_ledger_forecast_and_meter(counts: Counts) -> None:
    """To the backlog, from the backlog, home, and received there."""
    way = (Stage.SEND_BACKLOG, Stage.RECEIVE_BACKLOG, Stage.SEND_HOME)
    for stage in way:
        actual, forecast = counts.actual[stage], counts.forecast[stage]
        assert actual.messages == actual.documents == actual.full == AWAY, stage
        assert forecast.messages == forecast.documents == forecast.full == AWAY, stage
    assert counts.actual[Stage.RECEIVE].documents == ALL
    assert counts.secondary["send", "operations"] == counts.secondary["delivery", "operations"] == AWAY
    assert counts.primary["delivery", "operations"] == ALL


def test_the_full_rule_counts_steps_and_settlements_as_the_meter_does(counts: Counts) -> None:
    actual = counts.actual
    sent = actual[Stage.SEND].full + actual[Stage.SEND_HOME].full
    assert sent == counts.primary["send", "steps"] == ALL + LARGE
    assert actual[Stage.SEND].documents == ALL - AWAY
    assert actual[Stage.RECEIVE].full == counts.primary["delivery", "steps"] == ALL + LARGE
    assert actual[Stage.SETTLE].full == counts.primary["settle", "operations"] == ALL
    assert actual[Stage.SETTLE_BACKLOG].full == counts.secondary["settle", "operations"] == AWAY
    assert counts.forecast[Stage.SETTLE_BACKLOG].full == AWAY
    assert actual[Stage.SETTLE].documents == actual[Stage.SETTLE_BACKLOG].documents == 0


def test_idle_waits_are_counted_alike_by_ledger_and_meter(counts: Counts) -> None:
    idle = counts.actual[Stage.IDLE]
    assert idle.documents == idle.full == counts.secondary["receive-grant", "operations"] >= QUEUES


def test_every_stage_has_the_bytes_that_the_meter_has(counts: Counts) -> None:
    actual = counts.actual
    assert actual[Stage.SEND].bytes + actual[Stage.SEND_HOME].bytes == counts.primary["send", "size"]
    assert actual[Stage.SEND_BACKLOG].bytes == counts.secondary["send", "size"]
    assert actual[Stage.RECEIVE_BACKLOG].bytes == counts.secondary["delivery", "size"]
    assert actual[Stage.LOOK].bytes == counts.secondary["peek", "size"] == 0
    # A receiver does not see what the service sent, only what the SDK made of it.
    assert actual[Stage.RECEIVE].bytes == pytest.approx(counts.primary["delivery", "size"], rel=0.01)


def test_the_bytes_of_the_forecast_are_enough_and_not_much_more(counts: Counts) -> None:
    for stage, slack in (
        (Stage.SEND_BACKLOG, ALIAS_BYTES),
        (Stage.RECEIVE_BACKLOG, ALIAS_BYTES + DELIVERY_BYTES),
        (Stage.SEND_HOME, 30),
    ):
        actual, forecast = counts.actual[stage].bytes, counts.forecast[stage].bytes
        assert actual <= forecast <= actual + AWAY * slack, stage
