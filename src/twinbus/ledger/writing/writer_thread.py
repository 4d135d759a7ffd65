"""The thread that writes the ledger. Everything that can wait or fail happens here, a few times a second."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from twinbus.ledger.options import LedgerOptions
from twinbus.ledger.writing.liveness import LivenessMark
from twinbus.ledger.writing.record_writer import DroppedEvents, QueuedEvent, RecordWriter

log = logging.getLogger("twinbus.ledger")

RETRY_S_MAX = 5.0


@dataclass(slots=True)
class Flush:
    """A request to write what is queued now; `done` is set when it is answered."""

    sync: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    is_written: bool = False


class WriterThread:
    def __init__(
        self,
        options: LedgerOptions,
        queue: deque[QueuedEvent],
        writer: RecordWriter,
        take_lost: Callable[[], DroppedEvents],
        monotonic_ns: Callable[[], int],
        mark: LivenessMark,
        process: str,
    ) -> None:
        self._options = options
        self._queue = queue
        self._writer = writer
        self._take_lost = take_lost
        self._monotonic_ns = monotonic_ns
        self._mark = mark
        self._process = process
        self._requests: SimpleQueue[Flush | None] = (
            SimpleQueue()
        )  # takes things from anywhere, signal handlers included
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
            self._requests.put(Flush())

    def ask(self, flush: Flush) -> None:
        self._requests.put(flush)

    def sync(self) -> bool:
        """Whether everything is on the disk. For the thread itself, and for others once it has ended."""
        return self._attempt(self._writer.segments.sync)

    def end(self) -> None:
        """Write what is left, and end."""
        self._requests.put(None)

    def join(self, timeout_s: float) -> bool:
        """Whether it has ended, within the time given."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.is_alive

    def _run(self) -> None:
        wait_s, synced_ns = self._options.write_interval_s, self._monotonic_ns()
        self._mark.share(self._process, self._writer.now_ms)
        while True:
            requests = self._requests_within(wait_s)
            self._called = False
            flushes = [request for request in requests if request is not None]
            if len(flushes) < len(requests):
                return self._finish(flushes)
            fine = self._write_down()
            if fine and self._sync_is_due(flushes, synced_ns):
                fine, synced_ns = self.sync(), self._monotonic_ns()
            if fine:
                self._log_recovery()
            _answer(flushes, fine)
            wait_s = self._options.write_interval_s if fine else min(wait_s * 2, RETRY_S_MAX)

    def _requests_within(self, wait_s: float) -> list[Flush | None]:
        """Requests that come within this time; returns with the first."""
        requests: list[Flush | None] = []
        try:
            requests.append(self._requests.get(timeout=wait_s))
            while True:
                requests.append(self._requests.get_nowait())
        except Empty:
            return requests

    def _write_down(self) -> bool:
        self._mark.begin()
        self._writer.lose(self._take_lost())
        fine = self._attempt(lambda: self._writer.write(self._queue, self._why_lost))
        if fine:
            self._mark.end(self._writer.now_ms, self._writer.number)
        return fine

    def _sync_is_due(self, flushes: list[Flush], synced_ns: int) -> bool:
        every_s = self._options.sync_interval_s
        due = every_s is not None and self._monotonic_ns() - synced_ns >= every_s * 1e9
        return due or any(flush.sync for flush in flushes)

    def _finish(self, flushes: list[Flush]) -> None:
        self._writer.lose(self._take_lost())
        self.ended_well = self._attempt(lambda: self._writer.close(self._queue, self._why_lost))
        if self.ended_well:
            self._mark.leave()
        self._writer.segments.let_go()
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
        flush.is_written = fine
        flush.done.set()
