"""The store on disk: one SQLite database in WAL mode for one namespace.

Two connections, each with its own thread: the writer commits change sets in groups, the reader answers requests from
short transactions. `synchronous=full` makes SQLite sync the log before a commit returns, which is what `Committed`
promises. Memory does not grow with the number of stored messages: it holds a few counters per entity and SQLite's page
caches.

After a failed commit the connection stays open until `load` has written through it again. If it were closed, a recovery
could find the failed transaction in the log, complete except for its sync, and restore what was reported as lost. (A
crash at that moment can do so; then those sets are complete, which the contract allows.)

When the disk is full, no change can be written, not even a deletion, because every change goes to the log first. So a
reserve is kept (see `disk_space.py`): it is freed then, the log is copied into the database, and the change is written
after all if it is not too large. Only later sends are refused. Space freed in the database is used again; the file
itself never shrinks.

A commit that finds the database damaged is the last one: `load` refuses from then on, because further writes would make
it worse. A read that does so is reported as damage, and everything else continues.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from twinbus.broker.store.api import Change, DiskSpaceChanged, ReadRequest, Report, StoredNamespace
from twinbus.broker.store.disk_space import DiskSpace
from twinbus.broker.store.format import check_integrity, make_current
from twinbus.broker.store.locked_file import LockedFile
from twinbus.broker.store.reader import StoreReader
from twinbus.broker.store.sql_connection import (
    SqlConnect,
    SqlConnection,
    checkpoint_pages_for,
    default_connect,
    execute,
    is_corrupt,
    open_connection,
    store_error,
)
from twinbus.broker.store.tables import mark_loaded, read_counters, read_dropped, read_namespace
from twinbus.broker.store.writer import BatchLimits, StoreWriter
from twinbus.errors import OptionsError, StoreError, StoreInUse

log = logging.getLogger("twinbus.namespace")

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
        connect: SqlConnect = default_connect,
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
        self._file = LockedFile(path)
        self._space = DiskSpace(path, checkpoint_pages, self._send_report)
        self._connections: list[SqlConnection] = []
        self._writer: StoreWriter | None = None
        self._reader: StoreReader | None = None
        self._next_number = 0
        self._report: Callable[[Report], None] | None = None
        self._reporting = Lock()
        self._closed = False

    def load(self) -> StoredNamespace:
        """What is stored. The first call opens the files; later calls recover from a failed commit.

        Raises `StoreInUse`, `StoreDamaged` or `StoreTooNew` before anything is changed, or `StoreError`. The first call
        writes nothing to a store of the current format, so a caller that cannot use it leaves it as it was.
        """
        if self._closed:
            raise StoreError(f"the store {self.path} is closed")
        first = self._writer is None
        try:
            if first:
                self._open_with_reserve()
            else:
                self._recover()
            return self._load()
        except Exception as error:
            if first:
                self._release()
            raise store_error(self.path, error) from error

    def start(self, report: Callable[[Report], None]) -> None:
        """Send reports there from now on, from two threads but never two at once.

        Raises `StoreError`, and releases everything, if the disk accepts no writes.
        """
        writer, reader = self._opened()
        self._report = report
        try:
            self._mark_loaded_with_reserve()
            self._space.keep_reserve(self._connections[0])
        except Exception as error:
            self._release()
            raise store_error(self.path, error) from error
        if self._space.full is not None:  # it may have become full before there was a listener
            self._send_report(DiskSpaceChanged(self._space.full))
        writer.start()
        reader.start()

    def submit(self, number: int, changes: tuple[Change, ...]) -> None:
        """Queue a change set. After a failure or `close` it is never reported."""
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
        """Queue a read. After `close` it is never answered."""
        if not self._closed:
            _, reader = self._opened()
            reader.request(request)

    def close(self) -> None:
        """Commit and report what was submitted, answer all reads, release files and locks.

        Waits for the reporting threads, so it must not be called from inside a report.
        """
        if self._closed:
            return
        self._closed = True
        if self._writer and self._reader:
            self._writer.stop()
            self._reader.stop()
        self._release()

    def _open_with_reserve(self) -> None:
        """Open; retry once if the disk was full and there is a reserve."""
        try:
            self._open()
        except Exception as error:
            self._release()
            if isinstance(error, StoreInUse) or not self._space.use_reserve(None, error):
                raise
            self._open()

    def _mark_loaded_with_reserve(self) -> None:
        try:
            mark_loaded(self._connections[0])
        except Exception as error:
            if not self._space.use_reserve(self._connections[0], error):
                raise
            mark_loaded(self._connections[0])

    def _open(self) -> None:
        self._file.claim()
        writing = self._connection()
        check_integrity(writing, self.path)
        make_current(writing, self.path)
        reading = self._connection()
        execute(reading, "pragma query_only = on")
        self._writer = StoreWriter(writing, self._send_report, self._limits, self._space)
        self._reader = StoreReader(reading, self._send_report)

    def _connection(self) -> SqlConnection:
        pages = self._checkpoint_pages or checkpoint_pages_for(shutil.disk_usage(self.path.parent).total)
        connection = open_connection(self._connect, self.path, synchronous=self._synchronous, checkpoint_pages=pages)
        self._connections.append(connection)
        return connection

    def _recover(self) -> None:
        writer, _ = self._opened()
        with writer.paused():
            if writer.failure is not None:
                if is_corrupt(writer.failure):
                    raise writer.failure
                if not self._space.use_reserve(self._connections[0], writer.failure):
                    self._space.checkpoint_if_it_fits(self._connections[0])
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

    def _opened(self) -> tuple[StoreWriter, StoreReader]:
        if self._writer is None or self._reader is None:
            raise StoreError(f"the store {self.path} is not loaded")
        return self._writer, self._reader

    def _send_report(self, report: Report) -> None:
        with self._reporting:
            if self._report is not None:
                try:
                    self._report(report)
                except Exception:  # a listener that fails must not stop all commits
                    log.exception("a report of the store %s was not handled", self.path)

    def _release(self) -> None:
        for connection in reversed(self._connections):
            try:
                connection.close()
            except Exception as error:  # the rest must be released all the same
                log.warning("%s", store_error(self.path, error))
        self._connections.clear()
        self._writer = self._reader = None
        self._file.release()
