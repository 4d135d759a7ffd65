"""What a database says of itself on its first page, read from the bytes of its files.

SQLite cannot be asked without consequences: to open a database may switch its journal, replay a log into it and delete
the log. So whether a file is ours is decided here, before SQLite may touch it. The first page may be newer in the log
than in the file; of the log only what was committed counts. Checksums are not looked at, they take too long to compute:
a transaction that a crash tore is taken for whole, which can only refuse a store in the middle of an upgrade, and
whoever began that upgrade can finish it.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

from twinbus.errors import StoreDamaged, StoreTooNew
from twinbus.namespace.store.api import STORE_FORMAT

log = logging.getLogger(__name__)

APPLICATION_ID = 0x74776273  # "twbs"

_MAGIC = b"SQLite format 3\x00"
_PAGE_ONE_BYTES = 108
"""The header, and the head of the tree of tables that follows it."""
_FORMAT_AT, _OWNER_AT, _TREE_AT, _CELLS_AT = 60, 68, 100, 103
_LEAF = 0x0D
_LOG_MAGICS = (0x377F0682, 0x377F0683)
_LOG_HEADER = struct.Struct(">II I I 8s 8s")
"""Magic, version, page size, number of checkpoints, salt, checksum."""
_FRAME = struct.Struct(">II 8s 8s")
"""Page number, size of the database if this frame ends a transaction, salt, checksum."""


class PageOne(NamedTuple):
    owner: int
    format: int
    has_tables: bool


def refuse_strangers(path: Path) -> None:
    """Raise unless the file is missing, empty, or a store of ours in a format that is known.

    An empty file without a log counts as a store that is still to be made: that is what a crash in the first moments of
    a new store leaves, and nothing can be lost in it. Next to a log it is refused, because SQLite would delete the log.
    """
    if not path.exists():
        return
    if path.stat().st_size == 0:
        _refuse_lost(path)
        log.warning("the store %s is an empty file: a new store is made in it", path)
        return
    page = read_page_one(path)
    if page.owner != APPLICATION_ID and (page.owner != 0 or page.has_tables):
        raise StoreDamaged(f"the store {path} is damaged: the file is a database, but not of twinbus")
    refuse_newer(path, page.format, STORE_FORMAT)


def refuse_newer(path: Path, found: int, known: int) -> None:
    """Raise `StoreTooNew` for a format number above the known one."""
    if found > known:
        raise StoreTooNew(f"the store {path} has format {found}, made by a newer twinbus; this one knows up to {known}")


def read_page_one(path: Path) -> PageOne:
    """The first page as it was committed last; raises `StoreDamaged` if the file is no database."""
    with path.open("rb") as file:
        page = file.read(_PAGE_ONE_BYTES)
    if len(page) < _PAGE_ONE_BYTES or not page.startswith(_MAGIC):
        raise StoreDamaged(f"the store {path} is damaged: the file is not a database")
    if log_path(path).exists():
        with log_path(path).open("rb") as file:
            page = _newest_page_one(file) or page
    (found,) = struct.unpack_from(">I", page, _FORMAT_AT)
    (owner,) = struct.unpack_from(">I", page, _OWNER_AT)
    (cells,) = struct.unpack_from(">H", page, _CELLS_AT)
    return PageOne(owner, found, page[_TREE_AT] != _LEAF or cells > 0)


def log_path(path: Path) -> Path:
    """Where SQLite keeps the write-ahead log of a database."""
    return path.with_name(path.name + "-wal")


def _refuse_lost(path: Path) -> None:
    if log_path(path).exists() and log_path(path).stat().st_size > 0:
        raise StoreDamaged(f"the store {path} is damaged: the file is empty, but its log {log_path(path)} is not")


def _newest_page_one(file: BinaryIO) -> bytes | None:
    """The start of the last committed first page in a log; None if it has none."""
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
            written = file.read(_PAGE_ONE_BYTES)
        if ends_transaction:
            committed = written
        at += _FRAME.size + page_bytes
        file.seek(at)
    return committed if committed is not None and len(committed) == _PAGE_ONE_BYTES else None
