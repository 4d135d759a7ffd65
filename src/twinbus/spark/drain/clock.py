"""A drain every so often, as a structured stream: a source that only ticks, and a drain at each tick.

A tick that is run again after a crash means "drain now" once more, so a replay does no harm, and a tick that finds the
backlog empty costs a peek a queue and a look for further queues, and starts no task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING

from twinbus.errors import TwinbusError
from twinbus.spark.drain.drain import Drained, DrainProgress, drain
from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.drain.rounds import refuse_speculation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CLOCK = "rate-micro-batch"


def drain_every(
    spark: SparkSession,
    options: DrainOptions,
    every_s: float,
    checkpoint: str,
    *,
    on_drained: Callable[[Drained], None],
    on_trouble: Callable[[TwinbusError], None],
    on_progress: Callable[[DrainProgress], None] = lambda _progress: None,
) -> StreamingQuery:
    """A running query; `stop` ends it. What fails at one tick is told, and tried again at the next."""
    refuse_speculation(spark)

    def tick(_rows: DataFrame, _number: int) -> None:
        try:
            fresh = replace(options, run=token_hex(4))
            on_drained(drain(spark, fresh, on_progress=on_progress, counts_quarantine=False))
        except TwinbusError as error:
            on_trouble(error)

    ticks = spark.readStream.format(CLOCK).option("rowsPerBatch", 1).option("numPartitions", 1).load()
    writer = ticks.writeStream.foreachBatch(tick).option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds").start()
