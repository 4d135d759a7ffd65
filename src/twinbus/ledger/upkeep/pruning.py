"""Makes room in a ledger: deletes old segments, and records which numbers they had.

A segment that a process still writes to is never deleted, and one that no report has read only on request. What a
report has read is in its store; the manifest of the store says how far. Reports follow links; nothing is deleted behind
a link that leads out of the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from twinbus.errors import StoreDamaged, StoreError, StoreInUse, StoreTooNew
from twinbus.ledger.kinds import Kind
from twinbus.ledger.lines import Flaw, read_line
from twinbus.ledger.reading.segment_files import STORE_FILE, StoredSegment, segments_and_held
from twinbus.storage import Location, open_folder
from twinbus.units import time_of

LOCK = "lock"
NOT_READ = ("changed", "unreadable")
Kept = Literal["written", "without locks", "linked", "unread"]


# --- what was pruned ---

PRUNED_FILE = "pruned.json"
PRUNED_VERSION = 1
NumberSpan = tuple[int, int]
"""First and last."""


class PrunedProcess(msgspec.Struct):
    host: str = ""
    program: str = ""
    first_ms: int = 0
    last_ms: int = 0
    wait_us: int = 0
    sync_us: int = 0
    boot: str = ""
    """These three are from its first record, if that was pruned."""
    closed: bool = False
    """Its last record was among them."""
    read: list[NumberSpan] = []
    """Numbers of records that a report had read."""
    unread: list[NumberSpan] = []
    """Numbers of records that none had."""
    pruned_ms: int = 0
    shipped_to: str = ""
    """Where those that none had read were copied to before."""

    def add(self, more: PrunedProcess) -> None:
        self.host, self.program = more.host or self.host, more.program or self.program
        self.first_ms = min([each for each in (self.first_ms, more.first_ms) if each], default=0)
        self.last_ms = max(self.last_ms, more.last_ms)
        self.wait_us, self.sync_us = self.wait_us or more.wait_us, self.sync_us or more.sync_us
        self.boot = self.boot or more.boot
        self.closed = self.closed or more.closed
        self.read = merge_spans([*self.read, *more.read])
        self.unread = subtract_spans(merge_spans([*self.unread, *more.unread]), self.read)
        self.pruned_ms = max(self.pruned_ms, more.pruned_ms)
        self.shipped_to = more.shipped_to or self.shipped_to

    @property
    def spans(self) -> list[NumberSpan]:
        return merge_spans([*self.read, *self.unread])

    @property
    def last(self) -> int:
        return max((each[1] for each in self.spans), default=0)

    def why_missing(self, number: int) -> str:
        """Why a record is not there that was pruned."""
        day = time_of(self.pruned_ms).date()
        is_unread = any(first <= number <= last for first, last in self.unread)
        unread = f"shipped to {self.shipped_to}" if self.shipped_to else "no report had read them"
        how = unread if is_unread else "a report had read them, but into another store"
        return f"pruned on {day}: {how}"


class Pruned(msgspec.Struct):
    """Everything that was pruned from a ledger, in `pruned.json` beside the segments.

    It is on disk before the first segment is deleted: without it, numbers would be missing for no known reason. A
    segment that is named in it and still there counts as there: an interrupted prune is repeated.
    """

    version: int = PRUNED_VERSION
    processes: dict[str, PrunedProcess] = {}


def load_pruned(directory: Location) -> Pruned:
    """What was pruned; nothing if nothing was. Raises `StoreError` if it cannot be read."""
    folder = open_folder(directory)
    file = folder.where(PRUNED_FILE)
    try:
        found = msgspec.json.decode(folder.read(PRUNED_FILE), type=Pruned)
    except FileNotFoundError:
        return Pruned()
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise StoreDamaged(
            f"{file} is damaged: {error}; without it, what was pruned is missing: restore it, or remove it"
        ) from error
    if found.version > PRUNED_VERSION:
        raise StoreTooNew(f"{file} was written by a newer twinbus")
    return found


def save_pruned(directory: Location, pruned: Pruned) -> None:
    """From now on, and after a power cut too, this is what was pruned. Raises `StoreError` if it is as before."""
    open_folder(directory).put(PRUNED_FILE, msgspec.json.encode(pruned), private=True)


def merge_spans(ranges: Iterable[NumberSpan]) -> list[NumberSpan]:
    """The same numbers in as few ranges as possible, in order."""
    result: list[NumberSpan] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def subtract_spans(ranges: Iterable[NumberSpan], gone: Iterable[NumberSpan]) -> list[NumberSpan]:
    """The numbers of the first that are not among the second."""
    left = list(ranges)
    for first, last in gone:
        left = [
            part
            for each in left
            for part in ((each[0], min(each[1], first - 1)), (max(each[0], last + 1), each[1]))
            if part[0] <= part[1]
        ]
    return merge_spans(left)


# --- pruning ---


class _Segment(msgspec.Struct):
    bytes: int = 0
    torn_bytes: int = 0


class _Trouble(msgspec.Struct):
    segment: str
    defect: str


class _Manifest(msgspec.Struct):
    """As much of a store's manifest as is needed here: this must work where no Spark is installed."""

    segments: dict[str, _Segment] = {}
    troubles: list[_Trouble] = []


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment that may be pruned, or why not."""

    segment: StoredSegment
    is_read: bool
    kept: Kept | None = None

    @property
    def path(self) -> Path:
        return self.segment.path

    @property
    def name(self) -> str:
        return self.segment.name

    @property
    def bytes(self) -> int:
        return self.segment.bytes

    @property
    def modified_ms(self) -> int:
        return self.segment.modified_ms


@dataclass(slots=True)
class PrunePlan:
    """What to prune, the oldest first, and what would be old or large enough but stays."""

    chosen: list[Candidate] = field(default_factory=list)
    kept: list[Candidate] = field(default_factory=list)
    segments: int = 0
    """How many the folder has of its own, without those that a link leads to."""
    bytes: int = 0
    """How much room they take up."""

    @property
    def chosen_bytes(self) -> int:
        return sum(each.bytes for each in self.chosen)


def plan(
    directory: Location,
    store: Location,
    *,
    before_ms: int | None = None,
    bytes_max: int | None = None,
    unread: bool = False,
) -> PrunePlan:
    """What to prune: segments that were last written to before `before_ms`, and the oldest ones until no more than
    `bytes_max` are left; what a link leads to takes up no room here. `unread`: also what no report has read. Raises
    `StoreError` if ledger or store cannot be read.
    """
    found = list(_candidates(directory, store, unread=unread))
    own = [each for each in found if each.kept != "linked"]
    left = sum(each.bytes for each in own)
    result = PrunePlan(segments=len(own), bytes=left)
    for each in sorted(found, key=lambda each: (each.modified_ms, each.name)):
        is_old = before_ms is not None and each.modified_ms < before_ms
        is_too_much = bytes_max is not None and left > bytes_max and each.kept != "linked"
        if (is_old or is_too_much) and each.kept is None:
            result.chosen.append(each)
            left -= each.bytes
        elif is_old or is_too_much:
            result.kept.append(each)
    return result


def _candidates(directory: Location, store: Location, *, unread: bool) -> Iterator[Candidate]:
    found, manifest = segments_and_held(directory), _read_manifest(store)
    doubted = {each.segment for each in manifest.troubles if each.defect in NOT_READ}
    for segment in found.segments:
        known = manifest.segments.get(segment.name, _Segment())
        is_read = known.bytes + known.torn_bytes >= segment.bytes and segment.name not in doubted
        kept: Kept | None = None
        if is_outside(directory, segment):
            kept = "linked"
        elif segment in found.held:
            kept = "written"
        elif segment in found.without_locks and segment.folder.is_local:
            kept = "without locks"  # at a URL are copies, each of them whole: nobody writes to them
        elif not (is_read or unread):
            kept = "unread"
        yield Candidate(segment, is_read, kept)


def is_outside(directory: Location, segment: StoredSegment) -> bool:
    """Whether a link leads from the folder to this segment, which is somewhere else. The folder itself may be one."""
    folder = open_folder(directory)
    if not folder.is_local:
        return False
    path = segment.path
    return path.is_symlink() or not path.parent.resolve().is_relative_to(folder.path().resolve())


def _read_manifest(store: Location) -> _Manifest:
    folder = open_folder(store)
    file = folder.where(STORE_FILE)
    try:
        return msgspec.json.decode(folder.read(STORE_FILE), type=_Manifest)
    except FileNotFoundError:
        return _Manifest()
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"{file} is damaged: {error}; nothing was pruned") from error


def prune(
    directory: Location,
    chosen: list[Candidate],
    now_ms: int,
    on_pruned: Callable[[Candidate], None],
    shipped_to: str = "",
) -> Pruned:
    """Delete these segments; first, what they had is noted on the disk. `on_pruned` is called after each one.

    `shipped_to`: where copies of them are.

    Raises `StoreError` if the note cannot be written, or a folder has become a link since the plan was made (then all
    of them are there), or one cannot be deleted.
    """
    for each in chosen:
        if is_outside(directory, each.segment):
            raise StoreError(f"{each.path} is not pruned: a link leads to it now, out of {directory}; look again")
    with _as_store_error(directory):
        known = load_pruned(directory)
        for each in chosen:
            for process, records in _records_in(each.segment, is_read=each.is_read, now_ms=now_ms).items():
                records.shipped_to = shipped_to
                known.processes.setdefault(process, PrunedProcess()).add(records)
        save_pruned(directory, known)
        folder = open_folder(directory)
        for each in chosen:
            folder.delete([each.name])
            on_pruned(each)
    return known


@contextmanager
def _as_store_error(directory: Location) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{error.filename or directory} cannot be pruned: {error.strerror}") from error


def _records_in(segment: StoredSegment, *, is_read: bool, now_ms: int) -> dict[str, PrunedProcess]:
    """What a segment has of each process. Lines that are not records are left out: a report has named them."""
    found: dict[str, PrunedProcess] = {}
    numbers: dict[str, list[NumberSpan]] = {}
    with segment.open() as file:
        for line in file:
            read = read_line(line)
            if isinstance(read, Flaw):
                continue
            known = found.setdefault(read.process, PrunedProcess(read.host, read.program, read.at_ms))
            known.last_ms = max(known.last_ms, read.at_ms)
            known.closed = known.closed or read.kind == Kind.CLOSED
            if read.kind == Kind.OPENED:
                known.wait_us, known.sync_us, known.boot = read.duration_us, read.sync_us, read.boot
            ranges = numbers.setdefault(read.process, [])
            if ranges and read.number == ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], read.number)
            else:
                ranges.append((read.number, read.number))
    for process, ranges in numbers.items():
        found[process].pruned_ms = now_ms
        setattr(found[process], "read" if is_read else "unread", merge_spans(ranges))
    return found


def numbers_in(segment: StoredSegment) -> dict[str, list[NumberSpan]]:
    """The numbers of its records, by process."""
    return {process: each.spans for process, each in _records_in(segment, is_read=True, now_ms=0).items()}


@contextmanager
def store_held(store: Location) -> Iterator[None]:
    """No report reads into the store meanwhile; does nothing if there is no store. Raises `StoreInUse`."""
    folder = open_folder(store)
    if not folder.exists(LOCK if folder.is_local else STORE_FILE):
        yield
        return
    try:
        held = folder.lock(LOCK)
        held.__enter__()
    except StoreInUse as error:
        raise StoreInUse(f"a report is reading into {folder.url}: try again when it is made") from error
    try:
        yield
    finally:
        held.__exit__(None, None, None)
