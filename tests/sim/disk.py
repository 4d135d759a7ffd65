"""A disk that may be slow, fail, or lose power, as the simulator decides.

`Disk` is what survives: the effect of the change sets 1..n. `SimulatedStore` is one process's way to it:
submitted sets and asked reads wait there until the simulator lets one of them happen, and so do the reports
about them. Nothing here draws a random number; whoever holds the store decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from twinbus.broker.store.api import (
    Change,
    CommitFailed,
    Committed,
    DeleteMessages,
    EntityRow,
    MessageRow,
    NamedRows,
    PutEntity,
    RangeRows,
    Read,
    ReadFailed,
    ReadRequest,
    Report,
    RowRequest,
    RowsRead,
    StateGrowth,
    StoredNamespace,
)
from twinbus.broker.store.memory import MemoryStore
from twinbus.errors import StoreDamaged

_ALL = 2**62


class BrokenContract(Exception):
    """The machine asked for a change that the store's contract rules out."""


class Disk:
    """What is durable. It keeps rows as the store in memory does, and outlives the processes that write to it."""

    def __init__(self) -> None:
        self._rows = MemoryStore(by_hand=True)
        self._rows.load()
        self._rows.start(self._keep)
        self._last: Report | None = None
        self.paths: dict[int, str] = {}
        """Of all entities there ever were, by id."""

    def _keep(self, report: Report) -> None:
        self._last = report

    def write(self, number: int, changes: tuple[Change, ...]) -> tuple[list[MessageRow], tuple[StateGrowth, ...]]:
        """Make a change set durable; returns the rows it removes, and what has become of states."""
        deletes = (change for change in changes if isinstance(change, DeleteMessages))
        removed = [row for each in deletes for row in self.read(NamedRows(each.entity_id, each.sequences)).rows]
        self.paths |= {change.row.entity_id: change.row.path for change in changes if isinstance(change, PutEntity)}
        self._rows.submit(number, changes)
        self._rows.commit()
        if not isinstance(self._last, Committed):
            raise BrokenContract(self._last.reason if isinstance(self._last, CommitFailed) else "no commit")
        return removed, self._last.states

    def read(self, request: RowRequest) -> RowsRead:
        """The rows as of now."""
        found = self.answer(request)
        if not isinstance(found, RowsRead):
            raise BrokenContract(f"{request} was answered with {found}")
        return found

    def answer(self, request: ReadRequest) -> Report:
        """The answer to any read, as of now."""
        self._rows.request(request)
        if self._last is None:
            raise BrokenContract(f"{request} was not answered")
        return self._last

    def stored(self) -> StoredNamespace:
        return self._rows.load()

    def entities(self) -> dict[int, EntityRow]:
        return {row.entity_id: row for row in self.stored().entities}

    def rows_of(self, entity_id: int) -> tuple[MessageRow, ...]:
        return self.read(RangeRows(entity_id, 0, _ALL, _ALL)).rows

    def all_rows(self) -> Iterator[MessageRow]:
        return (row for entity_id in self.entities() for row in self.rows_of(entity_id))


class SimulatedStore:
    """The `Store` of one simulated process."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.waiting: deque[tuple[int, tuple[Change, ...]]] = deque()
        """Submitted, not written."""
        self.asked: list[ReadRequest] = []
        self.reports: deque[Report] = deque()
        """About commits, in order."""
        self.answers: list[Report] = []
        """Rows that were read; they may be reported in any order, also before the commits they have seen."""
        self.unreported: deque[tuple[int, list[MessageRow]]] = deque()
        """Sets that are durable though nobody knows yet, with the rows they removed."""
        self.is_broken = False
        """A commit has failed: nothing works until `load`."""
        self.refused_loads = 0
        """How often `load` will still fail."""
        self._outdated: deque[Report] = deque()
        self._report: Callable[[Report], None] | None = None

    # --- the contract ---

    def load(self) -> StoredNamespace:
        if self.refused_loads > 0:
            self.refused_loads -= 1
            raise StoreDamaged("the simulated disk still fails")
        self.waiting.clear()
        self.asked.clear()
        self.unreported.clear()
        # What was on its way to the process arrives late, but before anything that is read from now on.
        self._outdated.extend((*self.reports, *self.answers))
        self.reports.clear()
        self.answers.clear()
        self.is_broken = False
        return self.disk.stored()

    def start(self, report: Callable[[Report], None]) -> None:
        self._report = report

    def submit(self, number: int, changes: tuple[Change, ...]) -> None:
        if not self.is_broken:
            self.waiting.append((number, changes))

    def request(self, request: ReadRequest) -> None:
        self.asked.append(request)

    def close(self) -> None:
        self.commit(len(self.waiting))

    # --- what the simulator decides ---

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.asked or self.reports or self.answers or self._outdated)

    def commit(self, count: int) -> None:
        """Write the next so many sets; the report about them waits."""
        if not count:
            return
        states: tuple[StateGrowth, ...] = ()
        for _ in range(count):
            number, changes = self.waiting.popleft()
            removed, grown = self.disk.write(number, changes)
            self.unreported.append((number, removed))
            states += grown
        self.reports.append(Committed(number, states))

    def fail_commit(self) -> None:
        """The next set cannot be written, nor any after it."""
        number = self.waiting[0][0]
        self.waiting.clear()
        self.is_broken = True
        self.reports.append(CommitFailed(number, "no space left on the simulated device"))

    def read(self, index: int) -> None:
        """Carry out one of the reads; its answer waits."""
        request = self.asked.pop(index)
        if self.is_broken:
            self.answers.append(ReadFailed(request, "the simulated store is broken"))
        else:
            self.answers.append(self.disk.answer(request))

    def fail_read(self, index: int) -> None:
        self.answers.append(ReadFailed(self.asked.pop(index), "a simulated sector cannot be read"))

    def deliver_report(self) -> None:
        """Let the oldest report about commits arrive."""
        if self._outdated:
            self._arrive(self._outdated.popleft())
        else:
            self._arrive(self.reports.popleft())

    def deliver_answer(self, index: int) -> None:
        """Let one of the answers arrive."""
        if self._outdated:
            self._arrive(self._outdated.popleft())
        else:
            self._arrive(self.answers.pop(index))

    @property
    def has_outdated(self) -> bool:
        """Whether reports from before the last `load` are still on their way."""
        return bool(self._outdated)

    def _arrive(self, report: Report) -> None:
        known = report.number if isinstance(report, Committed) else report.as_of if isinstance(report, Read) else 0
        while self.unreported and self.unreported[0][0] <= known:
            self.unreported.popleft()
        if self._report is not None:
            self._report(report)
