"""The thread that commits.

It takes every change set that is waiting, up to a bound, writes them in one transaction and reports the highest number
once. A lone set is therefore committed at once, and under load a batch forms while the one before it is being synced.

Rows of dropped entities are cleaned away here too: some in every transaction, the rest in transactions of their own
while nothing is waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import monotonic
from typing import NamedTuple

from twinbus.namespace.store.api import Change, CommitFailed, Committed, Report
from twinbus.namespace.store.connection import Connection, execute, one_line, roll_back
from twinbus.namespace.store.effect import Counters, NetEffect
from twinbus.namespace.store.room import LOOK_S, Room
from twinbus.namespace.store.tables import sweep, write

log = logging.getLogger(__name__)


_UNLOOKED_BYTES_MAX, _UNLOOKED_S_MAX = 256 * 1024, 0.2
_ROW_BYTES = 200
"""What a row takes on disk beside its payload, roughly."""


class BatchLimits(NamedTuple):
    """Bounds of one transaction: a batch is closed by the set that reaches one of them."""

    sets: int = 4096
    rows: int = 4096
    payload_bytes: int = 4 << 20
    swept_rows: int = 250
    """Rows of a dropped entity; each may lie on a page of its own."""


class ChangeSet(NamedTuple):
    number: int
    changes: tuple[Change, ...]


class _Pause:
    """Asks the thread to stand still between two transactions."""

    def __init__(self) -> None:
        self.reached = Event()
        self.over = Event()


class _Stop:
    """Asks the thread to end."""


class Writer:
    """Owns the writing connection while its thread runs and is not paused."""

    def __init__(
        self, connection: Connection, report: Callable[[Report], None], limits: BatchLimits, room: Room
    ) -> None:
        self._connection = connection
        self._report = report
        self._limits = limits
        self._room = room
        self._waiting: SimpleQueue[ChangeSet | _Pause | _Stop] = SimpleQueue()
        self._thread = Thread(target=self._run, name="twinbus-store-writer", daemon=True)
        self._counters = Counters()
        self._sweeping: list[int] = []
        self._unlooked_bytes, self._looked_at = 0, 0.0
        """Written since the last look for room on the disk, and when that was."""
        self.failure: Exception | None = None
        """Why a commit has failed: sets are thrown away until `resume`."""

    def start(self) -> None:
        self._thread.start()

    def submit(self, number: int, changes: tuple[Change, ...]) -> None:
        """Queue a change set."""
        self._waiting.put(ChangeSet(number, changes))

    def resume(self, counters: Counters, dropped: list[int]) -> None:
        """Go on from what is in the store; only while paused or not started."""
        self._counters = counters
        self._sweeping = dropped
        self.failure = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Everything submitted before has been answered, and the connection is the caller's inside."""
        if not self._thread.is_alive():
            yield
            return
        pause = _Pause()
        self._waiting.put(pause)
        pause.reached.wait()
        try:
            yield
        finally:
            pause.over.set()

    def stop(self) -> None:
        """Commit what was submitted and end the thread."""
        self._waiting.put(_Stop())
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            asked: ChangeSet | _Pause | _Stop | None = self._next()
            if isinstance(asked, ChangeSet):
                asked = self._commit_batch(asked)
            if isinstance(asked, _Pause):
                asked.reached.set()
                asked.over.wait()
            elif isinstance(asked, _Stop):
                return

    def _next(self) -> ChangeSet | _Pause | _Stop:
        """Wait for something to do, cleaning up meanwhile."""
        while self._sweeping and self.failure is None:
            try:
                return self._waiting.get_nowait()
            except Empty:
                self._sweep_alone()
        while self._room.is_short and self.failure is None:
            try:
                return self._waiting.get(timeout=LOOK_S)
            except Empty:
                self._look_for_room()
        return self._waiting.get()

    def _commit_batch(self, first: ChangeSet) -> _Pause | _Stop | None:
        """Commit this set and those that wait behind it; returns what it met instead of a set."""
        effect, last, met = NetEffect(self._counters), first, None
        try:
            if self.failure is None:
                last, met = self._gather(first, effect)
                self._commit_with_reserve(last.number, effect)
                self._look_for_room_sometimes(effect)
        except Exception as error:  # whatever it was, nothing of the batch was written and somebody waits for an answer
            self._fail(first.number, error)
        return met

    def _gather(self, first: ChangeSet, effect: NetEffect) -> tuple[ChangeSet, _Pause | _Stop | None]:
        """Fold waiting sets into the effect until none is left or a bound is reached."""
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

    def _commit_with_reserve(self, number: int, effect: NetEffect) -> None:
        """Commit, and once again if the disk was full and there is a reserve for that."""
        self._room.admit(self._connection, effect.growth_bytes)
        try:
            self._commit(number, effect)
        except Exception as error:
            roll_back(self._connection)
            if not self._room.use_reserve(self._connection, error) or not self._room.has_room_for(effect.size):
                raise
            self._commit(number, effect)

    def _look_for_room_sometimes(self, effect: NetEffect) -> None:
        """After much was written, or some time: a look costs more than writing one message."""
        now = monotonic()
        self._unlooked_bytes += effect.size + _ROW_BYTES * effect.row_count
        if self._room.is_short or self._unlooked_bytes > _UNLOOKED_BYTES_MAX or now > self._looked_at + _UNLOOKED_S_MAX:
            self._unlooked_bytes, self._looked_at = 0, now
            self._look_for_room()

    def _look_for_room(self) -> None:
        try:
            self._room.look_again(self._connection)
        except Exception as error:  # the next commit will show what is wrong
            log.warning("whether there is room on the disk cannot be seen: %s", one_line(error))

    def _commit(self, number: int, effect: NetEffect) -> None:
        execute(self._connection, "begin immediate")
        states = write(self._connection, number, effect)
        swept = self._sweep_along(number, effect)
        execute(self._connection, "commit")
        self._counters.advance(number, effect)
        self._sweeping = [*(one for one in self._sweeping if one != swept), *effect.dropped]
        self._report(Committed(number, states))

    def _sweep_along(self, number: int, effect: NetEffect) -> int | None:
        """Clean away a little in the transaction of others, who must not suffer when that fails."""
        try:
            return self._sweep_some()
        except Exception as error:
            if self._room.is_full(error):
                raise
            self._stop_sweeping(error)
            execute(self._connection, "begin immediate")
            write(self._connection, number, effect)
            return None

    def _sweep_some(self) -> int | None:
        """Clean away rows of one dropped entity; its id when that was the last of them."""
        if not self._sweeping:
            return None
        entity_id = self._sweeping[0]
        return entity_id if sweep(self._connection, entity_id, self._limits.swept_rows) else None

    def _sweep_alone(self) -> None:
        try:
            execute(self._connection, "begin immediate")
            swept = self._sweep_some()
            execute(self._connection, "commit")
        except Exception as error:
            roll_back(self._connection)
            if not self._room.use_reserve(self._connection, error):
                self._stop_sweeping(error)
        else:
            self._sweeping = [one for one in self._sweeping if one != swept]

    def _stop_sweeping(self, error: Exception) -> None:
        roll_back(self._connection)
        log.warning("cleaning up after a removed entity stopped until the next start: %s", one_line(error))
        self._sweeping = []

    def _fail(self, number: int, error: Exception) -> None:
        roll_back(self._connection)
        self.failure = error
        log.error("change set %d could not be committed: %s", number, one_line(error))
        self._report(CommitFailed(number, one_line(error)))
