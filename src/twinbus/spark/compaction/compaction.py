"""Compacts a ledger: finds what is new, has it read, and adds it to the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from twinbus.errors import StoreError
from twinbus.ledger.reading.process_end import LastRecord, ProcessProbe
from twinbus.ledger.reading.segment_files import STORE_FOLDER, FoundSegments, segments_and_held
from twinbus.ledger.upkeep.expected import ExpectedWriter, load_expected
from twinbus.ledger.upkeep.pruning import PrunedProcess, load_pruned
from twinbus.ledger.writing.liveness import LivenessSeen
from twinbus.ledger.writing.segment import process_of
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.chunk import Chunk, ChunkResult, compact
from twinbus.spark.compaction.manifest import Manifest, Process, Segment, SkippedLines, overlap
from twinbus.storage import Folder, Location, open_folder

FOLDER = STORE_FOLDER
"""The default store of a ledger: a folder below its directory."""
SEGMENTS_PER_COMMIT = 1_000
CHECKED_EACH_RUN = ("changed", "unreadable")
"""Defects that a run finds again, if they are still there."""


@dataclass(frozen=True, slots=True)
class CompactedLedger:
    """A store as it is after a run."""

    store: Folder
    manifest: Manifest
    running: frozenset[str]
    """Processes that were running when the run began."""
    bytes_read: int
    segments_read: int
    read_ms: int = 0
    """When the run began, by the clock of this machine."""
    expected: tuple[ExpectedWriter, ...] = ()
    """The expected writers of the ledger."""
    pruned: dict[str, PrunedProcess] = field(default_factory=dict)
    """What was pruned from the ledger, by process."""
    marks: Mapping[str, LivenessSeen] = field(default_factory=dict)
    """The liveness marks of running processes, where they can be read."""
    has_locks: bool = True
    """Whether all segments are where file locks show who writes; at a URL the last ones may not have arrived yet."""
    in_full_folders: frozenset[str] = frozenset()
    """Running processes whose folder has reached the usual limit."""


ReadChunks = Callable[[list[Chunk], Folder], list[ChunkResult]]
"""Reads chunks into a store and returns the results in the same order."""


def compact_ledger(read_chunks: ReadChunks, ledger: Location, store: Location | None = None) -> CompactedLedger:
    """Add everything that is new in the ledger to its store.

    Raises `StoreError` if there is no such ledger, or if the store cannot be written.
    """
    into = store_of(ledger, store)
    read_ms = time.time_ns() // 1_000_000
    expected, pruned, found = load_expected(ledger), load_pruned(ledger).processes, segments_and_held(ledger)
    running = found.running
    with manifests.lock_store(into) as lease:
        manifest = manifests.load(into)
        chunks = list(find_new_chunks(found, manifest))
        _remove_uncounted(into, manifest)
        for at in range(0, len(chunks), SEGMENTS_PER_COMMIT):
            for result in read_chunks(chunks[at : at + SEGMENTS_PER_COMMIT], into):
                _add(manifest, _read_without_repeats(result, chunks, manifest, into))
            lease.check()
            manifests.save(into, manifest)
        _find_ends(manifest, running, ProcessProbe(found, read_ms))
        lease.check()
        manifests.save(into, manifest)  # with the segments that became shorter
    bytes_read = sum(chunk.stop - chunk.start for chunk in chunks)
    read = (bytes_read, len(chunks), read_ms)
    seen = (found.marks, not found.without_locks, found.in_full_folders)
    return CompactedLedger(into, manifest, running, *read, expected, pruned, *seen)


def store_of(ledger: Location, store: Location | None) -> Folder:
    """Where the store of a ledger is."""
    return open_folder(ledger).below(FOLDER) if store is None else open_folder(store)


def read_in_process(chunks: list[Chunk], store: Folder) -> list[ChunkResult]:
    """Read the chunks in this process, one after the other."""
    return [compact(chunk, store) for chunk in chunks]


def find_new_chunks(found: FoundSegments, manifest: Manifest) -> Iterator[Chunk]:
    """What was added to each segment since it was read; a segment that became shorter is noted in the manifest."""
    manifest.troubles = [each for each in manifest.troubles if each.defect not in CHECKED_EACH_RUN]
    for segment in found.segments:
        name, size = segment.name, segment.bytes
        known = manifest.segments.get(name, Segment())
        if size < known.bytes:
            text = f"shorter than the {known.bytes:,} bytes that were compacted; what they said is kept"
            manifest.troubles.append(SkippedLines(name, "changed", text, 1))
        elif size > known.bytes and size != known.bytes + known.torn_bytes:
            first_line = 1 if segment.is_compressed else known.lines + 1
            yield Chunk(name, segment.whereabouts, known.bytes, size, first_line, segment in found.held)


def _find_ends(manifest: Manifest, running: frozenset[str], look: ProcessProbe) -> None:
    """Find out how processes ended that did not close their ledger. It is kept: after the next start of the machine it
    can no longer be found.
    """
    for name, each in manifest.processes.items():
        if not each.closed and name not in running and each.end is None:
            last = each.ranges[-1].last if each.ranges else 0
            each.end = look.end_of(
                LastRecord(name, each.host, last, each.last_ms, each.wait_us, each.sync_us, each.boot)
            )


def _read_without_repeats(result: ChunkResult, chunks: list[Chunk], manifest: Manifest, store: Folder) -> ChunkResult:
    """The same result; if another segment had some of its records, the chunk is read again without them."""
    known = {name: manifest.processes[name].ranges for name in result.processes if name in manifest.processes}
    if not any(overlap(result.processes[name].ranges, ranges) for name, ranges in known.items()):
        return result
    chunk = next(chunk for chunk in chunks if chunk.segment == result.segment)
    store.delete(result.files)
    # A segment that is named by its process has only records of that.
    owners = {name: process_of(name) for name in manifest.segments}
    beside = [
        part
        for name, segment in manifest.segments.items()
        for part in segment.files
        if (owner := owners[name]) is None or owner in result.processes
    ]
    return compact(msgspec.structs.replace(chunk, known=known, beside=manifest.files_with(beside)), store)


def _add(manifest: Manifest, result: ChunkResult) -> None:
    segment = manifest.segments.setdefault(result.segment, Segment())
    segment.bytes += result.bytes
    segment.torn_bytes = result.torn_bytes
    segment.lines += result.lines
    segment.steps += result.steps
    segment.files = [*segment.files, *result.files]
    # A torn line of this segment has been read again.
    others = (each for each in manifest.troubles if each.defect != "torn" or each.segment != result.segment)
    manifest.troubles = [*others, *result.troubles]
    for name, found in result.processes.items():
        manifest.processes.setdefault(name, Process()).add(found)


def _remove_uncounted(store: Folder, manifest: Manifest) -> None:
    """Remove files of a run that died: only files that the manifest names count."""
    counted = set(manifest.files)
    there = {each.name for each in store.files(manifests.STEPS) if each.name.startswith(f"{manifests.STEPS}/date=")}
    missing = sorted(counted - there)
    if missing:
        raise StoreError(f"{store.where(missing[0])} is gone: remove {store.url} and compact the ledger again")
    store.delete_drafts(manifests.STEPS)
    store.delete(sorted(there - counted - set(manifest.replaced)))
