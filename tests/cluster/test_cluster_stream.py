"""A stream consumes 100,000 messages on a cluster, while executors, Python workers and drivers are killed."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pytest
from backlog_messages import fill
from consuming_program import SECRET
from consuming_run import ConsumingRun, kill_on_the_way
from served import KEY, Served
from spark_backlog import ids_of
from spark_cluster import EXECUTOR, PYTHON_WORKER, SparkCluster

from twinbus.spark.source.consuming.staged_files import FILE_MESSAGES_MAX
from twinbus.spark.source.rows import message_of

pytestmark = [pytest.mark.stream, pytest.mark.timeout(1_500)]

MESSAGES, PER_TRIGGER, PER_FILL = 100_000, 8_000, 10_000
KILLED_AT_WORK = 2
"""Tasks that run at a time, on two workers of one core each."""


@pytest.mark.parametrize("seed", [1])
def test_100_000_messages_are_consumed_through_kills_of_drivers_and_executors(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with Served("contoso", tmp_path / "data") as namespace:
        namespace.admin.create_queue("orders", lock_duration="PT20S", max_delivery_count=100)
        for first in range(0, MESSAGES, PER_FILL):
            rows = [{"message_id": str(each), "body": b"x" * 100} for each in range(first, first + PER_FILL)]
            fill(namespace.connection_string, "orders", [message_of(row, 0) for row in rows])
        place = tmp_path / "spark"
        place.mkdir()
        environment = {SECRET: namespace.connection_string}
        with SparkCluster(place, environment) as cluster:
            run = ConsumingRun(
                tmp_path / "stream",
                "orders",
                cluster.url,
                PER_TRIGGER,
                environment | {"SPARK_CONF_DIR": str(place / "conf"), "SPARK_LOCAL_IP": "127.0.0.1"},
            )

            def an_executor() -> set[int]:
                return set(sorted(cluster.processes(EXECUTOR))[:1])

            def python_workers() -> set[int]:
                return cluster.processes(PYTHON_WORKER)

            victims = [python_workers, an_executor, None, an_executor, None, python_workers]
            chance.shuffle(victims)
            kill_on_the_way(run, victims, 2, chance)
            assert cluster.files_with(KEY) == []
        delivered = run.delivered()
        repeated = delivered.total() - len(delivered)
        left = asyncio.run(ids_of(namespace.connection_string, "orders")).total()
        sys.stdout.write(f"{len(delivered):,} delivered, {repeated:,} times one again, {left:,} left\n")
        assert (len(delivered), left) == (MESSAGES, 0), "each is delivered, and gone from the queue"
        assert repeated <= len(victims) * KILLED_AT_WORK * FILE_MESSAGES_MAX, "a chunk for each task that was killed"
