"""Makes room in a ledger: deletes old segments, and keeps a note of what they had.

Never one that a process still writes to, and never one that no report has read, unless somebody insists. What a report
has read is in its store; the manifest of the store says how far. Reports follow links; nothing is deleted behind one
that leads out of the folder, because nobody has named that place.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from twinbus.errors import StoreDamaged, StoreError, StoreInUse
from twinbus.ledger import pruned as notes
from twinbus.ledger.disk import Disk
from twinbus.ledger.finding import STORE_FILE, name_in, segments_and_held
from twinbus.ledger.kinds import Kind
from twinbus.ledger.lines import Flaw, read_line
from twinbus.ledger.pruned import Pruned, PrunedProcess

LOCK = "lock"
NOT_READ = ("changed", "unreadable")
Kept = Literal["written", "without locks", "linked", "unread"]


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
class Plan:
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
) -> Plan:
    """What to prune: segments that were last written to before `before_ms`, and the oldest ones until no more than
    `bytes_max` are left; what a link leads to takes up no room here. `unread`: also what no report has read. Raises
    `StoreError` if ledger or store cannot be read.
    """
    found = list(_candidates(directory, store, unread=unread))
    own = [each for each in found if each.kept != "linked"]
    left = sum(each.bytes for each in own)
    result = Plan(segments=len(own), bytes=left)
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


def prune(directory: Path, chosen: list[Candidate], now_ms: int, tell: Callable[[Candidate], None]) -> Pruned:
    """Delete these segments; first, what they had is noted on the disk. `tell` is called for each one that is gone.

    Raises `StoreError` if the note cannot be written, or a folder has become a link since somebody looked (then all of
    them are there), or one cannot be deleted.
    """
    for each in chosen:
        if is_outside(directory, each.path):
            raise StoreError(f"{each.path} is not pruned: a link leads to it now, out of {directory}; look again")
    with _said_in_a_line(directory):
        known = notes.load(directory)
        for each in chosen:
            for process, records in _records_in(each.path, is_read=each.is_read, now_ms=now_ms).items():
                known.processes.setdefault(process, PrunedProcess()).add(records)
        notes.save(directory, known)
        for each in chosen:
            each.path.unlink(missing_ok=True)
            tell(each)
        for folder in {each.path.parent for each in chosen}:
            Disk().sync_names(folder)
    return known


@contextmanager
def _said_in_a_line(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{error.filename or directory} cannot be pruned: {error.strerror}") from error


def _records_in(path: Path, *, is_read: bool, now_ms: int) -> dict[str, PrunedProcess]:
    """What a segment has of each process. Lines that are no records are left out: a report has named them."""
    found: dict[str, PrunedProcess] = {}
    numbers: dict[str, list[notes.Numbers]] = {}
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
        setattr(found[process], "read" if is_read else "unread", notes.joined(ranges))
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
