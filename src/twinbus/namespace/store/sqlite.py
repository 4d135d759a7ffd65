"""The store on disk: one SQLite database in WAL mode for one namespace.

Two connections, each with a thread of its own: the writer commits change sets in groups, the reader answers row
requests from short transactions. `synchronous=full` makes SQLite sync the log before a commit returns, which is what
`Committed` promises. Memory does not grow with the number of stored messages: it holds a few counters per entity and
SQLite's page caches.

After a failed commit the connection stays open until `load` has written through it again. Were it closed, a recovery
could find the failed transaction in the log, complete but for its sync, and bring back what was reported as lost.
(A crash in that moment can do so; then those sets are there whole, which the contract allows.)

When the disk is full, no change can be written, not even a deletion, because every change goes to the log first. So a
reserve is kept (see `room.py`): it is given up then, the log is emptied into the database, and what was to be written
is written after all, if it is not too much. Nobody notices but those who send next. What was deleted in the database is
used again; the database itself never shrinks.

A commit that finds the database damaged is the last one: `load` refuses from then on, because to write on would make it
worse. A read that does so is reported as damage, and everything else goes on.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from twinbus.errors import OptionsError, StoreError, StoreInUse
from twinbus.namespace.store.api import Change, ReadRequest, Report, RoomChanged, StoredNamespace
from twinbus.namespace.store.backup import back_up
from twinbus.namespace.store.connection import (
    Connect,
    Connection,
    checkpoint_pages_for,
    default_connect,
    execute,
    is_corrupt,
    open_connection,
    store_error,
)
from twinbus.namespace.store.directory import ClaimedFile
from twinbus.namespace.store.format import make_current
from twinbus.namespace.store.reader import Reader
from twinbus.namespace.store.room import Room
from twinbus.namespace.store.soundness import refuse_damaged
from twinbus.namespace.store.tables import mark_loaded, read_counters, read_dropped, read_namespace
from twinbus.namespace.store.writer import BatchLimits, Writer

log = logging.getLogger(__name__)

_SYNCHRONOUS = ("off", "normal", "full", "extra")


class SqliteStore:
    """Implements `Store` over the database at `path`.

    Anything below "full" gives up durability; it is for tests. The log is copied into the database when it has
    `checkpoint_pages`; if that is not given, the size of the disk decides.
    """

    def __init__(
        self,
        path: Path,
        *,
        connect: Connect = default_connect,
        synchronous: str = "full",
        limits: BatchLimits = BatchLimits(),  # noqa: B008 - immutable
        checkpoint_pages: int | None = None,
    ) -> None:
        if synchronous not in _SYNCHRONOUS:
            raise OptionsError(f"synchronous must be one of {', '.join(_SYNCHRONOUS)}, got {synchronous}")
        self.path = path
        self._connect = connect
        self._synchronous = synchronous
        self._limits = limits
        self._checkpoint_pages = checkpoint_pages
        self._file = ClaimedFile(path)
        self._room = Room(path, checkpoint_pages, self._tell)
        self._connections: list[Connection] = []
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._next_number = 0
        self._report: Callable[[Report], None] | None = None
        self._reporting = Lock()
        self._closed = False

    def load(self) -> StoredNamespace:
        """What is stored. Also: opens the files the first time, and gets over a failed commit later.

        Raises `StoreInUse`, `StoreDamaged` or `StoreTooNew`, having touched nothing, and `StoreError`. The first call
        writes nothing to a store of the current format either: whoever cannot use what is in it can still walk away.
        """
        if self._closed:
            raise StoreError(f"the store {self.path} is closed")
        first = self._writer is None
        try:
            if first:
                self._open_with_reserve()
            else:
                self._get_over_failure()
            return self._load()
        except Exception as error:
            if first:
                self._let_go()
            raise store_error(self.path, error) from error

    def start(self, report: Callable[[Report], None]) -> None:
        """Send reports there from now on, from two threads but never two at once.

        Raises `StoreError`, and has let everything go, when the disk takes no writes.
        """
        writer, reader = self._opened()
        self._report = report
        try:
            self._mark_loaded_with_reserve()
            self._room.keep_reserve(self._connections[0])
        except Exception as error:
            self._let_go()
            raise store_error(self.path, error) from error
        if self._room.full is not None:  # it may have become so before anybody could be told
            self._tell(RoomChanged(self._room.full))
        writer.start()
        reader.start()

    def submit(self, number: int, changes: tuple[Change, ...]) -> None:
        """Queue a change set. One handed over after a failure or after `close` is never reported."""
        if self._closed:
            return
        writer, _ = self._opened()
        if writer.failure is not None:
            return
        if number != self._next_number:
            raise ValueError(f"change set {self._next_number} comes next, not {number}")
        self._next_number += 1
        writer.submit(number, changes)

    def request(self, request: ReadRequest) -> None:
        """Queue a read. One asked for after `close` is never answered."""
        if not self._closed:
            _, reader = self._opened()
            reader.request(request)

    def close(self) -> None:
        """Commit and report what was submitted, answer what was asked, release files and locks.

        Waits for the threads that report, so it cannot be called from inside a report.
        """
        if self._closed:
            return
        self._closed = True
        if self._writer and self._reader:
            self._writer.stop()
            self._reader.stop()
        self._let_go()

    def backup(self, target: Path) -> None:
        """Write a copy of this moment to a new file, at any time and while work goes on. See `back_up`."""
        back_up(self.path, target, connect=self._connect)

    def _open_with_reserve(self) -> None:
        """Open, and once again if the disk was full and there is a reserve for that."""
        try:
            self._open()
        except Exception as error:
            self._let_go()
            if isinstance(error, StoreInUse) or not self._room.use_reserve(None, error):
                raise
            self._open()

    def _mark_loaded_with_reserve(self) -> None:
        try:
            mark_loaded(self._connections[0])
        except Exception as error:
            if not self._room.use_reserve(self._connections[0], error):
                raise
            mark_loaded(self._connections[0])

    def _open(self) -> None:
        self._file.claim()
        writing = self._connection()
        refuse_damaged(writing, self.path)
        make_current(writing, self.path)
        reading = self._connection()
        execute(reading, "pragma query_only = on")
        self._writer = Writer(writing, self._tell, self._limits, self._room)
        self._reader = Reader(reading, self._tell)

    def _connection(self) -> Connection:
        pages = self._checkpoint_pages or checkpoint_pages_for(shutil.disk_usage(self.path.parent).total)
        connection = open_connection(self._connect, self.path, synchronous=self._synchronous, checkpoint_pages=pages)
        self._connections.append(connection)
        return connection

    def _get_over_failure(self) -> None:
        writer, _ = self._opened()
        with writer.paused():
            if writer.failure is not None:
                if is_corrupt(writer.failure):
                    raise writer.failure
                if not self._room.use_reserve(self._connections[0], writer.failure):
                    self._room.empty_log_if_it_fits(self._connections[0])
            self._mark_loaded_with_reserve()

    def _load(self) -> StoredNamespace:
        writer, _ = self._opened()
        with writer.paused():
            connection = self._connections[0]
            counters = read_counters(connection)
            stored = read_namespace(connection, counters)
            writer.resume(counters, read_dropped(connection))
            self._next_number = stored.last_number + 1
        return stored

    def _opened(self) -> tuple[Writer, Reader]:
        if self._writer is None or self._reader is None:
            raise StoreError(f"the store {self.path} is not loaded")
        return self._writer, self._reader

    def _tell(self, report: Report) -> None:
        with self._reporting:
            if self._report is not None:
                try:
                    self._report(report)
                except Exception:  # a listener that fails must not stop the commits of everybody else
                    log.exception("a report of the store %s was not taken", self.path)

    def _let_go(self) -> None:
        for connection in reversed(self._connections):
            try:
                connection.close()
            except Exception as error:  # the rest must be released all the same
                log.warning("%s", store_error(self.path, error))
        self._connections.clear()
        self._writer = self._reader = None
        self._file.release()
