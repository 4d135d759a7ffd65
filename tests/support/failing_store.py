"""A store whose connections get into trouble when a test says so."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twinbus.broker.store.sql_connection import SqlConnection, default_connect


class Trouble:
    """A connection factory whose connections call `on_statement` before each statement; it may wait or raise."""

    def __init__(self) -> None:
        self.on_statement: Callable[[str], None] = lambda sql: None

    def connect(self, path: Path) -> SqlConnection:
        return _TroubledConnection(default_connect(path), self)

    def fail_at(self, start: str) -> None:
        def fail(sql: str) -> None:
            if sql.startswith(start):
                raise sqlite3.OperationalError("database or disk is full")

        self.on_statement = fail

    def heal(self) -> None:
        self.on_statement = lambda sql: None


class _TroubledConnection:
    def __init__(self, inner: SqlConnection, trouble: Trouble) -> None:
        self._inner = inner
        self._trouble = trouble

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        self._trouble.on_statement(sql)
        return self._inner.execute(sql, parameters)

    def close(self) -> None:
        self._inner.close()
