"""The thread that ships the finished segments of a process. No send waits for it, and no failure reaches anybody."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from twinbus.ledger.options import LedgerOptions
from twinbus.own_files import open_lock, try_lock, unlock

if TYPE_CHECKING:
    from twinbus.ledger.reading.segment_files import StoredSegment
    from twinbus.ledger.upkeep.shipping import Shipper, ShipResult

log = logging.getLogger("twinbus.ledger")

RETRY_S_MAX = 300.0
LOCK = "ship.lock"


class _Work:
    """Segments to ship, and how that goes."""

    def __init__(self, interval_s: float, whose: str) -> None:
        self._interval_s = interval_s
        self.whose = whose
        self.wait_s = interval_s
        """When to go on: after a failure less and less often."""
        self.due_s = 0.0
        self.trouble = ""
        self.right: set[str] = set()
        self.pruned: set[str] = set()
        self.failed: dict[str, str] = {}
        """Not tried again before all the others were."""
        self.waiting: list[str] = []
        """Segments that are still written."""
        self.is_cut = False
        """Whether it stopped before the end, and goes on in the next round."""

    @property
    def skip(self) -> set[str]:
        return self.right | self.pruned | self.failed.keys()

    def note(self, result: ShipResult) -> str:
        """What failed."""
        self.right.update(result.right)
        self.pruned.update(result.pruned)
        self.failed.update(result.failed)
        self.waiting, self.is_cut = result.waiting, result.is_cut
        trouble = next((f"{name}: {why}" for name, why in self.failed.items()), self.trouble if self.is_cut else "")
        if not self.is_cut:
            self.failed.clear()
        return trouble

    def wait(self) -> None:
        if self.is_cut:
            self.due_s = 0.0
            return
        self.wait_s = max(self._interval_s, min(2 * self.wait_s, RETRY_S_MAX)) if self.trouble else self._interval_s
        self.due_s = time.monotonic() + self.wait_s


class ShipThread:
    """Ships what its process has finished, and once what is left of earlier ones, which ended before all was shipped.

    Its own comes first. Both that and the end, within its time, wait for at most one segment that others have left: the
    one that is on its way. What it does not get to is left for the next process that ships the directory, or for
    `twinbus ledger ship`.
    """

    def __init__(self, options: LedgerOptions, process: str | None) -> None:
        """Without a `process` it ships what any process has finished, each time."""
        self._options = options
        self._process = process
        self._own = _Work(options.ship_interval_s, "segments")
        self._left_overs = _Work(options.ship_interval_s, "segments that others left")
        self._has_shipped_left_overs = process is None
        self._is_last = threading.Event()
        self._has_shipped_own = threading.Event()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock: TextIO | None = None

    @property
    def shipped(self) -> int:
        """Segments of the process whose copies are right."""
        return len(self._own.right)

    @property
    def trouble(self) -> str:
        """Why its own segments cannot be shipped."""
        return self._own.trouble

    def start(self) -> None:
        if self._options.ship_to is None:
            return
        thread = threading.Thread(target=self._run, name="twinbus-ship", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads: the next process ships what this one records
            self._own.trouble = str(error)
            self._log(self._own, "cannot be shipped", self.trouble)
            return
        self._thread = thread

    def end(self, timeout_s: float) -> bool:
        """Ship once more what is finished now; whether that worked for its own segments within the time given."""
        if self._thread is None:
            return not self.trouble
        self._is_last.set()
        self._thread.join(timeout_s)
        self._is_over.set()
        missed = ""
        if not self._has_shipped_own.is_set():
            missed = "the time was over"
        elif self._process is not None and self._own.waiting and not self.trouble:
            missed = "the last is still written"
        if missed:
            self._log(self._own, "are not all shipped", f"{missed}; the next process that ships them goes on")
        return not missed and not self.trouble

    def let_go(self) -> None:
        """Close the lock without unlocking it, as a forked child does with that of its parent."""
        if self._lock is not None:
            self._lock.close()

    def _run(self) -> None:
        self._own.wait()
        while not self._is_last.wait(max(0.0, self._own.due_s - time.monotonic())):
            if self._ship(self._own, self._ship_own):
                self._look_at_left_overs(self._is_last)
        is_reached = self._ship(self._own, self._ship_own)
        self._has_shipped_own.set()
        if is_reached:
            self._look_at_left_overs(self._is_over)

    def _look_at_left_overs(self, stop: threading.Event) -> None:
        is_due = stop is self._is_over or time.monotonic() >= self._left_overs.due_s
        if is_due and not self._has_shipped_left_overs and not stop.is_set():
            self._ship(self._left_overs, lambda: self._ship_left_overs(stop))

    def _ship(self, work: _Work, ship: Callable[[], str]) -> bool:
        """Whether the place could be reached."""
        is_reached = True
        try:
            trouble = ship()
        except Exception as error:  # this thread must not die: nothing would be shipped any more
            trouble, is_reached = str(error) or type(error).__name__, False
        if self._is_over.is_set():
            pass  # the end said so, and what packages raise while a process ends says nothing
        elif trouble and not work.trouble:
            self._log(work, "cannot be shipped", trouble)
        elif work.trouble and not trouble:
            self._log(work, "are shipped again", "")
        work.trouble = trouble
        work.wait()
        return is_reached

    def _ship_own(self) -> str:
        work = self._own
        if self._has_finished_nothing():
            return ""
        return work.note(self._shipper().run(process=self._process, skip=work.skip))

    def _has_finished_nothing(self) -> bool:
        """Whether all is as it was after the last look, which had no trouble.

        A process begins a segment before it lets go of the one before: while it holds the one that it held then, there
        is no other that is finished. To look only at this one is all that most rounds cost, however full the folder is.
        """
        from twinbus.ledger.reading.segment_files import lock_of

        work = self._own
        if self._process is None or work.trouble or len(work.waiting) != 1:
            return False
        return lock_of(self._options.directory / work.waiting[0]) is True

    def _ship_left_overs(self, stop: threading.Event) -> str:
        """One process at a time ships them. Raises `OSError` or `StoreError`."""
        work = self._left_overs
        work.is_cut = False
        tried: list[StoredSegment] = []

        def is_over() -> bool:
            is_own_due = stop is self._is_last and time.monotonic() >= self._own.due_s
            return stop.is_set() or (is_own_due and bool(tried))  # at least one each time, or it would never end

        with self._left_overs_held() as are_held:
            if not are_held:
                return work.trouble
            found = self._shipper().run(left_overs=True, skip=work.skip, is_over=is_over, on_shipped=tried.append)
        trouble = work.note(found)
        if not trouble and not work.is_cut:
            work.right.clear()
            work.pruned.clear()
            self._has_shipped_left_overs = True
        return trouble

    @contextmanager
    def _left_overs_held(self) -> Iterator[bool]:
        """Whether nobody else ships what is left in the folder meanwhile, or nobody can say."""
        try:
            lock = open_lock(self._options.directory / LOCK)
        except OSError:
            yield True
            return
        with lock:
            self._lock = lock
            try:
                are_held = try_lock(lock.fileno())
            except OSError:  # no file locks there
                are_held = True
            try:
                yield are_held
            finally:
                self._lock = None  # before it is closed: a child must not close it while this thread does
                with suppress(OSError):
                    unlock(lock.fileno())

    def _shipper(self) -> Shipper:
        from twinbus.ledger.upkeep.shipping import (
            Shipper,  # not needed, and not paid for, by processes that ship nothing
        )

        return Shipper(self._options.directory, self._options.ship_to or "")

    def _log(self, work: _Work, what: str, why: str) -> None:
        about = f": {why}" if why else ""
        directory, place = self._options.directory, self._options.ship_to
        log.warning("%s of the ledger in %s %s to %s%s", work.whose, directory, what, place, about)
