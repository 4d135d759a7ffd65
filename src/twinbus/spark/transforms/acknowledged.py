"""How many messages of the records belong to spans in which the service counted."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.compaction.primaries import NAMESPACE_MARK


class CountedSpan(NamedTuple):
    """Time in which the service counted without a break."""

    entity: str
    """In lower case; empty: the whole namespace."""
    metric: str
    grain_ms: int
    since_ms: int
    until_ms: int


def in_spans(accounts: DataFrame, spans: Collection[tuple[int, CountedSpan, int]], *, is_received: bool) -> DataFrame:
    """One row per number of a span that messages belong to: `least`, those that do for certain, each once, and `most`,
    every acknowledgement that may. A span comes with its number and its slack in milliseconds.

    `is_received`: by what receivers recorded, and not by what the primary acknowledged.
    """
    rows = [(number, span.entity, span.since_ms, span.until_ms, slack_ms) for number, span, slack_ms in spans]
    known = accounts.sparkSession.createDataFrame(
        rows, "number INT, _entity STRING, since_ms BIGINT, until_ms BIGINT, slack_ms BIGINT"
    )
    col = F.col
    if is_received:
        begin, end, sent = col("received_ms"), col("received_ms"), col("received")
    else:
        # A send whose answer failed to come may have been counted, too.
        begin, end = F.coalesce("acknowledged_ms", "first_ms"), F.coalesce("last_ack_ms", "first_ms")
        sent = col("accepted") + col("sent_home") + col("in_doubt")
    moments = accounts.where(~col("entity").contains(NAMESPACE_MARK)).select(
        "entity", begin.alias("begin_ms"), end.alias("end_ms"), sent.alias("sent"), col("in_doubt").alias("doubtful")
    )
    belongs = (col("_entity") == col("entity")) | (col("_entity") == "")
    joined = moments.where("sent > 0").join(F.broadcast(known), belongs)
    is_certain = (col("begin_ms") >= col("since_ms") + col("slack_ms")) & (
        col("end_ms") < col("until_ms") - col("slack_ms")
    )
    is_acknowledged = F.lit(True) if is_received else col("sent") > col("doubtful")
    may_be = (col("begin_ms") < col("until_ms") + col("slack_ms")) & (
        col("end_ms") >= col("since_ms") - col("slack_ms")
    )
    return joined.groupBy("number").agg(
        F.count_if(is_certain & is_acknowledged).alias("least"),
        F.sum(F.when(may_be, col("sent")).otherwise(0)).alias("most"),
    )
