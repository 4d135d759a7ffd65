"""The shape of the tables: made in a new file, checked in an old one, upgraded when twinbus has moved on.

SQLite's own header carries both marks: `application_id` says that the file is a twinbus store, `user_version` is the
store format. A new store and an upgrade are one transaction each, so a crash leaves the old shape or the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

from twinbus.errors import StoreDamaged
from twinbus.namespace.store.api import STORE_FORMAT
from twinbus.namespace.store.connection import Connection, execute, first_value, roll_back
from twinbus.namespace.store.header import APPLICATION_ID, refuse_newer

Upgrade = Callable[[Connection], None]


def _to_format_2(connection: Connection) -> None:
    """Payloads that are shared, session states, ids of messages."""
    execute(connection, "alter table messages add column body_id integer")
    there = {name for (name,) in execute(connection, "select name from sqlite_schema")}
    for statement in _schema():
        if _made_by(statement) not in there:
            execute(connection, statement)


UPGRADES: Mapping[int, Upgrade] = {1: _to_format_2}
"""By format number: turns a store of that format into one of the next."""


def make_current(
    connection: Connection, path: Path, *, wanted: int = STORE_FORMAT, upgrades: Mapping[int, Upgrade] = UPGRADES
) -> None:
    """Leave the wanted format behind, whether the file was empty, older or already right.

    Raises `StoreDamaged` for somebody else's database and `StoreTooNew` for a newer store; neither is changed.
    """
    found = found_format(connection, path)
    refuse_newer(path, found, wanted)
    if found == wanted:
        _refuse_incomplete(connection, path)
        return
    execute(connection, "begin immediate")
    try:
        if found == 0:
            _create(connection)
        for version in range(found, wanted) if found else ():
            upgrades[version](connection)
        execute(connection, f"pragma user_version = {wanted}")
        execute(connection, "commit")
    except BaseException:
        roll_back(connection)
        raise


def found_format(connection: Connection, path: Path) -> int:
    """The format number of the store; 0 when nothing was ever put into the file."""
    owner = first_value(connection, "pragma application_id")
    empty = not first_value(connection, "select count(*) from sqlite_schema")
    if owner == 0 and empty:
        return 0
    if owner != APPLICATION_ID:
        raise StoreDamaged(f"the store {path} is damaged: the file is a database, but not of twinbus")
    return int(first_value(connection, "pragma user_version"))


def _refuse_incomplete(connection: Connection, path: Path) -> None:
    there = {name for (name,) in execute(connection, "select name from sqlite_schema")}
    missing = set(map(_made_by, _schema())) - there
    if missing:
        raise StoreDamaged(f"the store {path} is damaged: it has no {', '.join(sorted(missing))}")


def _create(connection: Connection) -> None:
    for statement in _schema():
        execute(connection, statement)
    execute(connection, f"pragma application_id = {APPLICATION_ID}")


def _schema() -> list[str]:
    """The statements that make a store."""
    script = resources.files("twinbus.namespace.store").joinpath("schema.sql").read_text(encoding="utf-8")
    without_comments = "\n".join(line for line in script.splitlines() if not line.startswith("--"))
    return [statement for statement in map(str.strip, without_comments.split("\n\n")) if statement]


def _made_by(statement: str) -> str:
    """The name of what a statement of the schema makes: its third word."""
    return statement.split()[2]
