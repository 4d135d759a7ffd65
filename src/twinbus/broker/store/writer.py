"""The thread that commits.

It takes all waiting change sets, up to a limit, writes them in one transaction and reports the highest number once. So
a single set is committed at once, and under load a batch forms while the previous one is being synced.

It also deletes rows of dropped entities: some in every transaction, the rest in its own transactions while idle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import monotonic
from typing import NamedTuple

from twinbus.broker.store.api import Change, CommitFailed, Committed, Report
from twinbus.broker.store.disk_space import CHECK_S, DiskSpace
from twinbus.broker.store.merged_changes import Counters, MergedChanges
from twinbus.broker.store.sql_connection import SqlConnection, execute, one_line, roll_back
from twinbus.broker.store.tables import clean_up, write

log = logging.getLogger("twinbus.namespace")


_UNCHECKED_BYTES_MAX, _UNCHECKED_S_MAX = 256 * 1024, 0.2
_ROW_BYTES = 200
"""What a row takes on disk besides its payload, roughly."""


class BatchLimits(NamedTuple):
    """Limits of one transaction: the set that reaches one of them is the last of its batch."""

    sets: int = 4096
    rows: int = 4096
    payload_bytes: int = 4 << 20
    cleanup_rows: int = 250
    """Rows of a dropped entity; each may lie on a page of its own."""


class ChangeSet(NamedTuple):
    number: int
    changes: tuple[Change, ...]


class _PauseWriter:
    """Asks the thread to pause between two transactions."""

    def __init__(self) -> None:
        self.reached = Event()
        self.over = Event()


class _StopWriter:
    """Asks the thread to end."""


class StoreWriter:
    """Owns the writing connection while its thread runs and is not paused."""

    def __init__(
        self, connection: SqlConnection, report: Callable[[Report], None], limits: BatchLimits, space: DiskSpace
    ) -> None:
        self._connection = connection
        self._report = report
        self._limits = limits
        self._space = space
        self._waiting: SimpleQueue[ChangeSet | _PauseWriter | _StopWriter] = SimpleQueue()
        self._thread = Thread(target=self._run, name="twinbus-store-writer", daemon=True)
        self._counters = Counters()
        self._dropped: list[int] = []
        self._unchecked_bytes, self._checked_at = 0, 0.0
        """Written since the last check of the disk space, and when that was."""
        self.failure: Exception | None = None
        """Why a commit failed: sets are discarded until `resume`."""

    def start(self) -> None:
        self._thread.start()

    def submit(self, number: int, changes: tuple[Change, ...]) -> None:
        """Queue a change set."""
        self._waiting.put(ChangeSet(number, changes))

    def resume(self, counters: Counters, dropped: list[int]) -> None:
        """Continue from what is in the store; only while paused or not started."""
        self._counters = counters
        self._dropped = dropped
        self.failure = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, everything submitted before is reported and the caller may use the connection."""
        if not self._thread.is_alive():
            yield
            return
        pause = _PauseWriter()
        self._waiting.put(pause)
        pause.reached.wait()
        try:
            yield
        finally:
            pause.over.set()

    def stop(self) -> None:
        """Commit what was submitted and end the thread."""
        self._waiting.put(_StopWriter())
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            asked: ChangeSet | _PauseWriter | _StopWriter | None = self._next()
            if isinstance(asked, ChangeSet):
                asked = self._commit_batch(asked)
            if isinstance(asked, _PauseWriter):
                asked.reached.set()
                asked.over.wait()
            elif isinstance(asked, _StopWriter):
                return

    def _next(self) -> ChangeSet | _PauseWriter | _StopWriter:
        """Wait for something to do, cleaning up meanwhile."""
        while self._dropped and self.failure is None:
            try:
                return self._waiting.get_nowait()
            except Empty:
                self._clean_up_alone()
        while self._space.is_full and self.failure is None:
            try:
                return self._waiting.get(timeout=CHECK_S)
            except Empty:
                self._check_space()
        return self._waiting.get()

    def _commit_batch(self, first: ChangeSet) -> _PauseWriter | _StopWriter | None:
        """Commit this set and those that wait behind it; returns what it met instead of a set."""
        effect, last, met = MergedChanges(self._counters), first, None
        try:
            if self.failure is None:
                last, met = self._gather(first, effect)
                self._commit_with_reserve(last.number, effect)
                self._check_space_sometimes(effect)
        except Exception as error:  # nothing of the batch was written, and replies wait for it
            self._fail(first.number, error)
        return met

    def _gather(self, first: ChangeSet, effect: MergedChanges) -> tuple[ChangeSet, _PauseWriter | _StopWriter | None]:
        """Merge waiting sets until none is left or a limit is reached."""
        limits, taken, last = self._limits, 1, first
        effect.add(first.changes)
        while taken < limits.sets and effect.size < limits.payload_bytes and effect.row_count < limits.rows:
            try:
                asked = self._waiting.get_nowait()
            except Empty:
                break
            if not isinstance(asked, ChangeSet):
                return last, asked
            effect.add(asked.changes)
            last, taken = asked, taken + 1
        return last, None

    def _commit_with_reserve(self, number: int, effect: MergedChanges) -> None:
        """Commit; retry once if the disk was full and there is a reserve."""
        self._space.admit(self._connection, effect.growth_bytes)
        try:
            self._commit(number, effect)
        except Exception as error:
            roll_back(self._connection)
            if not self._space.use_reserve(self._connection, error) or not self._space.has_space_for(effect.size):
                raise
            self._commit(number, effect)

    def _check_space_sometimes(self, effect: MergedChanges) -> None:
        """After much was written, or some time: a check costs more than writing one message."""
        now = monotonic()
        self._unchecked_bytes += effect.size + _ROW_BYTES * effect.row_count
        is_due = self._unchecked_bytes > _UNCHECKED_BYTES_MAX or now > self._checked_at + _UNCHECKED_S_MAX
        if is_due or self._space.is_full:
            self._unchecked_bytes, self._checked_at = 0, now
            self._check_space()

    def _check_space(self) -> None:
        try:
            self._space.refresh(self._connection)
        except Exception as error:  # the next commit shows what is wrong
            log.warning("the disk space cannot be checked: %s", one_line(error))

    def _commit(self, number: int, effect: MergedChanges) -> None:
        execute(self._connection, "begin immediate")
        states = write(self._connection, number, effect)
        cleaned = self._clean_up_along(number, effect)
        execute(self._connection, "commit")
        self._counters.advance(number, effect)
        self._dropped = [*(one for one in self._dropped if one != cleaned), *effect.dropped]
        self._report(Committed(number, states))

    def _clean_up_along(self, number: int, effect: MergedChanges) -> int | None:
        """Delete some rows in the transaction of other changes, which must not fail with it."""
        try:
            return self._clean_up_some()
        except Exception as error:
            if self._space.is_disk_full(error):
                raise
            self._stop_cleanup(error)
            execute(self._connection, "begin immediate")
            write(self._connection, number, effect)
            return None

    def _clean_up_some(self) -> int | None:
        """Delete some rows of one dropped entity; returns its id if none are left."""
        if not self._dropped:
            return None
        entity_id = self._dropped[0]
        return entity_id if clean_up(self._connection, entity_id, self._limits.cleanup_rows) else None

    def _clean_up_alone(self) -> None:
        try:
            execute(self._connection, "begin immediate")
            cleaned = self._clean_up_some()
            execute(self._connection, "commit")
        except Exception as error:
            roll_back(self._connection)
            if not self._space.use_reserve(self._connection, error):
                self._stop_cleanup(error)
        else:
            self._dropped = [one for one in self._dropped if one != cleaned]

    def _stop_cleanup(self, error: Exception) -> None:
        roll_back(self._connection)
        log.warning("cleaning up after a removed entity stopped until the next start: %s", one_line(error))
        self._dropped = []

    def _fail(self, number: int, error: Exception) -> None:
        roll_back(self._connection)
        self.failure = error
        log.error("change set %d could not be committed: %s", number, one_line(error))
        self._report(CommitFailed(number, one_line(error)))
