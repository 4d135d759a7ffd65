"""Compaction on Spark: each task reads a chunk and writes its Parquet files; only a summary comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from twinbus.spark.compaction.chunk import Chunk, ChunkResult, compact
from twinbus.spark.compaction.compaction import CompactedLedger, ReadChunks, read_in_process
from twinbus.spark.compaction.manifest import STEPS
from twinbus.spark.compaction.primaries import primary_names
from twinbus.spark.compaction.steps import STEP_DDL
from twinbus.spark.session import is_connect
from twinbus.spark.transforms.steps import with_namespace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATTERNS = re.compile(r"[\[\]{}*?\\]")

LITTLE_BYTES = 32 << 20
"""This much is read in the time that Python workers take to start."""


def on(spark: SparkSession) -> ReadChunks:
    """Reads chunks on the executors, the largest first so that none is left alone at the end; a few bytes here."""

    def read_chunks(chunks: list[Chunk], store: Path) -> list[ChunkResult]:
        if sum(chunk.stop - chunk.start for chunk in chunks) <= LITTLE_BYTES:
            return read_in_process(chunks, store)
        results = {each.segment: each for each in _read_on_executors(spark, chunks, store)}
        return [results[chunk.segment] for chunk in chunks]

    return read_chunks


def _read_on_executors(spark: SparkSession, chunks: list[Chunk], store: Path) -> Iterator[ChunkResult]:
    asked = [(msgspec.json.encode(chunk),) for chunk in sorted(chunks, key=lambda chunk: chunk.start - chunk.stop)]
    into = str(store.resolve())

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # type: ignore[import-untyped]

        for batch in batches:
            for asked_for in batch.column(0).to_pylist():
                done = compact(msgspec.json.decode(asked_for, type=Chunk), Path(into))
                yield pa.RecordBatch.from_pydict({"read": [msgspec.json.encode(done)]})

    if is_connect(spark):  # it has no context to make partitions with
        frame = spark.createDataFrame(asked, "chunk BINARY").repartition(len(asked))
    else:
        frame = spark.createDataFrame(spark.sparkContext.parallelize(asked, len(asked)), "chunk BINARY")
    for row in frame.mapInArrow(read, "read BINARY").collect():
        yield msgspec.json.decode(bytes(row["read"]), type=ChunkResult)


def steps_in(spark: SparkSession, compacted: CompactedLedger) -> DataFrame:
    """The steps in a store, with their partition column `date`; entities of other namespaces than the primary have the
    name of their namespace before them.
    """
    steps = steps_of_files(spark, compacted.store, compacted.manifest.files)
    return with_namespace(steps, primary_names(compacted.manifest.processes.values()))


def steps_of_files(spark: SparkSession, store: Path, files: list[str]) -> DataFrame:
    """The steps in some of a store's files, as they were recorded."""
    schema = f"{STEP_DDL}, date DATE"
    if not files:
        return spark.createDataFrame([], schema)
    base = str(store / STEPS)  # unlike the others, this is never read as a pattern
    return spark.read.schema(schema).option("basePath", base).parquet(*escape_paths(store, files))


def escape_paths(store: Path, files: list[str]) -> list[str]:
    """The files with pattern characters escaped: a folder may be called `[old] ledger`."""
    return [PATTERNS.sub(r"\\\g<0>", str(store / file)) for file in files]
