"""Makes room in a ledger: deletes old segments, and records which numbers they had.

A segment that a process still writes to is never deleted, and one that no report has read only on request. What a
report has read is in its store; the manifest of the store says how far. Reports follow links; nothing is deleted behind
a link that leads out of the folder.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from twinbus.errors import StoreDamaged, StoreError, StoreInUse, StoreTooNew
from twinbus.ledger.kinds import Kind
from twinbus.ledger.lines import Flaw, read_line
from twinbus.ledger.segment import Disk
from twinbus.ledger.segment_files import STORE_FILE, name_in, segments_and_held
from twinbus.own_files import write_whole
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

    @property
    def last(self) -> int:
        return max((each[1] for each in (*self.read, *self.unread)), default=0)

    def why_missing(self, number: int) -> str:
        """Why a record is not there that was pruned."""
        day = time_of(self.pruned_ms).date()
        is_unread = any(first <= number <= last for first, last in self.unread)
        how = "no report had read them" if is_unread else "a report had read them, but into another store"
        return f"pruned on {day}: {how}"


class Pruned(msgspec.Struct):
    """Everything that was pruned from a ledger, in `pruned.json` beside the segments.

    It is on disk before the first segment is deleted: without it, numbers would be missing for no known reason. A
    segment that is named in it and still there counts as there: an interrupted prune is repeated.
    """

    version: int = PRUNED_VERSION
    processes: dict[str, PrunedProcess] = {}


def load_pruned(directory: Path) -> Pruned:
    """What was pruned; nothing if nothing was. Raises `StoreError` if it cannot be read."""
    file = directory / PRUNED_FILE
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Pruned)
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


def save_pruned(directory: Path, pruned: Pruned) -> None:
    """From now on, and after a power cut too, this is what was pruned. Raises `OSError` if it is as before."""
    write_whole(directory / PRUNED_FILE, msgspec.json.encode(pruned).decode())
    Disk().sync_names(directory)


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

    path: Path
    name: str
    bytes: int
    modified_ms: int
    is_read: bool
    kept: Kept | None = None


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
    directory: Path,
    store: Path,
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


def _candidates(directory: Path, store: Path, *, unread: bool) -> Iterator[Candidate]:
    found, manifest = segments_and_held(directory), _read_manifest(store)
    doubted = {each.segment for each in manifest.troubles if each.defect in NOT_READ}
    for path in found.segments:
        with suppress(FileNotFoundError):  # moved away meanwhile
            facts, name = path.stat(), name_in(directory, path)
            known = manifest.segments.get(name, _Segment())
            is_read = known.bytes + known.torn_bytes >= facts.st_size and name not in doubted
            kept: Kept | None = None
            if is_outside(directory, path):
                kept = "linked"
            elif path in found.held:
                kept = "written"
            elif path in found.without_locks:
                kept = "without locks"
            elif not (is_read or unread):
                kept = "unread"
            yield Candidate(path, name, facts.st_size, facts.st_mtime_ns // 1_000_000, is_read, kept)


def is_outside(directory: Path, segment: Path) -> bool:
    """Whether a link leads from the folder to this segment, which is somewhere else. The folder itself may be one."""
    return segment.is_symlink() or not segment.parent.resolve().is_relative_to(directory.resolve())


def _read_manifest(store: Path) -> _Manifest:
    file = store / STORE_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Manifest)
    except FileNotFoundError:
        return _Manifest()
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"{file} is damaged: {error}; nothing was pruned") from error


def prune(directory: Path, chosen: list[Candidate], now_ms: int, on_pruned: Callable[[Candidate], None]) -> Pruned:
    """Delete these segments; first, what they had is noted on the disk. `on_pruned` is called after each one.

    Raises `StoreError` if the note cannot be written, or a folder has become a link since the plan was made (then all
    of them are there), or one cannot be deleted.
    """
    for each in chosen:
        if is_outside(directory, each.path):
            raise StoreError(f"{each.path} is not pruned: a link leads to it now, out of {directory}; look again")
    with _as_store_error(directory):
        known = load_pruned(directory)
        for each in chosen:
            for process, records in _records_in(each.path, is_read=each.is_read, now_ms=now_ms).items():
                known.processes.setdefault(process, PrunedProcess()).add(records)
        save_pruned(directory, known)
        for each in chosen:
            each.path.unlink(missing_ok=True)
            on_pruned(each)
        for folder in {each.path.parent for each in chosen}:
            Disk().sync_names(folder)
    return known


@contextmanager
def _as_store_error(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{error.filename or directory} cannot be pruned: {error.strerror}") from error


def _records_in(path: Path, *, is_read: bool, now_ms: int) -> dict[str, PrunedProcess]:
    """What a segment has of each process. Lines that are not records are left out: a report has named them."""
    found: dict[str, PrunedProcess] = {}
    numbers: dict[str, list[NumberSpan]] = {}
    with path.open("rb") as file:
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


@contextmanager
def store_held(store: Path) -> Iterator[None]:
    """No report reads into the store meanwhile; does nothing if there is no store. Raises `StoreInUse`."""
    if not (store / LOCK).exists():
        yield
        return
    with (store / LOCK).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreInUse(f"a report is reading into {store}: try again when it is made") from error
        except OSError as error:
            raise StoreError(f"the file system of {store} has no file locks ({error.strerror})") from error
        yield
