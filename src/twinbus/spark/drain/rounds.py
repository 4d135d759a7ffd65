"""Shards as one Spark job: a task each, `mapInArrow`, and a look at the backlog while it runs."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from twinbus.errors import OptionsError
from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.drain.plan import Shard
from twinbus.spark.drain.shard import ShardReport, drain_shard
from twinbus.spark.failures import spark_errors

if TYPE_CHECKING:
    from pyarrow import RecordBatch  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

TASKS_WITHOUT_CONTEXT = 8
"""If the number of cores is unknown, e.g. with Spark Connect."""
CANCEL_S = 0.2
SPECULATION = (
    "spark.speculation is on: Spark would start a second task for a queue that is still being emptied, and both would "
    "pump; start the session with spark.speculation=false"
)


def refuse_speculation(spark: SparkSession) -> None:
    """Raises `OptionsError` if Spark may run two attempts of a task at a time."""
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        raise OptionsError(SPECULATION)


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at a time, about. A cluster counts only executors that have come: the first is waited for."""
    try:
        if not str(spark.sparkContext.master).startswith("local"):
            spark.range(1).count()
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Connect has no context, and says so with errors of its own
        return TASKS_WITHOUT_CONTEXT


def run_round(
    spark: SparkSession,
    options: DrainOptions,
    shards: Sequence[Shard],
    *,
    every_s: float,
    look: Callable[[], None],
) -> list[ShardReport]:
    """All shards, each once; `look` is called every so often meanwhile, in this thread.

    Raises `TwinbusError` if Spark gives up. Whatever is raised meanwhile, an interrupt too, cancels the tasks.
    """
    tag = f"twinbus-drain-{secrets.token_hex(4)}"
    with ThreadPoolExecutor(1, "twinbus-drain") as pool:
        job = pool.submit(_run_job, spark, options, tuple(shards), tag)
        try:
            while not wait([job], every_s).done:
                look()
        except BaseException:
            while not wait([job], CANCEL_S).done:  # again and again: it may not have begun when it was cancelled first
                with suppress(Exception):  # the JVM may have had the same signal, and be gone
                    _cancel(spark, tag)
            raise
        return job.result()


def _run_job(spark: SparkSession, options: DrainOptions, shards: tuple[Shard, ...], tag: str) -> list[ShardReport]:
    with spark_errors():
        _tag(spark, tag)
        numbers = spark.range(0, len(shards), 1, len(shards))  # one a partition
        rows = numbers.mapInArrow(partial(_in_task, options, shards), "report STRING").collect()
    return [ShardReport(**json.loads(row["report"])) for row in rows]


def _tag(spark: SparkSession, tag: str) -> None:
    """Everything that this thread starts from now on has the tag; nothing else uses the thread."""
    if _is_connect(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.addJobTag(tag)


def _cancel(spark: SparkSession, tag: str) -> None:
    """What runs with the tag ends. Without Connect, tags of the session are not those of its jobs: they cancel none."""
    if _is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


def _is_connect(spark: SparkSession) -> bool:
    return ".connect." in type(spark).__module__


def _in_task(options: DrainOptions, shards: tuple[Shard, ...], batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Runs on an executor: drains the shards whose numbers arrive."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            report = asdict(drain_shard(options, shards[number], attempt))
            yield pa.RecordBatch.from_pydict({"report": [json.dumps(report)]})
