"""Compacts a ledger: finds what is new, has Spark read it, and adds it to the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from twinbus.errors import StoreError
from twinbus.ledger.reader import segments_and_held
from twinbus.ledger.segment import process_of
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.chunk import Chunk, Read, compact
from twinbus.spark.compaction.manifest import Manifest, Process, Segment, Trouble
from twinbus.spark.compaction.number_ranges import overlap
from twinbus.spark.compaction.steps import STEP_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "compacted"
"""Where the store of a ledger is if nobody says otherwise: below its directory."""

LOOKED_AT_AGAIN = ("changed", "unreadable")


@dataclass(frozen=True, slots=True)
class Compacted:
    """A store as it is after a run."""

    store: Path
    manifest: Manifest
    running: frozenset[str]
    """Processes that were running when the run began."""
    bytes_read: int
    segments_read: int


def compact_ledger(
    spark: Callable[[], SparkSession], ledger: Path, store: Path | None = None, *, files_per_commit: int = 1000
) -> Compacted:
    """Add everything that is new in the ledger to its store. `spark` is called only if there is something to read.

    Raises `StoreError` if there is no such ledger, or if the store cannot be written.
    """
    store = store or ledger / FOLDER
    segments, growing = segments_and_held(ledger)
    running = frozenset(name[0] for name in map(process_of, growing) if name is not None)
    with manifests.held(store):
        manifest = manifests.load(store)
        chunks = list(new_chunks(segments, growing, manifest))
        _sweep(store, manifest)
        for at in range(0, len(chunks), files_per_commit):
            reads = _read_all(spark(), chunks[at : at + files_per_commit], store)
            for read in reads:
                _add(manifest, _without_repeats(read, chunks, manifest, store))
            manifests.save(store, manifest)
        if not chunks:
            manifests.save(store, manifest)  # what was found out about segments that changed
    return Compacted(store, manifest, running, sum(chunk.stop - chunk.start for chunk in chunks), len(chunks))


def new_chunks(segments: list[Path], growing: set[Path], manifest: Manifest) -> Iterator[Chunk]:
    """What has been added to each segment since it was read; a segment that became shorter is a trouble."""
    manifest.troubles = [each for each in manifest.troubles if each.defect not in LOOKED_AT_AGAIN]
    for path in segments:
        known = manifest.segments.get(path.name, Segment())
        try:
            size = path.stat().st_size
        except OSError:
            continue  # moved away meanwhile
        if size < known.bytes:
            text = f"shorter than the {known.bytes:,} bytes that were compacted; what they said is kept"
            manifest.troubles.append(Trouble(path.name, "changed", text, 1))
        elif size > known.bytes:
            yield Chunk(path.name, str(path.resolve()), known.bytes, size, known.lines + 1, path in growing)


def _read_all(spark: SparkSession, chunks: list[Chunk], store: Path) -> list[Read]:
    """Spread the chunks over the executors; the largest first, so that none is left alone at the end."""
    largest_first = sorted(chunks, key=lambda chunk: chunk.start - chunk.stop)
    asked = [(msgspec.json.encode(chunk),) for chunk in largest_first]
    into = str(store.resolve())

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # type: ignore[import-untyped]

        for batch in batches:
            for asked_for in batch.column(0).to_pylist():
                done = compact(msgspec.json.decode(asked_for, type=Chunk), Path(into))
                yield pa.RecordBatch.from_pydict({"read": [msgspec.json.encode(done)]})

    frame = spark.createDataFrame(spark.sparkContext.parallelize(asked, len(asked)), "chunk BINARY")
    rows = frame.mapInArrow(read, "read BINARY").collect()
    reads = {each.segment: each for each in (msgspec.json.decode(bytes(row["read"]), type=Read) for row in rows)}
    return [reads[chunk.segment] for chunk in chunks]


def _without_repeats(read: Read, chunks: list[Chunk], manifest: Manifest, store: Path) -> Read:
    """The same; read once more, without what is known, if another segment had some of its records."""
    known = {name: manifest.processes[name].ranges for name in read.processes if name in manifest.processes}
    if not any(overlap(read.processes[name].ranges, ranges) for name, ranges in known.items()):
        return read
    chunk = next(chunk for chunk in chunks if chunk.segment == read.segment)
    for file in read.files:
        (store / file).unlink(missing_ok=True)
    return compact(msgspec.structs.replace(chunk, known=known), store)


def _add(manifest: Manifest, read: Read) -> None:
    segment = manifest.segments.setdefault(read.segment, Segment())
    segment.bytes += read.bytes
    segment.lines += read.lines
    segment.steps += read.steps
    segment.files = [*segment.files, *read.files]
    manifest.troubles = [*manifest.troubles, *read.troubles]
    for name, found in read.processes.items():
        manifest.processes.setdefault(name, Process()).add(found)


def _sweep(store: Path, manifest: Manifest) -> None:
    """Remove what a run that died has left: nothing counts but what the manifest names."""
    counted = {store / file for file in manifest.files}
    missing = [file for file in counted if not file.exists()]
    if missing:
        raise StoreError(f"{missing[0]} is gone: remove {store} and compact the ledger again")
    for file in (store / manifests.STEPS).glob("date=*/*"):
        if file not in counted:
            file.unlink(missing_ok=True)
    for file in (store / manifests.STEPS).glob("date=*/.*.new"):
        file.unlink(missing_ok=True)


def steps_in(spark: SparkSession, compacted: Compacted) -> DataFrame:
    """The steps in a store, with the column `date` that they are partitioned by."""
    files = [str(compacted.store / file) for file in compacted.manifest.files]
    schema = f"{STEP_DDL}, date DATE"
    if not files:
        return spark.createDataFrame([], schema)
    base = str(compacted.store / manifests.STEPS)
    return spark.read.schema(schema).option("basePath", base).parquet(*files)
