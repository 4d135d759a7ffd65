"""Compaction on Spark: each task reads a chunk and writes its Parquet files, or merges some of these; only a summary
comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from twinbus.spark.compaction.chunk import Chunk, ChunkResult, compact
from twinbus.spark.compaction.compaction import CompactedLedger, ReadChunks, read_in_process
from twinbus.spark.compaction.manifest import STEPS
from twinbus.spark.compaction.primaries import primary_names
from twinbus.spark.compaction.reading_processes import whereabouts
from twinbus.spark.compaction.step_merging import FileMerge, merge_files
from twinbus.spark.compaction.steps import STEP_DDL
from twinbus.spark.jobs.spark_files import WHOLE, elsewhere, spark_files
from twinbus.spark.session import is_connect
from twinbus.spark.transforms.steps import with_namespace
from twinbus.storage import Folder, open_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LITTLE_BYTES = 32 << 20
"""This much is read in the time that Python workers take to start."""


def on(spark: SparkSession) -> ReadChunks:
    """Reads chunks on the executors, the largest first so that none is left alone at the end; a few bytes here."""

    def read_chunks(chunks: list[Chunk], store: Folder) -> list[ChunkResult]:
        if sum(chunk.stop - chunk.start for chunk in chunks) <= LITTLE_BYTES:
            return read_in_process(chunks, store)
        results = {each.segment: each for each in _read_on_executors(spark, chunks, store)}
        there = {each.name for each in store.files(STEPS)}
        if not all(there.issuperset(each.files) for each in results.values()):
            raise elsewhere(store.where(STEPS))
        return [results[chunk.segment] for chunk in chunks]

    return read_chunks


def _read_on_executors(spark: SparkSession, chunks: list[Chunk], store: Folder) -> Iterator[ChunkResult]:
    asked = [msgspec.json.encode(chunk) for chunk in sorted(chunks, key=lambda chunk: chunk.start - chunk.stop)]
    into = whereabouts(store)

    def read(asked_for: bytes) -> bytes:
        return msgspec.json.encode(compact(msgspec.json.decode(asked_for, type=Chunk), open_folder(into)))

    for answer in _on_executors(spark, asked, read):
        yield msgspec.json.decode(answer, type=ChunkResult)


def merge_on(spark: SparkSession) -> Callable[[list[FileMerge], Folder], None]:
    """Merges step files on the executors, each a task; a few bytes here."""

    def merge(merges: list[FileMerge], store: Folder) -> None:
        if sum(each.bytes for each in merges) <= LITTLE_BYTES:
            for each in merges:
                merge_files(each, store)
            return
        into = whereabouts(store)

        def merge_one(asked_for: bytes) -> bytes:
            merge_files(msgspec.json.decode(asked_for, type=FileMerge), open_folder(into))
            return b""

        _on_executors(spark, [msgspec.json.encode(each) for each in merges], merge_one)

    return merge


def _on_executors(spark: SparkSession, asked: list[bytes], answer: Callable[[bytes], bytes]) -> list[bytes]:
    """The answers, each made by a task of its own."""

    def answers(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # type: ignore[import-untyped]

        for batch in batches:
            for each in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"answer": [answer(each)]})

    rows = [(each,) for each in asked]
    if is_connect(spark):  # it has no context to make partitions with
        frame = spark.createDataFrame(rows, "asked BINARY").repartition(len(rows))
    else:
        frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, len(rows)), "asked BINARY")
    return [bytes(row["answer"]) for row in frame.mapInArrow(answers, "answer BINARY").collect()]


def steps_in(spark: SparkSession, compacted: CompactedLedger) -> DataFrame:
    """The steps in a store, with their partition column `date`; entities of other namespaces than the primary have the
    name of their namespace before them.
    """
    steps = steps_of_files(spark, compacted.store, compacted.manifest.files)
    return with_namespace(steps, primary_names(compacted.manifest.processes.values()))


def steps_of_files(spark: SparkSession, store: Folder, files: list[str]) -> DataFrame:
    """The steps in some of a store's files, as they were recorded."""
    schema = f"{STEP_DDL}, date DATE"
    if not files:
        return spark.createDataFrame([], schema)
    there = spark_files(spark, store)
    base = f"{there.base}/{STEPS}"  # unlike the others, this is never read as a pattern
    return spark.read.schema(schema).options(basePath=base, **WHOLE).parquet(*there.paths(files))
