"""A cluster of four workers with two cores each, whose executors come when they are needed, and are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from backlog_messages import backlog_messages_for, fill
from served import Served
from spark_backlog import ids_of
from spark_cluster import EXECUTOR, Drain, SparkCluster, until

from twinbus.ledger import Kind
from twinbus.ledger.lines import Flaw, read_line
from twinbus.ledger.reading.segment_files import segments_in
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.spark.drain.options import PREFETCH as WINDOW

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

WORKERS, CORES = 4, 2
MESSAGES = 160_000
"""For as many tasks as there could be cores."""
ELASTIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": str(WORKERS),
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.executor.cores": str(CORES),
}


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served, SparkCluster]]:
    folder = tmp_path_factory.mktemp("elastic")
    with Served("contoso", folder / "data") as primary, Served("backup", folder / "data") as secondary:
        secondary.admin.create_queue(backlog_path("contoso", 0), max_delivery_count=2_147_483_647)
        strings = {"TWINBUS_PRIMARY": primary.connection_string, "TWINBUS_SECONDARY": secondary.connection_string}
        place = folder / "spark"
        place.mkdir()
        with SparkCluster(place, strings, workers=WORKERS, cores=CORES, settings=ELASTIC) as cluster:
            yield primary, secondary, cluster


def progress_of(out: str) -> list[dict[str, Any]]:
    return [each for each in map(json.loads, out.splitlines()) if each["event"] == "progress"]


def arrived_at(primary: Served) -> Counter[str]:
    return asyncio.run(ids_of(primary.connection_string, "orders"))


def home_by(cluster: SparkCluster) -> int:
    """Messages that the ledger calls home so far."""
    segments = segments_in(cluster.folder / "ledger") if (cluster.folder / "ledger").exists() else []
    lines = [line for segment in segments for line in segment.read_bytes().splitlines()]
    records = [record for record in map(read_line, lines) if not isinstance(record, Flaw)]
    return sum(len(record.message_ids) for record in records if record.kind == Kind.SENT_HOME)


def killed_in_the_middle(drain: Drain, primary: Served, cluster: SparkCluster) -> tuple[str, int]:
    """What the drain said when it had ended well, and how many executors had come before two were killed."""
    until(lambda: len(cluster.processes(EXECUTOR)) == WORKERS or drain.process.poll() is not None, "all have come")
    assert drain.process.poll() is None, drain.ended()
    until(lambda: bool(home_by(cluster)), "something is home")  # by the ledger: a slow namespace answers no peeks
    victims = sorted(cluster.processes(EXECUTOR))[:2]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    assert drain.process.poll() is None, "it is in the middle"
    primary.clear()
    code, out, err = drain.ended()
    assert code == 0, err
    return out, len(victims)


def test_a_drain_is_as_wide_as_the_executors_that_may_come_and_survives_their_end(
    ends: tuple[Served, Served, SparkCluster],
) -> None:
    primary, secondary, cluster = ends
    primary.admin.create_queue("orders")
    fill(secondary.connection_string, backlog_path("contoso", 0), backlog_messages_for("orders", MESSAGES))
    primary.break_("slow", delay_ms=4_000)
    drain = cluster.drain("--queues", "1", "--ledger", str(cluster.folder / "ledger"), "--json", "--round", "10s")
    out, victims = killed_in_the_middle(drain, primary, cluster)
    shown = progress_of(out)
    done = json.loads(out.splitlines()[-1])
    assert shown[0]["tasks"] == WORKERS * CORES, "not the two cores that the first executor has"
    assert done["rounds"] >= 2, "it looked again what there is"
    arrived = arrived_at(primary)
    assert (done["ending"], done["left"], len(arrived)) == ("empty", 0, MESSAGES)
    assert len(done["executors"]) >= WORKERS - victims
    assert arrived.total() <= MESSAGES + victims * CORES * WINDOW * 2, "a window for each task that was killed"


def test_a_rate_and_a_number_are_those_of_all_tasks_together(ends: tuple[Served, Served, SparkCluster]) -> None:
    primary, secondary, cluster = ends
    before = len(arrived_at(primary))
    fill(secondary.connection_string, backlog_path("contoso", 0), backlog_messages_for("more", 12_000))
    primary.admin.create_queue("more")
    first = cluster.drain("--queues", "1", "--json", "--first", "500")
    code, out, err = first.ended()
    assert (code, json.loads(out.splitlines()[-1])["ending"]) == (3, "first"), err
    assert asyncio.run(ids_of(primary.connection_string, "more")).total() == 500
    done = cluster.drain("--queues", "1", "--json", "--rate", "800", "--tasks", "8", "--round", "5s").finished()
    assert done["ending"] == "empty"
    assert done["moved"] == 11_500
    assert done["elapsed_s"] >= 11_500 / 800 * 0.95
    assert len(arrived_at(primary)) == before
