"""`manifest.json` of a store: how far each segment was read, what was skipped, and which records each process has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import msgspec

from twinbus.errors import StoreDamaged, StoreError, StoreInUse, StoreTooNew
from twinbus.ledger.reading.process_end import ProcessEnd
from twinbus.spark.compaction.primaries import unique_names
from twinbus.storage import Folder, Lease

VERSION = 2
NAME, LOCK, STEPS = "manifest.json", "lock", "steps"
GAPS_KEPT_MAX = 1000


class NumberRange(NamedTuple):
    """Record numbers `first` to `last`, all of them; when the first and the last were recorded."""

    first: int
    last: int
    first_ms: int
    last_ms: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


def join_ranges(ranges: Iterable[Sequence[int]]) -> list[NumberRange]:
    """The same numbers in as few ranges as possible, in order."""
    result: list[NumberRange] = []
    for each in sorted(NumberRange(*values) for values in ranges):
        if not result or each.first > result[-1].last + 1:
            result.append(each)
        elif each.last > result[-1].last:
            result[-1] = result[-1]._replace(last=each.last, last_ms=each.last_ms)
    return result


def overlap(one: Sequence[NumberRange], other: Sequence[NumberRange]) -> bool:
    """Whether any number is in both; each list is joined."""
    at = 0
    for each in one:
        while at < len(other) and other[at].last < each.first:
            at += 1
        if at < len(other) and other[at].first <= each.last:
            return True
    return False


def find_holes(ranges: Sequence[NumberRange]) -> list[NumberRange]:
    """The numbers missing between 1 and the largest, with the times of the records around them (0: none before)."""
    before = [NumberRange(0, 0, 0, 0), *ranges]
    return [
        NumberRange(left.last + 1, right.first - 1, left.last_ms, right.first_ms)
        for left, right in zip(before, ranges, strict=False)
        if right.first - left.last > 1
    ]


class SkippedLines(msgspec.Struct):
    """Lines of one segment that were skipped, for one reason."""

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


class ReportedGap(msgspec.Struct):
    """Records that a process says it never wrote."""

    first: int
    last: int
    since_ms: int
    until_ms: int
    reason: str


class RejectedEvents(msgspec.Struct):
    """Events that could not be written: a record of each exists and says only that."""

    count: int = 0
    first_ms: int = 0
    last_ms: int = 0
    reason: str = ""
    """Of the first one that was read."""

    def add(self, more: RejectedEvents) -> None:
        if not more.count:
            return
        self.first_ms = min(self.first_ms, more.first_ms) if self.count else more.first_ms
        self.last_ms = max(self.last_ms, more.last_ms)
        self.count += more.count
        self.reason = self.reason or more.reason


class ClockCheck(msgspec.Struct):
    """What the records of a process show about its clock."""

    count: int = 0
    """Records whose time was corrected: the clock was wrong for a while."""
    most_ms: int = 0
    """The largest error that was corrected; negative: the clock was behind."""
    ahead_ms: int = 0
    """The most that a record was later than the moment it was read."""
    is_unset: bool = False
    """Whether the clock had not been set: records are older than any can be."""
    offsets: list[int] = []
    """The smallest and the largest lead over the monotonic clock; empty: not measured, or not for all records, as in
    stores of older versions."""

    def add(self, more: ClockCheck) -> None:
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
    clock: ClockCheck = msgspec.field(default_factory=ClockCheck)
    closed: bool = False
    end: ProcessEnd | None = None
    """How it ended without closing its ledger, determined once nobody held a file of it."""
    not_understood: int = 0
    rejected: RejectedEvents = msgspec.field(default_factory=RejectedEvents)
    roles: list[str] = []
    """What it is, by its records: "client", "syphon", "namespace", ...; empty: too few records to say."""
    uses: list[str] = []
    """What a client does with messages, by its records: "receives", "sends". Empty: neither so far, or they were read
    by a version that did not look."""
    primaries: list[str] = []
    """The primaries that its records name. This list and the next two are empty in stores that are older than them."""
    stores: list[str] = []
    """The namespaces in which its records say messages were stored."""
    secondaries: list[str] = []
    """The namespaces in which its records say backlog queues are."""
    ranges: list[NumberRange] = []
    gaps: list[ReportedGap] = []

    def add(self, more: Process) -> None:
        """Add what was read of the same process elsewhere."""
        if more.host:
            self.host, self.pid, self.program = more.host, more.pid, more.program
        moments = [each for each in (self.first_ms, more.first_ms) if each]
        self.first_ms = min(moments, default=0)
        self.last_ms = max(self.last_ms, more.last_ms)
        self.wait_us = max(self.wait_us, more.wait_us)
        self.sync_us = self.sync_us or more.sync_us
        self.boot = self.boot or more.boot
        self.clock.offsets = self._join_offsets(more)
        self.clock.add(more.clock)
        self.end = None
        self.closed = self.closed or more.closed
        self.not_understood += more.not_understood
        self.rejected.add(more.rejected)
        self.roles = sorted({*self.roles, *more.roles})
        self.uses = sorted({*self.uses, *more.uses})
        self.primaries = unique_names([*self.primaries, *more.primaries])
        self.stores = unique_names([*self.stores, *more.stores])
        self.secondaries = unique_names([*self.secondaries, *more.secondaries])
        self.ranges = join_ranges([*self.ranges, *more.ranges])
        self.gaps = [*self.gaps, *more.gaps][:GAPS_KEPT_MAX]

    @property
    def has_beginning(self) -> bool:
        """Whether its first record is there: it kept no ledger before. Without any number, there is no other sign."""
        return not self.ranges or self.ranges[0].first == 1

    def _join_offsets(self, more: Process) -> list[int]:
        """Empty if the clock of some records was not measured: the others prove nothing about those."""
        known = [each.clock.offsets for each in (self, more) if each._has_times]
        return [min(map(min, known)), max(map(max, known))] if known and all(known) else []

    @property
    def _has_times(self) -> bool:
        """Whether any record of it is understood."""
        return sum(each.size for each in self.ranges) > self.not_understood


class Segment(msgspec.Struct):
    """How far one segment has been read."""

    bytes: int = 0
    torn_bytes: int = 0
    """An incomplete line that followed: it is read again when it has grown."""
    lines: int = 0
    steps: int = 0
    files: list[str] = []
    """The Parquet files that were made of it, below the store; some are merged with others now."""


class Manifest(msgspec.Struct):
    """Everything that is known of a store without opening its Parquet files."""

    version: int = VERSION
    segments: dict[str, Segment] = {}
    processes: dict[str, Process] = {}
    troubles: list[SkippedLines] = []
    merged: dict[str, list[str]] = {}
    """Files that were made of several, below the store, and what these were called."""
    replaced: dict[str, int] = {}
    """Files that were merged and may still be there, and when that was: others may be reading them."""

    @property
    def parts(self) -> list[str]:
        """What was made of all segments, by the names that it had before it was merged: they do not change."""
        return [part for segment in self.segments.values() for part in segment.files]

    @property
    def files(self) -> list[str]:
        """The Parquet files that count, below the store."""
        return self.files_with(self.parts)

    def files_with(self, parts: Iterable[str]) -> list[str]:
        """The files in which these parts are now."""
        now_in = {part: file for file, merged in self.merged.items() for part in merged}
        return list(dict.fromkeys(now_in.get(part, part) for part in parts))

    @property
    def steps(self) -> int:
        return sum(segment.steps for segment in self.segments.values())

    @property
    def records(self) -> int:
        return sum(each.size for process in self.processes.values() for each in process.ranges)


def load(store: Folder) -> Manifest:
    """The manifest of a store; an empty one if there is no store yet. Raises `StoreError` if it cannot be used."""
    file = store.where(NAME)
    try:
        data = store.read(NAME)
    except FileNotFoundError:
        return Manifest()
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from error
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"{file} is damaged: {error}; remove {store.url} and compact the ledger again") from error
    if manifest.version > VERSION:
        raise StoreTooNew(f"{store.url} was written by a newer twinbus: use that, or another --store")
    return manifest


def save(store: Folder, manifest: Manifest) -> None:
    """Replace the manifest; durable when this returns."""
    store.put(NAME, msgspec.json.encode(manifest))


@contextmanager
def lock_store(store: Folder) -> Iterator[Lease]:
    """Keep other processes from writing to the store. Raises `StoreInUse` if one does already, or `StoreError`."""
    with ExitStack() as until_done:
        try:
            lease = until_done.enter_context(store.lock(LOCK))
        except StoreInUse:
            raise
        except StoreError as error:
            raise StoreError(f"{error}; choose another --store") from error
        yield lease
