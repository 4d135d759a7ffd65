"""How many tasks a session can run at a time: now, or when executors come that it would ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twinbus.spark.failures import spark_errors
from twinbus.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ELASTIC_TASKS_MAX = 64
"""Where executors come as they are needed and nobody has said how many: every task has two connections."""
ELASTIC_SHARE = 20_000
"""Messages for which one more executor may be asked for: it takes some seconds to come."""
COUNTED = 100_000
Setting = Callable[[str], str | None]


def width_of(spark: SparkSession, depth: int) -> int:
    """About how many tasks can run at a time for so many messages."""
    seen = parallelism(spark)
    elastic = elastic_tasks(lambda name: setting(spark, name))
    return seen if elastic is None else max(seen, min(elastic, -(-depth // ELASTIC_SHARE)))


def elastic_tasks(setting: Setting) -> int | None:
    """How many tasks could run with every executor that dynamic allocation may start; None: there is none."""
    if (setting("spark.dynamicAllocation.enabled") or "").lower() != "true":
        return None
    most, cores = _number(setting("spark.dynamicAllocation.maxExecutors")), _number(setting("spark.executor.cores"))
    if cores is None and not (setting("spark.master") or "").startswith("spark://"):
        cores = 1  # but for standalone, where an executor takes all cores of a worker
    if most is None or cores is None or most * cores > ELASTIC_TASKS_MAX * 1_000:
        return ELASTIC_TASKS_MAX
    return max(1, most * (cores // (_number(setting("spark.task.cpus")) or 1)))


def parallelism(spark: SparkSession) -> int:
    """How many tasks the executors that have come run at a time, about. On a cluster the first one is waited for."""
    with spark_errors():
        if not is_local(spark):
            spark.range(1).count()
        if not is_connect(spark):
            return int(spark.sparkContext.defaultParallelism)
        # Connect has no context to ask. But Spark cuts a range into as many parts.
        return max(1, spark.range(COUNTED).selectExpr("spark_partition_id() AS part").distinct().count())


def is_local(spark: SparkSession) -> bool:
    """Whether tasks run on the machine of the driver."""
    return not is_connect(spark) and (setting(spark, "spark.master") or "").startswith("local")


def setting(spark: SparkSession, name: str) -> str | None:
    """A setting as the session has it; None: it is unset, or the session does not say."""
    from pyspark.errors import PySparkException

    try:
        value = spark.conf.get(name, None)
    except PySparkException:
        return None
    return None if value is None else str(value)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
