"""Compaction on Spark: each task reads a chunk and writes its Parquet files; only what it read comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from twinbus.spark.compaction.chunk import Chunk, Read, compact
from twinbus.spark.compaction.compaction import Compacted, ReadAll, one_by_one
from twinbus.spark.compaction.manifest import STEPS
from twinbus.spark.compaction.primaries import homes
from twinbus.spark.compaction.steps import STEP_DDL
from twinbus.spark.transforms.namespaces import named_by_namespace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATTERNS = re.compile(r"[\[\]{}*?\\]")

LITTLE_BYTES = 32 << 20
"""So much is read in the time that workers take to start and to be asked."""


def on(spark: SparkSession, *, little_bytes: int = LITTLE_BYTES) -> ReadAll:
    """Reads on the executors, the largest chunks first so that none is left alone at the end; a little of it here."""

    def read_all(chunks: list[Chunk], store: Path) -> list[Read]:
        if sum(chunk.stop - chunk.start for chunk in chunks) <= little_bytes:
            return one_by_one(chunks, store)
        reads = {read.segment: read for read in _read_there(spark, chunks, store)}
        return [reads[chunk.segment] for chunk in chunks]

    return read_all


def _read_there(spark: SparkSession, chunks: list[Chunk], store: Path) -> Iterator[Read]:
    asked = [(msgspec.json.encode(chunk),) for chunk in sorted(chunks, key=lambda chunk: chunk.start - chunk.stop)]
    into = str(store.resolve())

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # type: ignore[import-untyped]

        for batch in batches:
            for asked_for in batch.column(0).to_pylist():
                done = compact(msgspec.json.decode(asked_for, type=Chunk), Path(into))
                yield pa.RecordBatch.from_pydict({"read": [msgspec.json.encode(done)]})

    frame = spark.createDataFrame(spark.sparkContext.parallelize(asked, len(asked)), "chunk BINARY")
    for row in frame.mapInArrow(read, "read BINARY").collect():
        yield msgspec.json.decode(bytes(row["read"]), type=Read)


def steps_in(spark: SparkSession, compacted: Compacted) -> DataFrame:
    """The steps in a store, with the column `date` that they are partitioned by; entities of other namespaces than the
    primary have the name of theirs before them.
    """
    steps = steps_of_files(spark, compacted.store, compacted.manifest.files)
    return named_by_namespace(steps, homes(compacted.manifest.processes.values()))


def steps_of_files(spark: SparkSession, store: Path, files: list[str]) -> DataFrame:
    """The steps in some of a store's files, as they were recorded."""
    schema = f"{STEP_DDL}, date DATE"
    if not files:
        return spark.createDataFrame([], schema)
    base = str(store / STEPS)  # unlike the others this is never taken for a pattern
    return spark.read.schema(schema).option("basePath", base).parquet(*paths_of(store, files))


def paths_of(store: Path, files: list[str]) -> list[str]:
    """The files as Spark is asked for them: it takes paths for patterns, and a folder may be called `[old] ledger`."""
    return [PATTERNS.sub(r"\\\g<0>", str(store / file)) for file in files]
