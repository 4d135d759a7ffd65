"""The thread that ships the finished segments of a process. No send waits for it, and no failure reaches anybody."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.ledger.options import LedgerOptions
from twinbus.own_files import open_lock, try_lock, unlock

if TYPE_CHECKING:
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

    def note(self, result: ShipResult) -> str:
        """What failed."""
        self.right.update(result.right)
        self.pruned.update(result.pruned)
        return next((f"{name}: {why}" for name, why in result.failed.items()), "")

    def wait(self) -> None:
        self.wait_s = max(self._interval_s, min(2 * self.wait_s, RETRY_S_MAX)) if self.trouble else self._interval_s
        self.due_s = time.monotonic() + self.wait_s


class ShipThread:
    """Ships what its process has finished, and once what is left of earlier ones, which ended before all was shipped.

    Its own comes first; what others have left delays neither that nor the end. What it does not get to is left for the
    next process that ships the directory, or for `twinbus ledger ship`.
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

    @property
    def shipped(self) -> int:
        """Segments of the process whose copies are right."""
        return len(self._own.right)

    @property
    def trouble(self) -> str:
        """Why its own segments cannot be shipped."""
        return self._own.trouble

    def start(self) -> None:
        if self._options.ship_to is not None:
            self._thread = threading.Thread(target=self._run, name="twinbus-ship", daemon=True)
            self._thread.start()

    def end(self, timeout_s: float) -> bool:
        """Ship once more what is finished now; whether that worked for its own segments within the time given."""
        if self._thread is None:
            return True
        self._is_last.set()
        self._thread.join(timeout_s)
        self._is_over.set()
        is_done = self._has_shipped_own.is_set()
        if not is_done:
            self._log(self._own, "are not all shipped", "the time was over; the next process that ships them goes on")
        return is_done and not self.trouble

    def _run(self) -> None:
        while not self._is_last.wait(self._own.wait_s):
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
        if trouble and not work.trouble:
            self._log(work, "cannot be shipped", trouble)
        elif work.trouble and not trouble:
            self._log(work, "are shipped again", "")
        work.trouble = trouble
        work.wait()
        return is_reached

    def _ship_own(self) -> str:
        work = self._own
        return work.note(self._shipper().run(process=self._process, skip=work.right | work.pruned))

    def _ship_left_overs(self, stop: threading.Event) -> str:
        """One process at a time ships them. Raises `OSError` or `StoreError`."""
        with _left_overs_held(self._options.directory) as are_held:
            if not are_held:
                return self._left_overs.trouble
            work = self._left_overs
            found = self._shipper().run(left_overs=True, skip=work.right | work.pruned, is_over=stop.is_set)
        trouble = work.note(found)
        self._has_shipped_left_overs = not trouble and not stop.is_set()
        return trouble

    def _shipper(self) -> Shipper:
        from twinbus.ledger.upkeep.shipping import (
            Shipper,  # not needed, and not paid for, by processes that ship nothing
        )

        return Shipper(self._options.directory, self._options.ship_to or "")

    def _log(self, work: _Work, what: str, why: str) -> None:
        about = f": {why}" if why else ""
        directory, place = self._options.directory, self._options.ship_to
        log.warning("%s of the ledger in %s %s to %s%s", work.whose, directory, what, place, about)


@contextmanager
def _left_overs_held(directory: Path) -> Iterator[bool]:
    """Whether nobody else ships what is left in a folder meanwhile, or nobody can say."""
    try:
        lock = open_lock(directory / LOCK)
    except OSError:
        yield True
        return
    with lock:
        try:
            are_held = try_lock(lock.fileno())
        except OSError:  # no file locks there
            yield True
            return
        try:
            yield are_held
        finally:
            if are_held:
                unlock(lock.fileno())
