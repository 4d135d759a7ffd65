"""What has been compacted: how far each segment was read, what was wrong in it, and which records each process has."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from twinbus.errors import StoreDamaged, StoreError, StoreInUse, StoreTooNew
from twinbus.ledger.disk import Disk
from twinbus.ledger.endings import End
from twinbus.own_files import open_lock
from twinbus.spark.compaction.number_ranges import Range, joined
from twinbus.spark.compaction.primaries import different

VERSION = 1
NAME, LOCK, STEPS = "manifest.json", "lock", "steps"
GAPS_KEPT_MAX = 1000


class Trouble(msgspec.Struct):
    """Lines of one segment that were left out, for one reason."""

    segment: str
    defect: str
    text: str
    count: int = 0
    lines: list[int] = []
    """The first of them."""

    def __str__(self) -> str:
        at = f":{self.lines[0]}" if self.lines else ""
        more = f" ({self.count:,} lines)" if self.count > 1 else ""
        return f"{self.segment}{at}: {self.defect}{more}: {self.text}"


class Gap(msgspec.Struct):
    """What a process itself said about records that it never wrote."""

    first: int
    last: int
    since_ms: int
    until_ms: int
    reason: str


class Rejected(msgspec.Struct):
    """Events of a process that could not be written down: a record of each is there, and says only that."""

    count: int = 0
    first_ms: int = 0
    last_ms: int = 0
    reason: str = ""
    """Of the first of them that was read."""

    def add(self, more: Rejected) -> None:
        if not more.count:
            return
        self.first_ms = min(self.first_ms, more.first_ms) if self.count else more.first_ms
        self.last_ms = max(self.last_ms, more.last_ms)
        self.count += more.count
        self.reason = self.reason or more.reason


class Clock(msgspec.Struct):
    """What was wrong with the clock of a process."""

    count: int = 0
    """Records that were put right: the clock was wrong for a while."""
    most_ms: int = 0
    """By how much, at most; negative: behind."""
    ahead_ms: int = 0
    """By how much its records were later than the moment at which they were read, at most."""
    is_unset: bool = False
    """Whether it had not been set: records are older than any can be."""
    offsets: list[int] = []
    """The smallest and the largest number of milliseconds that it was ahead of the clock that is never set; empty:
    nobody looked, as in stores of older versions, or not at all records.
    """

    def add(self, more: Clock) -> None:
        self.count += more.count
        self.most_ms = max(self.most_ms, more.most_ms, key=abs)
        self.ahead_ms = max(self.ahead_ms, more.ahead_ms)
        self.is_unset = self.is_unset or more.is_unset


class Process(msgspec.Struct):
    """What has been read of one process."""

    host: str = ""
    pid: int = 0
    program: str = ""
    first_ms: int = 0
    last_ms: int = 0
    wait_us: int = 0
    sync_us: int = 0
    boot: str = ""
    clock: Clock = msgspec.field(default_factory=Clock)
    closed: bool = False
    end: End | None = None
    """How it ended without closing its ledger, found out when nobody held a file of it any more."""
    not_understood: int = 0
    rejected: Rejected = msgspec.field(default_factory=Rejected)
    roles: list[str] = []
    """Who it is, as its records tell: "client", "syphon", "namespace", ...; none: it has told too little."""
    primaries: list[str] = []
    """Which primaries its records name; a store that was made before these were kept has none."""
    stores: list[str] = []
    """In which namespaces it says messages were stored; a store that was made before these were kept has none."""
    secondaries: list[str] = []
    """In which namespaces it says backlog queues are."""
    ranges: list[Range] = []
    gaps: list[Gap] = []

    def add(self, more: Process) -> None:
        """Take in what was read of the same process elsewhere."""
        if more.host:
            self.host, self.pid, self.program = more.host, more.pid, more.program
        moments = [each for each in (self.first_ms, more.first_ms) if each]
        self.first_ms = min(moments, default=0)
        self.last_ms = max(self.last_ms, more.last_ms)
        self.wait_us = max(self.wait_us, more.wait_us)
        self.sync_us = self.sync_us or more.sync_us
        self.boot = self.boot or more.boot
        self.clock.offsets = self._offsets_with(more)
        self.clock.add(more.clock)
        self.end = None
        self.closed = self.closed or more.closed
        self.not_understood += more.not_understood
        self.rejected.add(more.rejected)
        self.roles = sorted({*self.roles, *more.roles})
        self.primaries = different([*self.primaries, *more.primaries])
        self.stores = different([*self.stores, *more.stores])
        self.secondaries = different([*self.secondaries, *more.secondaries])
        self.ranges = joined([*self.ranges, *more.ranges])
        self.gaps = [*self.gaps, *more.gaps][:GAPS_KEPT_MAX]

    def _offsets_with(self, more: Process) -> list[int]:
        """None if nobody looked at the clock of some records: half a look proves nothing."""
        known = [each.clock.offsets for each in (self, more) if each.has_times]
        return [min(map(min, known)), max(map(max, known))] if known and all(known) else []

    @property
    def has_times(self) -> bool:
        """Whether any record of it is understood."""
        return sum(each.size for each in self.ranges) > self.not_understood


class Segment(msgspec.Struct):
    """How far one segment has been read."""

    bytes: int = 0
    torn_bytes: int = 0
    """What followed, and was no whole line: it is looked at again when there is more of it."""
    lines: int = 0
    steps: int = 0
    files: list[str] = []
    """Parquet files with what was in it, below the store."""


class Manifest(msgspec.Struct):
    """Everything that is known of a store without opening its Parquet files."""

    version: int = VERSION
    segments: dict[str, Segment] = {}
    processes: dict[str, Process] = {}
    troubles: list[Trouble] = []

    @property
    def files(self) -> list[str]:
        return [file for segment in self.segments.values() for file in segment.files]

    @property
    def steps(self) -> int:
        return sum(segment.steps for segment in self.segments.values())

    @property
    def records(self) -> int:
        return sum(each.size for process in self.processes.values() for each in process.ranges)


def load(store: Path) -> Manifest:
    """What the store says; an empty one if there is no store yet. Raises `StoreError` if it cannot be used."""
    file = store / NAME
    try:
        said = file.read_bytes()
    except FileNotFoundError:
        return Manifest()
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from error
    try:
        manifest = msgspec.json.decode(said, type=Manifest)
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"{file} is damaged: {error}; remove {store} and compact the ledger again") from error
    if manifest.version > VERSION:
        raise StoreTooNew(f"{store} was written by a newer twinbus")
    return manifest


def save(store: Path, manifest: Manifest) -> None:
    """From now on, and after a power cut too, this is what the store says."""
    write_whole(store / NAME, msgspec.json.encode(manifest))


def write_whole(file: Path, data: bytes) -> None:
    """The file is as it was or has all of the data, after a power cut too. Raises `StoreError` if it is as it was."""
    fresh = file.with_name(f"{file.name}.new")
    try:
        fresh.unlink(missing_ok=True)  # of somebody who was interrupted; or a link, which must not be written through
        with fresh.open("xb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        fresh.replace(file)
        Disk().sync_names(file.parent)
    except OSError as error:
        raise StoreError(f"nothing can be written to {file.parent}: {error.strerror}") from error


@contextmanager
def held(store: Path) -> Iterator[None]:
    """The store is ours alone. Raises `StoreInUse` if another process compacts into it, or `StoreError`."""
    try:
        store.mkdir(parents=True, exist_ok=True)
        file = open_lock(store / LOCK)
    except OSError as error:
        raise StoreError(f"nothing can be written to {store}: {error.strerror}; choose another --store") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreInUse(f"another process is compacting into {store}") from error
        except OSError as error:
            text = f"the file system of {store} has no file locks ({error.strerror}): choose another --store"
            raise StoreError(text) from error
        yield
