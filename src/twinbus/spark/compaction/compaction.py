"""Compacts a ledger: finds what is new, has it read, and adds it to the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from twinbus.errors import StoreError
from twinbus.ledger import expected as expectations
from twinbus.ledger import pruned as notes
from twinbus.ledger.endings import Last, Look
from twinbus.ledger.expected import Writer
from twinbus.ledger.finding import STORE_FOLDER, Found, name_in, segments_and_held
from twinbus.ledger.pruned import PrunedProcess
from twinbus.ledger.segment import process_of
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.chunk import Chunk, Read, compact
from twinbus.spark.compaction.manifest import Manifest, Process, Segment, Trouble
from twinbus.spark.compaction.number_ranges import overlap

FOLDER = STORE_FOLDER
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
    read_ms: int = 0
    """When the run began, by the clock of this machine."""
    expected: tuple[Writer, ...] = ()
    """Who is expected to write to the ledger."""
    pruned: dict[str, PrunedProcess] = field(default_factory=dict)
    """What was pruned from it, of each process."""


ReadAll = Callable[[list[Chunk], Path], list[Read]]
"""Reads chunks into a store and says what they were, in the same order."""


def compact_ledger(
    read_all: ReadAll, ledger: Path, store: Path | None = None, *, segments_per_commit: int = 1000
) -> Compacted:
    """Add everything that is new in the ledger to its store.

    Raises `StoreError` if there is no such ledger, or if the store cannot be written.
    """
    store = store or ledger / FOLDER
    read_ms = time.time_ns() // 1_000_000
    expected, pruned, found = expectations.load(ledger), notes.load(ledger).processes, segments_and_held(ledger)
    running = frozenset(name[0] for name in map(process_of, found.held) if name is not None)
    with manifests.held(store):
        manifest = manifests.load(store)
        chunks = list(new_chunks(ledger, found, manifest))
        _sweep(store, manifest)
        for at in range(0, len(chunks), segments_per_commit):
            reads = read_all(chunks[at : at + segments_per_commit], store)
            for read in reads:
                _add(manifest, _without_repeats(read, chunks, manifest, store))
            manifests.save(store, manifest)
        _find_ends(manifest, running, Look(found, read_ms))
        manifests.save(store, manifest)  # also what was found out about segments that changed
    bytes_read = sum(chunk.stop - chunk.start for chunk in chunks)
    return Compacted(store, manifest, running, bytes_read, len(chunks), read_ms, expected, pruned)


def new_chunks(ledger: Path, found: Found, manifest: Manifest) -> Iterator[Chunk]:
    """What has been added to each segment since it was read; a segment that became shorter is a trouble."""
    manifest.troubles = [each for each in manifest.troubles if each.defect not in LOOKED_AT_AGAIN]
    for path in found.segments:
        name = name_in(ledger, path)
        known = manifest.segments.get(name, Segment())
        try:
            size = path.stat().st_size
        except OSError:
            continue  # moved away meanwhile
        if size < known.bytes:
            text = f"shorter than the {known.bytes:,} bytes that were compacted; what they said is kept"
            manifest.troubles.append(Trouble(name, "changed", text, 1))
        elif size > known.bytes and size != known.bytes + known.torn_bytes:
            yield Chunk(name, str(path.resolve()), known.bytes, size, known.lines + 1, path in found.held)


def _find_ends(manifest: Manifest, running: frozenset[str], look: Look) -> None:
    """How those ended that did not close their ledger. It is kept: the next start of the machine makes it unclear."""
    for name, each in manifest.processes.items():
        if not each.closed and name not in running and each.end is None:
            last = each.ranges[-1].last if each.ranges else 0
            each.end = look.end_of(Last(name, each.host, last, each.last_ms, each.wait_us, each.sync_us, each.boot))


def one_by_one(chunks: list[Chunk], store: Path) -> list[Read]:
    """Read the chunks here, one after the other."""
    return [compact(chunk, store) for chunk in chunks]


def _without_repeats(read: Read, chunks: list[Chunk], manifest: Manifest, store: Path) -> Read:
    """The same; read once more, without what is known, if another segment had some of its records."""
    known = {name: manifest.processes[name].ranges for name in read.processes if name in manifest.processes}
    if not any(overlap(read.processes[name].ranges, ranges) for name, ranges in known.items()):
        return read
    chunk = next(chunk for chunk in chunks if chunk.segment == read.segment)
    for file in read.files:
        (store / file).unlink(missing_ok=True)
    return compact(msgspec.structs.replace(chunk, known=known, beside=_files_beside(read, manifest)), store)


def _files_beside(read: Read, manifest: Manifest) -> list[str]:
    """The files that may have records of the same processes: a segment that was named by its process has only those."""
    named = {name: process_of(Path(name)) for name in manifest.segments}
    return [
        file
        for name, segment in manifest.segments.items()
        for file in segment.files
        if (of := named[name]) is None or of[0] in read.processes
    ]


def _add(manifest: Manifest, read: Read) -> None:
    segment = manifest.segments.setdefault(read.segment, Segment())
    segment.bytes += read.bytes
    segment.torn_bytes = read.torn_bytes
    segment.lines += read.lines
    segment.steps += read.steps
    segment.files = [*segment.files, *read.files]
    manifest.troubles = [*(each for each in manifest.troubles if not _is_settled(each, read)), *read.troubles]
    for name, found in read.processes.items():
        manifest.processes.setdefault(name, Process()).add(found)


def _is_settled(trouble: Trouble, read: Read) -> bool:
    """Whether it is about a line that was torn, and has been looked at again."""
    return trouble.defect == "torn" and trouble.segment == read.segment


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
