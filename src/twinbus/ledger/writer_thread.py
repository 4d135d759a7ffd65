"""The thread that writes. Everything that can wait or fail happens here, a few times a second."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from twinbus.ledger.liveness import LivenessMark
from twinbus.ledger.options import LedgerOptions
from twinbus.ledger.record_writer import DroppedEvents, QueuedEvent, RecordWriter

log = logging.getLogger("twinbus.ledger")

RETRY_S_MAX = 5.0


@dataclass(slots=True)
class Flush:
    """A request to write what is queued now; `done` is set when it is answered."""

    sync: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    fine: bool = False

    def answer(self, fine: bool) -> None:
        self.fine = fine
        self.done.set()


class WriterThread:
    def __init__(
        self,
        options: LedgerOptions,
        notes: deque[QueuedEvent],
        scribe: RecordWriter,
        take_lost: Callable[[], DroppedEvents],
        monotonic_ns: Callable[[], int],
        mark: LivenessMark,
        process: str,
    ) -> None:
        self._options = options
        self._notes = notes
        self._scribe = scribe
        self._take_lost = take_lost
        self._monotonic_ns = monotonic_ns
        self._mark = mark
        self._process = process
        self._asks: SimpleQueue[Flush | None] = SimpleQueue()  # takes things from anywhere, signal handlers included
        self._thread: threading.Thread | None = None
        self._called = False
        self.ended_well = True
        self.trouble = ""

    def start(self) -> None:
        """Raises `RuntimeError` if the system has no thread left."""
        thread = threading.Thread(target=self._run, name="twinbus-ledger", daemon=True)
        thread.start()
        self._thread = thread

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def call(self) -> None:
        """Write now instead of at the next interval, without waiting for it."""
        if not self._called:
            self._called = True
            self._asks.put(Flush())

    def ask(self, flush: Flush) -> None:
        self._asks.put(flush)

    def sync(self) -> bool:
        """Whether everything is on the disk. For the thread itself, and for others once it has ended."""
        return self._attempt(self._scribe.segments.sync)

    def end(self) -> None:
        """Write what is left, and end."""
        self._asks.put(None)

    def join(self, timeout_s: float) -> bool:
        """Whether it has ended, within the time given."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.is_alive

    def _run(self) -> None:
        wait_s, synced_ns = self._options.write_interval_s, self._monotonic_ns()
        self._mark.share(self._process)
        while True:
            asks = self._asks_within(wait_s)
            self._called = False
            flushes = [ask for ask in asks if ask is not None]
            if len(flushes) < len(asks):
                return self._finish(flushes)
            fine = self._write_down()
            if fine and self._sync_is_due(flushes, synced_ns):
                fine, synced_ns = self.sync(), self._monotonic_ns()
            if fine:
                self._log_recovery()
            _answer(flushes, fine)
            wait_s = self._options.write_interval_s if fine else min(wait_s * 2, RETRY_S_MAX)

    def _asks_within(self, wait_s: float) -> list[Flush | None]:
        """Requests that come within this time; returns with the first."""
        asks: list[Flush | None] = []
        try:
            asks.append(self._asks.get(timeout=wait_s))
            while True:
                asks.append(self._asks.get_nowait())
        except Empty:
            return asks

    def _write_down(self) -> bool:
        self._mark.begin()
        self._scribe.lose(self._take_lost())
        fine = self._attempt(lambda: self._scribe.write(self._notes, self._why_lost))
        if fine:
            self._mark.end(self._scribe.now_ms, self._scribe.number)
        return fine

    def _sync_is_due(self, flushes: list[Flush], synced_ns: int) -> bool:
        every_s = self._options.sync_interval_s
        due = every_s is not None and self._monotonic_ns() - synced_ns >= every_s * 1e9
        return due or any(flush.sync for flush in flushes)

    def _finish(self, flushes: list[Flush]) -> None:
        self._scribe.lose(self._take_lost())
        self.ended_well = self._attempt(lambda: self._scribe.close(self._notes, self._why_lost))
        if self.ended_well:
            self._mark.leave()
        self._scribe.segments.let_go()
        fine = self.ended_well and (not any(flush.sync for flush in flushes) or self.sync())
        _answer(flushes, fine)

    def _attempt(self, step: Callable[[], None]) -> bool:
        """Whether it worked. Trouble is logged when it begins, not every time."""
        try:
            step()
        except Exception as error:  # this thread must not die: the ledger would die with it
            if not self.trouble:
                where = self._options.directory
                log.warning("the ledger in %s cannot be written, the application goes on: %s", where, error)
            self.trouble = f"{error}"
            return False
        return True

    def _log_recovery(self) -> None:
        if self.trouble:
            log.warning("the ledger in %s is written again", self._options.directory)
            self.trouble = ""

    @property
    def _why_lost(self) -> str:
        return self.trouble or f"more than {self._options.memory_bytes_max} bytes waited in memory"


def _answer(flushes: list[Flush], fine: bool) -> None:
    for flush in flushes:
        flush.answer(fine)
