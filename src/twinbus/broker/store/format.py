"""The format of a store: what its file must be before it is used, its tables, and upgrades.

SQLite's header carries two marks: `application_id` says that the file is a twinbus store, `user_version` is the store
format. A new store and an upgrade are one transaction each, so a crash leaves the old format or the new one.

Whether a file is ours is decided from its bytes, before SQLite may touch it: opening a database may switch its journal,
replay a log into it and delete the log. The first page may be newer in the log than in the file; of the log only what
was committed counts. Checksums are not checked, they take too long to compute: a torn transaction counts as committed,
which can only refuse a store in the middle of an upgrade, and the version that began the upgrade can finish it.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import BinaryIO, NamedTuple

from twinbus.broker.store.api import STORE_FORMAT
from twinbus.broker.store.sql_connection import SqlConnection, execute, first_value, roll_back
from twinbus.errors import StoreDamaged, StoreTooNew

log = logging.getLogger("twinbus.namespace")

APPLICATION_ID = 0x74776273  # "twbs"

_MAGIC = b"SQLite format 3\x00"
_FIRST_PAGE_BYTES = 108
"""The header, and the start of the schema tree after it."""
_FORMAT_AT, _OWNER_AT, _TREE_AT, _CELLS_AT = 60, 68, 100, 103
_LEAF = 0x0D
_LOG_MAGICS = (0x377F0682, 0x377F0683)
_LOG_HEADER = struct.Struct(">II I I 8s 8s")
"""Magic, version, page size, number of checkpoints, salt, checksum."""
_FRAME = struct.Struct(">II 8s 8s")
"""Page number, size of the database if this frame ends a transaction, salt, checksum."""


class FirstPage(NamedTuple):
    owner: int
    format: int
    has_tables: bool


def check_is_store(path: Path) -> None:
    """Raise unless the file is missing, empty, or a twinbus store in a known format.

    An empty file without a log counts as a new store: a crash while a store is created leaves it, and nothing can be
    lost. Next to a log it is refused, because SQLite would delete the log.
    """
    if not path.exists():
        return
    if path.stat().st_size == 0:
        if log_path(path).exists() and log_path(path).stat().st_size > 0:
            raise StoreDamaged(f"the store {path} is damaged: the file is empty, but its log {log_path(path)} is not")
        log.warning("the store %s is an empty file: creating a new store in it", path)
        return
    page = read_first_page(path)
    if page.owner != APPLICATION_ID and (page.owner != 0 or page.has_tables):
        raise StoreDamaged(f"the store {path} is damaged: the file is a database, but not of twinbus")
    check_known_format(path, page.format, STORE_FORMAT)


def check_known_format(path: Path, found: int, known: int) -> None:
    """Raise `StoreTooNew` for a format number above the known one."""
    if found > known:
        raise StoreTooNew(f"the store {path} has format {found}, made by a newer twinbus; this one knows up to {known}")


def read_first_page(path: Path) -> FirstPage:
    """The first page as last committed; raises `StoreDamaged` if the file is not a database."""
    with path.open("rb") as file:
        page = file.read(_FIRST_PAGE_BYTES)
    if len(page) < _FIRST_PAGE_BYTES or not page.startswith(_MAGIC):
        raise StoreDamaged(f"the store {path} is damaged: the file is not a database")
    if log_path(path).exists():
        with log_path(path).open("rb") as file:
            page = _newest_first_page(file) or page
    (found,) = struct.unpack_from(">I", page, _FORMAT_AT)
    (owner,) = struct.unpack_from(">I", page, _OWNER_AT)
    (cells,) = struct.unpack_from(">H", page, _CELLS_AT)
    return FirstPage(owner, found, page[_TREE_AT] != _LEAF or cells > 0)


def log_path(path: Path) -> Path:
    """Where SQLite keeps the write-ahead log of a database."""
    return path.with_name(path.name + "-wal")


def _newest_first_page(file: BinaryIO) -> bytes | None:
    """The start of the last committed first page in a log; None if there is none."""
    header = file.read(_LOG_HEADER.size)
    if len(header) < _LOG_HEADER.size:
        return None
    magic, _, page_bytes, _, salt, _ = _LOG_HEADER.unpack(header)
    if magic not in _LOG_MAGICS:
        return None
    written = committed = None
    at = _LOG_HEADER.size
    while len(head := file.read(_FRAME.size)) == _FRAME.size:
        number, ends_transaction, frame_salt, _ = _FRAME.unpack(head)
        if frame_salt != salt:
            break  # left over from before the last checkpoint
        if number == 1:
            written = file.read(_FIRST_PAGE_BYTES)
        if ends_transaction:
            committed = written
        at += _FRAME.size + page_bytes
        file.seek(at)
    return committed if committed is not None and len(committed) == _FIRST_PAGE_BYTES else None


CHECK_BYTES_MAX = 64 << 20
"""A larger store is not checked: on a slow disk it would take too long."""


def check_integrity(connection: SqlConnection, path: Path) -> None:
    """Raise `StoreDamaged` if a store of up to 64 MiB is corrupt; nothing is changed.

    Found: pages that are garbage, truncated, used twice or not at all, rows out of order, values that a column does not
    allow. Not found: changed bytes inside a value, and an index that disagrees with its table. In a larger store damage
    shows on a read; then that queue is closed to receivers. A commit that meets damage stops the namespace.
    """
    files = [file for file in (path, log_path(path)) if file.exists()]
    if sum(file.stat().st_size for file in files) > CHECK_BYTES_MAX:
        return
    problems = [str(problem) for (problem,) in execute(connection, "pragma quick_check(1)")]
    if problems != ["ok"]:
        raise StoreDamaged(f"the store {path} is damaged: {' '.join(' '.join(problems).split())}")


Upgrade = Callable[[SqlConnection], None]


def _to_format_2(connection: SqlConnection) -> None:
    """Shared payloads, session states, message ids."""
    execute(connection, "alter table messages add column body_id integer")
    there = _names_in(connection)
    for statement in _schema():
        if _created_by(statement) not in there:
            execute(connection, statement)


UPGRADES: Mapping[int, Upgrade] = {1: _to_format_2}
"""By format number: upgrades a store of that format to the next."""


def make_current(
    connection: SqlConnection, path: Path, *, wanted: int = STORE_FORMAT, upgrades: Mapping[int, Upgrade] = UPGRADES
) -> None:
    """Create or upgrade the tables, if necessary.

    Raises `StoreDamaged` for another application's database and `StoreTooNew` for a newer store; neither is changed.
    """
    found = read_format(connection, path)
    check_known_format(path, found, wanted)
    if found == wanted:
        missing = set(map(_created_by, _schema())) - _names_in(connection)
        if missing:
            raise StoreDamaged(f"the store {path} is damaged: it has no {', '.join(sorted(missing))}")
        return
    execute(connection, "begin immediate")
    try:
        if found == 0:
            for statement in _schema():
                execute(connection, statement)
            execute(connection, f"pragma application_id = {APPLICATION_ID}")
        for version in range(found, wanted) if found else ():
            upgrades[version](connection)
        execute(connection, f"pragma user_version = {wanted}")
        execute(connection, "commit")
    except BaseException:
        roll_back(connection)
        raise


def read_format(connection: SqlConnection, path: Path) -> int:
    """The format number of the store; 0 for an empty file."""
    owner = first_value(connection, "pragma application_id")
    empty = not first_value(connection, "select count(*) from sqlite_schema")
    if owner == 0 and empty:
        return 0
    if owner != APPLICATION_ID:
        raise StoreDamaged(f"the store {path} is damaged: the file is a database, but not of twinbus")
    return int(first_value(connection, "pragma user_version"))


def _names_in(connection: SqlConnection) -> set[str]:
    """The names of all tables, indexes and triggers."""
    return {name for (name,) in execute(connection, "select name from sqlite_schema")}


def _schema() -> list[str]:
    """The statements that make a store."""
    script = resources.files("twinbus.broker.store").joinpath("schema.sql").read_text(encoding="utf-8")
    without_comments = "\n".join(line for line in script.splitlines() if not line.startswith("--"))
    return [statement for statement in map(str.strip, without_comments.split("\n\n")) if statement]


def _created_by(statement: str) -> str:
    """The name of what a schema statement creates: its third word."""
    return statement.split()[2]
