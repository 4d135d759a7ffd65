"""Shards as Spark jobs: one each, so that one that fails ends no other; and a look at the backlog while they run."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from twinbus.errors import OptionsError, TwinbusError
from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.drain.plan import Shard
from twinbus.spark.drain.shard import ShardReport, drain_shard
from twinbus.spark.failures import spark_errors
from twinbus.spark.session import is_connect

if TYPE_CHECKING:
    from pyarrow import RecordBatch  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

CANCEL_S = 0.2
THREADS_MAX = 256
"""Jobs at a time; further ones wait in the driver."""
NO_EXECUTOR = ""
"""Stands for the machine of a task that Spark gave up."""
SPECULATION = (
    "spark.speculation is on: Spark would start a second task for a queue that is still being emptied, and both would "
    "pump; start the session with spark.speculation=false"
)


def refuse_speculation(spark: SparkSession) -> None:
    """Raises `OptionsError` if Spark may run two attempts of a task at a time."""
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        raise OptionsError(SPECULATION)


def run_round(
    spark: SparkSession,
    options: DrainOptions,
    shards: Sequence[Shard],
    *,
    every_s: float,
    look: Callable[[], None],
) -> list[ShardReport]:
    """All shards, each once; `look` is called every so often meanwhile, in this thread.

    Raises `TwinbusError` if Spark gives up all of them; of some, their reports say why. Whatever is raised meanwhile,
    an interrupt too, cancels the tasks.
    """
    tag = f"twinbus-drain-{secrets.token_hex(4)}"
    with ThreadPoolExecutor(min(len(shards), THREADS_MAX), "twinbus-drain") as pool:
        jobs = [pool.submit(_run_job, spark, options, shard, tag) for shard in shards]
        try:
            while wait(jobs, every_s).not_done:
                look()
        except BaseException:
            while wait(jobs, CANCEL_S).not_done:  # again and again: some may not have begun when it was cancelled first
                with suppress(Exception):  # the JVM may have had the same signal, and be gone
                    _cancel(spark, tag)
            raise
    _raise_if_all_failed(jobs)
    return [_report(shard, job) for shard, job in zip(shards, jobs, strict=True)]


def _raise_if_all_failed(jobs: Sequence[Future[ShardReport]]) -> None:
    """What the first one raised; also what is no failure of Spark, of any of them."""
    errors = [job.exception() for job in jobs]
    unexpected = next((error for error in errors if error is not None and not isinstance(error, TwinbusError)), None)
    if unexpected is not None:
        raise unexpected
    if errors and errors[0] is not None and all(errors):
        raise errors[0]


def _report(shard: Shard, job: Future[ShardReport]) -> ShardReport:
    error = job.exception()
    return job.result() if error is None else ShardReport(shard.number, 0, NO_EXECUTOR, trouble=str(error))


def _run_job(spark: SparkSession, options: DrainOptions, shard: Shard, tag: str) -> ShardReport:
    with spark_errors():
        _tag(spark, tag)
        numbers = spark.range(0, 1, 1, 1)
        (row,) = numbers.mapInArrow(partial(_in_task, options, shard), "report STRING").collect()
    return ShardReport(**json.loads(row["report"]))


def _tag(spark: SparkSession, tag: str) -> None:
    """Everything that this thread starts from now on has the tag; nothing else uses the thread."""
    if is_connect(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.addJobTag(tag)


def _cancel(spark: SparkSession, tag: str) -> None:
    """What runs with the tag ends. Without Connect, tags of the session are not those of its jobs: they cancel none."""
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


def _in_task(options: DrainOptions, shard: Shard, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Runs on an executor: drains the shard for the one number that arrives."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    for batch in batches:
        reports = [json.dumps(asdict(drain_shard(options, shard, attempt))) for _ in range(batch.num_rows)]
        yield pa.RecordBatch.from_pydict({"report": reports})
