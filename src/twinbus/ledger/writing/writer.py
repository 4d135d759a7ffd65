"""The ledger of a process: `record` returns at once, and a thread writes.

`record` puts the event into a deque and returns: no lock, no system call, about a microsecond, and no exception
whatever happens. Everything that can wait or fail happens in one background thread, a few times a second:

* A record is safe from a crash of the process when it was handed to the system (`write_interval_s`, or `flush`), and
  from a power cut when it was synced (`sync_interval_s`, or `flush(sync=True)`; always when a segment ends).
* When the disk refuses, records wait in memory, up to `memory_bytes_max`; then new ones are dropped. The application
  goes on. Once writing works again the dropped ones are a hole in the numbers and a `gap` record that explains it.
* The limits `directory_bytes_max` and `free_bytes_min` work like a full disk. Old segments are never deleted: what was
  recorded is evidence, and only its owner can say when it has been copied or compacted.
* A forked child writes as a process of its own, into its own files, beginning with its first event. A child that ends
  without running exit handlers (`os._exit`, as `multiprocessing` does) has to call `close` or `flush`.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import secrets
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from twinbus.errors import OptionsError, StoreError
from twinbus.ledger.kinds import Kind
from twinbus.ledger.lines import LineWriter
from twinbus.ledger.options import LedgerOptions, ship_to_or_variable
from twinbus.ledger.schema import Event
from twinbus.ledger.upkeep.ship_thread import ShipThread
from twinbus.ledger.writing.liveness import NOTED, LivenessMark, boot_id
from twinbus.ledger.writing.record_writer import DroppedEvents, EventDraft, QueuedEvent, RecordWriter
from twinbus.ledger.writing.segment import Disk, Segments
from twinbus.ledger.writing.writer_thread import Flush, WriterThread
from twinbus.own_files import check_folder, make_own_folder

log = logging.getLogger("twinbus.ledger")

EVENT_WEIGHT, MESSAGE_WEIGHT = 600, 120
"""About what an event, and each message in it, takes up in memory beside its texts."""
EXIT_S_MAX = 2.0
FOR_GOOD = {errno.ENOTDIR, errno.EEXIST, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG}


@dataclass(frozen=True, slots=True)
class LedgerHealth:
    process: str
    written: int
    """Records in files."""
    waiting: int
    """Events in memory."""
    lost: int
    """Events that were dropped."""
    trouble: str
    """Why writing does not work at the moment; empty when it does."""
    shipped: int = 0
    """Segments that were copied to `ship_to`."""
    ship_trouble: str = ""
    """Why they cannot be copied at the moment; empty when they can, or need not be."""


class Ledger:
    """Records what happens in this process into a directory. Threads, tasks and signal handlers may share one."""

    def __init__(
        self,
        options: LedgerOptions,
        *,
        disk: Disk | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Raises `OptionsError` if the directory can never be used, or nothing can be shipped to `ship_to`.

        A full disk does not count, nor a place that does not answer.
        """
        _check_directory(options.directory)
        self._ships_to_url = False
        if options.ship_to is not None:
            from twinbus.ledger.upkeep.shipping import place_for  # not paid for by processes that ship nothing

            self._ships_to_url = not place_for(options.directory, options.ship_to).is_local
        self._options = options
        self._disk = disk or Disk()
        self._clock_ns = clock_ns
        self._monotonic_ns = monotonic_ns
        self._begin()
        _LEDGERS.add(self)

    @classmethod
    def at(cls, directory: Path | str, program: str = "", ship_to: str | None = None) -> Ledger:
        """A ledger in this directory, otherwise with default options; `ship_to` may be in TWINBUS_LEDGER_SHIP_TO."""
        place = ship_to_or_variable(ship_to)
        return cls(LedgerOptions(directory=Path(directory), program=program, ship_to=place))

    def _begin(self) -> None:
        """The state of a process that has recorded nothing yet."""
        self._process = secrets.token_hex(8)
        self._state: Literal["new", "running", "closed"] = "new"
        self._queue: deque[QueuedEvent] = deque()
        self._weight = 0
        self._weight_calm = -1  # below any weight: the first event takes the long way, which starts the thread
        self._lost = DroppedEvents()
        self._lost_count = 0
        self._turn = threading.RLock()  # reentrant: a signal handler may record too. A plain record never takes it
        self._make_background()

    def _make_background(self) -> None:
        options, clock_ns, monotonic_ns = self._options, self._clock_ns, self._monotonic_ns
        lines = LineWriter(process=self._process, pid=os.getpid(), host=socket.gethostname(), program=options.program)
        segments = Segments(options, self._process, self._disk, opened_ns=clock_ns())
        self._record_writer = RecordWriter(
            lines, segments, release=self._release, clock_ns=clock_ns, monotonic_ns=monotonic_ns
        )
        self._mark = LivenessMark()
        self._background = WriterThread(
            options, self._queue, self._record_writer, self._take_lost, monotonic_ns, self._mark, self._process
        )
        self._shipping = ShipThread(options, self._process)

    @property
    def directory(self) -> Path:
        return self._options.directory

    @property
    def process(self) -> str:
        """The name of this process in its records."""
        return self._process

    # --- on the path of a send ---

    def record(self, event: Event, /) -> None:
        """Queue an event. It is numbered and written soon, or counted as lost; nothing is raised."""
        try:
            weight = (
                EVENT_WEIGHT
                + len(event.entity)
                + len(event.condition)
                + len(event.reason)
                + sum(map(len, event.message_ids))
                + MESSAGE_WEIGHT * len(event.message_ids)
            )
            if event.session_ids:
                weight += sum(map(len, event.session_ids))
            self._weight += weight
            if self._weight <= self._weight_calm:
                self._queue.append((self._clock_ns(), self._monotonic_ns(), weight, event))
                self._mark.cells[NOTED] = 1
            else:
                self._record_slowly(event, weight)
        except Exception as error:
            self._reject(error)

    def record_later(self, weight: int, make: Callable[..., Event], arguments: tuple[Any, ...]) -> None:
        """Queue the event that `make(*arguments)` returns; the writer's thread calls it.

        `weight` is about how many bytes it takes up; `make` must not depend on when and where it is called.
        """
        self._weight += weight
        if self._weight <= self._weight_calm:
            self._queue.append((self._clock_ns(), self._monotonic_ns(), weight, (make, arguments)))
            self._mark.cells[NOTED] = 1
        else:
            self._record_slowly((make, arguments), weight)

    def _record_slowly(self, event: Event | EventDraft, weight: int) -> None:
        """The first event starts the thread; where many wait it is woken; what finds no room is counted as lost."""
        if self._state == "new":
            self._start()
        if self._state == "running" and self._weight <= self._options.memory_bytes_max:
            self._queue.append((self._clock_ns(), self._monotonic_ns(), weight, event))
            self._mark.cells[NOTED] = 1
            if self._weight > self._weight_calm:
                self._background.call()
            return
        self._weight -= weight
        with self._turn:
            now_ns = self._clock_ns()
            self._lost.add(1, now_ns, now_ns)
            self._lost_count += 1
        self._mark.cells[NOTED] = 1

    def _reject(self, error: Exception) -> None:
        """Record that an event was invalid."""
        with suppress(Exception):
            self.record(Event(Kind.REJECTED, reason=f"{type(error).__name__}: {error}"[:500]))

    def _start(self) -> None:
        with self._turn:
            if self._state != "new":
                return
            self._state, self._weight_calm = "running", self._options.memory_bytes_max // 2
            sync_s = self._options.sync_interval_s
            self._record_writer.open(
                wait_us=round(self._options.write_interval_s * 1e6),
                sync_us=-1 if sync_s is None else max(1, round(sync_s * 1e6)),
                boot=boot_id(),
            )
            try:
                self._background.start()
            except RuntimeError as error:  # no more threads: the next event tries again
                self._state, self._weight_calm = "new", -1
                self._make_background()
                log.warning("the ledger cannot start its thread: %s", error)
                return
            self._shipping.start()

    def _release(self, weight: int) -> None:
        """This much no longer waits. Threads that count at the same time may miscount; an empty deque puts it right."""
        self._weight = self._weight - weight if self._queue else 0

    def _take_lost(self) -> DroppedEvents:
        with self._turn:
            lost, self._lost = self._lost, DroppedEvents()
            return lost

    # --- may wait ---

    def flush(self, timeout_s: float = 2.0, *, sync: bool = False) -> bool:
        """Whether everything recorded so far is in a file now (with `sync`: on the disk), within the time given."""
        if not self._background.is_alive:
            return self._background.ended_well and not self._queue and (not sync or self._background.sync())
        flush = Flush(sync)
        self._background.ask(flush)
        return flush.done.wait(timeout_s) and flush.is_written

    def close(self, timeout_s: float = 5.0) -> bool:
        """Write what is left and end the thread; whether all of that worked within the time given.

        Then as much time again is given to shipping, which the answer is not about: what is left is shipped by the next
        process that ships this directory. Events that are recorded afterwards are counted as lost and nothing else.
        Closing again is harmless.
        """
        return self._close(timeout_s, timeout_s)

    def _close(self, timeout_s: float, ship_s: float | None) -> bool:
        with self._turn:
            state, self._state, self._weight_calm = self._state, "closed", -1
        if state == "running":
            self._background.end()
        ended = self._background.join(timeout_s) and self._background.ended_well
        if state == "running" and ship_s is not None:
            self._shipping.end(ship_s)
        return ended

    def close_at_exit(self) -> None:
        """As `close`, for whoever has not. Packages that reach URLs need threads, which can no longer be started: what
        is left is shipped by the next process, as after a kill.
        """
        self._close(EXIT_S_MAX, None if self._ships_to_url else EXIT_S_MAX)

    def health(self) -> LedgerHealth:
        lost = self._lost_count + self._record_writer.given_up
        return LedgerHealth(
            self._process,
            self._record_writer.written,
            len(self._queue),
            lost,
            self._background.trouble,
            self._shipping.shipped,
            self._shipping.trouble,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # --- fork and exit ---

    def _begin_anew_in_child(self) -> None:
        self._record_writer.segments.let_go()
        self._shipping.let_go()
        was_closed = self._state == "closed"
        self._begin()
        if was_closed:
            self._state = "closed"


def _check_directory(directory: Path) -> None:
    try:
        make_own_folder(directory)
    except OSError as error:
        if error.errno in FOR_GOOD:
            raise OptionsError(f"the ledger cannot be kept in {directory}: {error.strerror}") from error
    if directory.is_dir() and not os.access(directory, os.W_OK | os.X_OK):
        raise OptionsError(f"the ledger cannot be kept in {directory}: nothing may be written there")
    with suppress(OSError):
        try:
            check_folder(directory)
        except StoreError as error:  # a program must not fail because of its ledger
            log.warning("the ledger: %s", error)


_LEDGERS: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _begin_anew_in_child() -> None:
    for ledger in list(_LEDGERS):
        ledger._begin_anew_in_child()


def _close_at_exit() -> None:
    for ledger in list(_LEDGERS):
        ledger.close_at_exit()


os.register_at_fork(after_in_child=_begin_anew_in_child)
atexit.register(_close_at_exit)
