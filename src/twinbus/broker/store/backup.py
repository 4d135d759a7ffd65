"""Copies of a store, taken while it is in use."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from twinbus.broker.store.format import read_format
from twinbus.broker.store.locked_file import sync_path
from twinbus.broker.store.sql_connection import default_connect, execute, store_error
from twinbus.errors import StoreError


def back_up(path: Path, target: Path) -> None:
    """Copy the store at `path` to the new file `target`, also while a server uses it.

    The copy is compact, shows one moment, and is durable before it gets its name. Raises `StoreError` if the target
    exists or a file cannot be used. The log of a busy store grows meanwhile, because the copy reads one snapshot.
    """
    if not path.exists():
        raise StoreError(f"there is no store at {path}")
    if target.exists():
        raise StoreError(f"the backup {target} already exists")
    try:
        handle, name = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".partial", dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise _target_error(target, error) from error
    try:
        _copy(path, Path(name))
        _publish(Path(name), target)
    finally:
        Path(name).unlink()


def _copy(path: Path, target: Path) -> None:
    try:
        connection = default_connect(path)
        try:
            execute(connection, "pragma busy_timeout = 10000")
            if not read_format(connection, path):
                raise StoreError(f"there is no store at {path}")
            execute(connection, "vacuum into ?", (str(target),))
        finally:
            connection.close()
    except Exception as error:
        raise store_error(path, error) from error


def _publish(partial: Path, target: Path) -> None:
    try:
        sync_path(partial)
        os.link(partial, target)  # unlike a rename it fails if the target exists by now
        sync_path(target.parent)
    except OSError as error:
        raise _target_error(target, error) from error


def _target_error(target: Path, error: OSError) -> StoreError:
    return StoreError(f"the backup {target} cannot be written: {(error.strerror or str(error)).lower()}")
