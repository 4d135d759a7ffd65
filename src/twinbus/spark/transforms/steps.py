"""Steps: out of ledger lines, for programs that read the segments themselves; and the namespace of their entity.

Two namespaces may each have a queue `orders`, and the secondary of a pair may keep a ledger too. So an entity of any
other namespace than the primary has the name of that namespace before its own, as in `backup:orders`; a colon is in no
path. Records of clients and syphons are about the primary, and so are those that name a backlog queue. If a ledger has
several primaries, all entities have the name of theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.kinds import FACTS
from twinbus.ledger.schema import CORRUPT_COLUMN, SCHEMA_VERSION
from twinbus.spark.compaction.primaries import NAMESPACE_MARK, UNNAMED
from twinbus.spark.compaction.steps import DAY_MS, LINE_SCHEMA, STEP_DDL, to_steps
from twinbus.spark.transforms.accounts import is_kind

RECORDED_BY_NAMESPACES = tuple(kind for kind, facts in FACTS.items() if "namespace" in facts.by)
"""Kinds whose `namespace` may be any: a namespace writes its own name."""


def steps(lines: DataFrame) -> DataFrame:
    """One row for each message of each line, or for a line without messages, as compaction makes them.

    `lines` is what `spark.read.schema(SPARK_SCHEMA).json(...)` gives. Damaged lines and those of a newer schema are
    left out; checksums are not checked and repeated records stay: compaction does both.
    """
    whole = lines.where(F.col(CORRUPT_COLUMN).isNull() & (F.col("v") <= SCHEMA_VERSION)).select(*LINE_SCHEMA.names)
    date = F.date_from_unix_date(F.floor(F.col("at_ms") / DAY_MS).cast("int"))
    return whole.mapInArrow(_to_step_batches, STEP_DDL).withColumn("date", date)


def _to_step_batches(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa  # type: ignore[import-untyped]

    for batch in batches:
        yield from to_steps(pa.Table.from_batches([batch]).cast(LINE_SCHEMA)).to_batches()


def with_namespace(steps: DataFrame, primaries: Collection[str]) -> DataFrame:
    """Add `is_foreign`: whether a step is about an entity of another namespace; and put its name before `entity`.

    `primaries`: the primary's name in lower case; more than one if the ledger has several primaries.
    """
    namespace, has_entity = F.lower("namespace"), F.col("entity") != ""
    is_foreign = (
        is_kind(*RECORDED_BY_NAMESPACES)
        & (F.col("queue") == "")
        & has_entity
        & ~namespace.isin("", UNNAMED, *sorted(primaries))
    )
    owner, is_named = (
        (namespace, is_foreign) if len(primaries) <= 1 else (_owner(), has_entity & ~_owner().isin("", UNNAMED))
    )
    named = F.when(is_named, F.concat(owner, F.lit(NAMESPACE_MARK), F.col("entity"))).otherwise(F.col("entity"))
    return steps.withColumns({"entity": named, "is_foreign": is_foreign})


def _owner() -> Column:
    """The namespace of an entity; a backlog queue begins with the name of its primary."""
    of_queue = F.regexp_extract(F.lower("queue"), r"^(.+)/x-servicebus-transfer/\d+", 1)
    return F.when(F.col("queue") != "", of_queue).otherwise(F.lower("namespace"))
