"""The little of SQLite's interface that the store uses, how a connection is set up, and what its errors mean.

A connection needs `execute` and `close`, nothing else: both `sqlite3` and `apsw` connections fit, so a test can put a
disk of its own below the store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from twinbus.errors import StoreDamaged, StoreError

PAGE_BYTES = 8192
"""Holds seven messages of 1 KiB. In 4 KiB a quarter of the page stays empty; 16 KiB make small commits dearer."""
CHECKPOINT_PAGES = 512
"""The log is copied into the database when it is 4 MiB long, or shorter on a disk below 256 MiB. Whoever sends waits
meanwhile: with 16 MiB that was 20 to 60 ms, and as many messages were written in all."""
CHECKPOINT_PAGES_MIN = 64
_DISK_PARTS = 64
"""Such a part of the disk the log may take before it is copied."""
_LOGS_KEPT = 4
"""A log that grew longer while a reader held it is cut back to so many times the usual length."""
CACHE_KIB = 16_384

_CORRUPT, _NOT_A_DATABASE = 11, 26
"""SQLite's result codes."""


class Connection(Protocol):
    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Iterable[Any]: ...

    def close(self) -> None: ...


Connect = Callable[[Path], Connection]


def default_connect(path: Path) -> Connection:
    """A connection of the standard library that leaves transactions to us and may change threads between them."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def open_connection(
    connect: Connect, path: Path, *, synchronous: str = "full", checkpoint_pages: int = CHECKPOINT_PAGES
) -> Connection:
    """A connection ready for work; closed again if it cannot be set up."""
    connection = connect(path)
    try:
        _set_up(connection, synchronous, checkpoint_pages)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: Connection, synchronous: str, checkpoint_pages: int) -> None:
    execute(connection, "pragma busy_timeout = 10000")
    execute(connection, f"pragma page_size = {PAGE_BYTES}")  # counts only while the file is empty
    mode = first_value(connection, "pragma journal_mode = wal")
    if mode != "wal":
        raise StoreError(f"the file system does not support a write-ahead log (journal mode is {mode})")
    execute(connection, f"pragma synchronous = {synchronous}")  # full: Committed promises durability
    execute(connection, f"pragma wal_autocheckpoint = {checkpoint_pages}")
    execute(connection, f"pragma journal_size_limit = {_LOGS_KEPT * checkpoint_pages * PAGE_BYTES}")
    execute(connection, f"pragma cache_size = -{CACHE_KIB}")
    execute(
        connection, "pragma secure_delete = off"
    )  # some builds zero deleted rows: every delete would write its page


def checkpoint_pages_for(disk_bytes: int) -> int:
    """How long the log may get on a disk of that size."""
    return min(CHECKPOINT_PAGES, max(CHECKPOINT_PAGES_MIN, disk_bytes // _DISK_PARTS // PAGE_BYTES))


def empty_log(connection: Connection) -> None:
    """Copy the log into the database and give its space back, as far as the disk and the readers let us."""
    with suppress(Exception):  # what comes next will show whether the disk is usable
        execute(connection, "pragma wal_checkpoint(truncate)")


def execute(connection: Connection, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
    """Run one statement to its end and return its rows, so that no cursor keeps a read transaction open."""
    return list(connection.execute(sql, parameters))


def first_value(connection: Connection, sql: str, parameters: Sequence[Any] = ()) -> Any:
    """The first column of the first row; None if there is no row."""
    rows = execute(connection, sql, parameters)
    return rows[0][0] if rows else None


def roll_back(connection: Connection) -> None:
    """Give up the open transaction, if SQLite has not done so by itself."""
    with suppress(Exception):  # none was open, or the disk is gone: the error that brought us here says enough
        execute(connection, "rollback")


def one_line(error: BaseException) -> str:
    """What went wrong, fit for the end of a sentence."""
    return " ".join(str(error).split()) or type(error).__name__


def store_error(path: Path, error: BaseException) -> StoreError:
    """The error to raise for one that came from SQLite or the operating system while using the store."""
    if isinstance(error, StoreError) and str(path) in str(error):
        return error
    if is_damage(error):
        return StoreDamaged(f"the store {path} is damaged: {damage_of(error)}")
    if isinstance(error, OSError) and error.strerror:
        return StoreError(f"the store {path} cannot be used: {error.strerror.lower()}")
    return StoreError(f"the store {path} cannot be used: {one_line(error)}")


def is_damage(error: BaseException) -> bool:
    """Whether an error means that what is stored is broken, and not just out of reach."""
    return isinstance(error, _CONTRADICTIONS | StoreDamaged) or is_corrupt(error)


def is_corrupt(error: BaseException) -> bool:
    """Whether SQLite has found the database broken."""
    code = getattr(error, "sqlite_errorcode", None) or getattr(error, "result", None) or 0
    return int(code) & 0xFF in (_CORRUPT, _NOT_A_DATABASE)


def damage_of(error: BaseException) -> str:
    """What is broken, fit for the end of a sentence."""
    text = one_line(error)
    return f"its tables contradict each other ({text})" if isinstance(error, _CONTRADICTIONS) else text


_CONTRADICTIONS = LookupError | TypeError | ValueError | AttributeError
"""What our own code raises when rows are not as it wrote them."""
