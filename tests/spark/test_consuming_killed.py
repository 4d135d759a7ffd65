"""A stream that consumes, its Python workers and its driver killed. `make test-stream` does it on a cluster."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from backlog_messages import fill
from consuming_program import SECRET
from consuming_run import ConsumingRun, kill_on_the_way
from spark_backlog import ids_of
from spark_cluster import PYTHON_WORKER, command_of

from twinbus.spark.source.consuming.staged_files import FILE_MESSAGES_MAX
from twinbus.spark.source.rows import message_of
from twinbus.testing import LocalNamespace

MESSAGES, PER_TRIGGER = 12_000, 2_000


@pytest.mark.long
def test_messages_are_consumed_though_workers_and_the_driver_are_killed(tmp_path: Path) -> None:
    with LocalNamespace("contoso") as namespace:
        namespace.create_queue("orders", lock_ms=10_000, max_delivery_count=100)
        rows = [{"message_id": str(each), "body": b"x"} for each in range(MESSAGES)]
        fill(namespace.connection_string, "orders", [message_of(row, 0) for row in rows])
        environment = {SECRET: namespace.connection_string}
        run = ConsumingRun(tmp_path / "stream", "orders", "local[2,4]", PER_TRIGGER, environment)

        def workers() -> set[int]:
            return {pid for pid in run.processes if PYTHON_WORKER in command_of(pid)}

        victims = [workers, None, workers]
        kill_on_the_way(run, victims, 1, random.Random(7))
        delivered = run.delivered()
        assert set(delivered) == {str(each) for each in range(MESSAGES)}
        assert delivered.total() <= MESSAGES + len(victims) * 2 * FILE_MESSAGES_MAX
        assert asyncio.run(ids_of(namespace.connection_string, "orders")).total() == 0
