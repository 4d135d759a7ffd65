"""Connections to SQLite: how they are set up, and what their errors mean.

Only `execute` and `close` are used: both `sqlite3` and `apsw` connections fit, so a test can simulate a disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from twinbus.errors import StoreDamaged, StoreError

PAGE_BYTES = 8192
"""Holds seven messages of 1 KiB. In 4 KiB a quarter of the page stays empty; 16 KiB make small commits expensive."""
CHECKPOINT_PAGES = 512
"""The log is copied into the database when it has 4 MiB, or less on a disk below 256 MiB. Sends wait meanwhile: with
16 MiB that was 20 to 60 ms, for the same throughput."""
CHECKPOINT_PAGES_MIN = 64
_DISK_PARTS = 64
"""The log may take such a part of the disk before it is copied."""
_LOGS_KEPT = 4
"""A log that grew while a reader held it is truncated to this many times the usual length."""
CACHE_KIB = 16_384

_CORRUPT, _NOT_A_DATABASE = 11, 26
"""SQLite's result codes."""


class SqlConnection(Protocol):
    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Iterable[Any]: ...

    def close(self) -> None: ...


SqlConnect = Callable[[Path], SqlConnection]


def default_connect(path: Path) -> SqlConnection:
    """A `sqlite3` connection without implicit transactions that may change threads between them."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def open_connection(
    connect: SqlConnect, path: Path, *, synchronous: str = "full", checkpoint_pages: int = CHECKPOINT_PAGES
) -> SqlConnection:
    """A configured connection; closed again if it cannot be set up."""
    connection = connect(path)
    try:
        _set_up(connection, synchronous, checkpoint_pages)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: SqlConnection, synchronous: str, checkpoint_pages: int) -> None:
    execute(connection, "pragma busy_timeout = 10000")
    execute(connection, f"pragma page_size = {PAGE_BYTES}")  # counts only while the file is empty
    mode = first_value(connection, "pragma journal_mode = wal")
    if mode != "wal":
        raise StoreError(f"the file system does not support a write-ahead log (journal mode is {mode})")
    execute(connection, f"pragma synchronous = {synchronous}")  # full: Committed promises durability
    execute(connection, f"pragma wal_autocheckpoint = {checkpoint_pages}")
    execute(connection, f"pragma journal_size_limit = {_LOGS_KEPT * checkpoint_pages * PAGE_BYTES}")
    execute(connection, f"pragma cache_size = -{CACHE_KIB}")
    # Some builds zero deleted rows: every delete would write its page.
    execute(connection, "pragma secure_delete = off")


def checkpoint_pages_for(disk_bytes: int) -> int:
    """How long the log may become on a disk of this size."""
    return min(CHECKPOINT_PAGES, max(CHECKPOINT_PAGES_MIN, disk_bytes // _DISK_PARTS // PAGE_BYTES))


def checkpoint(connection: SqlConnection) -> None:
    """Copy the log into the database and free its space, as far as the disk and readers allow."""
    with suppress(Exception):  # the next statement shows whether the disk is usable
        execute(connection, "pragma wal_checkpoint(truncate)")


def execute(connection: SqlConnection, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
    """Run one statement to its end, so that no cursor keeps a read transaction open; returns its rows."""
    return list(connection.execute(sql, parameters))


def first_value(connection: SqlConnection, sql: str, parameters: Sequence[Any] = ()) -> Any:
    """The first column of the first row; None if there is no row."""
    rows = execute(connection, sql, parameters)
    return rows[0][0] if rows else None


def roll_back(connection: SqlConnection) -> None:
    """Roll back the open transaction, if SQLite has not done so itself."""
    with suppress(Exception):  # none was open, or the disk is gone: the original error is reported
        execute(connection, "rollback")


def one_line(error: BaseException) -> str:
    """The error text on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def store_error(path: Path, error: BaseException) -> StoreError:
    """The error to raise for one of SQLite or the operating system."""
    if isinstance(error, StoreError) and str(path) in str(error):
        return error
    if is_damage(error):
        return StoreDamaged(f"the store {path} is damaged: {damage_of(error)}")
    if isinstance(error, OSError) and error.strerror:
        return StoreError(f"the store {path} cannot be used: {error.strerror.lower()}")
    return StoreError(f"the store {path} cannot be used: {one_line(error)}")


def is_damage(error: BaseException) -> bool:
    """Whether an error means that the data is corrupt, not just unavailable."""
    return isinstance(error, _CONTRADICTIONS | StoreDamaged) or is_corrupt(error)


def is_corrupt(error: BaseException) -> bool:
    """Whether SQLite found the database corrupt."""
    return result_code(error) in (_CORRUPT, _NOT_A_DATABASE)


def result_code(error: BaseException) -> int:
    """SQLite's primary result code; 0 if the error is not one of SQLite."""
    return int(getattr(error, "sqlite_errorcode", None) or getattr(error, "result", None) or 0) & 0xFF


def damage_of(error: BaseException) -> str:
    """What is corrupt, on one line."""
    text = one_line(error)
    return f"its tables contradict each other ({text})" if isinstance(error, _CONTRADICTIONS) else text


_CONTRADICTIONS = LookupError | TypeError | ValueError | AttributeError
"""What our own code raises if rows are not as it wrote them."""
