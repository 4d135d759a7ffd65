"""What a drain would do, without doing it; and when a syphon is the better choice."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from twinbus.spark.drain.drain import extents_of, shards_of
from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.drain.width import is_local, width_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_START_MESSAGES = 300_000
"""What one syphon brings home while Spark starts, at the rate of `make bench`."""
NOTHING = "nothing waits: there is nothing to drain"
SMALL = "take twinbus syphon --until-empty: one process has so few home before Spark has started"
LOCAL = (
    "take twinbus syphon --until-empty, and --processes if cores are idle while it runs: on one machine tasks do the "
    "same as syphons, and Spark takes cores for itself"
)
NARROW = "take twinbus syphon --until-empty: one task does what one syphon does"
WIDE = "take the drain if the namespaces accept more than one process sends: measure a round before you rely on it"


@dataclass(frozen=True, slots=True)
class DrainPlan:
    waiting: int
    """About how many messages wait."""
    queues: int
    width: int
    """How many tasks the session could run at a time."""
    tasks: list[tuple[int, tuple[int, ...], float | None]]
    """Number, backlog queues, and share of the rate."""
    advice: str

    def as_dict(self) -> dict[str, Any]:
        tasks = [{"task": number, "queues": list(queues), "rate_limit": rate} for number, queues, rate in self.tasks]
        return asdict(self) | {"tasks": tasks}


def plan_drain(spark: SparkSession, options: DrainOptions) -> DrainPlan:
    """The first round of a drain. Raises as `drain` does."""
    depths = {index: extent.depth for index, extent in extents_of(spark, options).items()}
    waiting = sum(depths.values())
    width = options.tasks or width_of(spark, waiting)
    shards = shards_of(depths, options, width)
    tasks = [(shard.number, shard.queues, shard.rate) for shard in shards]
    return DrainPlan(waiting, len(depths), width, tasks, advice(waiting, len(shards), is_local=is_local(spark)))


def advice(waiting: int, tasks: int, *, is_local: bool) -> str:
    """Which of the two to take, in one line."""
    if waiting == 0:
        return NOTHING
    if waiting <= SPARK_START_MESSAGES:
        return SMALL
    if tasks <= 1:
        return NARROW
    return LOCAL if is_local else WIDE
