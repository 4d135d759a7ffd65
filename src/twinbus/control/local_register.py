"""What there is on this machine: processes that can be asked how they are, and spools. Each has a small file here.

The files are in a folder of the user's own: `TWINBUS_RUN` if it is set, else `twinbus` in `XDG_RUNTIME_DIR`, else
`twinbus-<user id>` among temporary files. A service may lack `XDG_RUNTIME_DIR`, so both are looked at. A file whose
process is gone, or whose spool, is removed by the next one that looks. A restart of the machine forgets them all;
in `XDG_RUNTIME_DIR` the end of the user's last session does, too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from twinbus.errors import StoreError
from twinbus.own_files import check_folder, make_own_folder, open_own, write_whole

logger = logging.getLogger("twinbus.register")

RUN_VARIABLE = "TWINBUS_RUN"
SPOOL = "spool"
ENTRY_BYTES_MAX = 10_000


class Registered(NamedTuple):
    kind: str
    """E.g. `proxy`."""
    name: str
    pid: int
    path: Path
    """Where to ask: a control socket; or the folder of a spool."""
    number: int = 0
    """Tells those apart that a process has of one kind; 0: it has one."""


class Registration:
    """Registers this process, until `end`, so that others find it. Works on if that fails."""

    def __init__(self, kind: str, name: str, path: Path, *, number: int = 0) -> None:
        """`number` tells those apart that this process has of one kind and name."""
        key = f"{os.getpid()}-{name.lower()}" + (f"-{number}" if number else "")
        self._file = _write(kind, name, path, key, number)

    def end(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink()
            self._file = None


def register_spool(folder: Path, primary_name: str) -> None:
    """Let others find this spool as long as the folder is there: what a process leaves behind is to be found, too."""
    if folder.absolute() not in registered_spools(primary_name):
        _write(SPOOL, primary_name, folder, f"{crc32(str(folder.absolute()).encode()):08x}")


def registered(kind: str) -> list[Registered]:
    """Running processes of one kind, by name."""
    return _find(kind, lambda entry: _is_running(entry.pid))


def registered_spools(primary_name: str) -> list[Path]:
    """The folders of spools for this primary that processes of this user have, or had."""
    found = _find(SPOOL, lambda entry: _may_be_there(entry.path))
    return [entry.path for entry in found if entry.name.casefold() == primary_name.casefold()]


def _find(kind: str, is_there: Callable[[Registered], bool]) -> list[Registered]:
    found = {entry for place in _places() for entry in _entries(place, kind, is_there)}
    return sorted(found, key=lambda entry: (entry.name, entry.pid, entry.number, entry.path))


def _write(kind: str, name: str, path: Path, key: str, number: int = 0) -> Path | None:
    """The entry's file; None: it could not be written, and the process works on."""
    entry = {"kind": kind, "name": name, "pid": os.getpid(), "path": str(path.absolute()), "number": number}
    try:
        folder = _places()[0]
        make_own_folder(folder)
        check_folder(folder, must_be_ours=True)
        file = folder / f"{kind}-{key}.json"
        write_whole(file, json.dumps(entry))
    except (OSError, StoreError) as error:
        logger.warning("twinbus status will not find the %s %s: %s", kind, name, error)
        return None
    return file


def _places() -> list[Path]:
    """The first one is written."""
    chosen = os.environ.get(RUN_VARIABLE)
    if chosen:
        return [Path(chosen)]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = [Path(runtime) / "twinbus"] if runtime and Path(runtime).is_dir() else []
    usual = [Path(f"/run/user/{os.geteuid()}/twinbus"), Path(tempfile.gettempdir()) / f"twinbus-{os.geteuid()}"]
    return [*own, *(usual if own else reversed(usual))]


def _entries(place: Path, kind: str, is_there: Callable[[Registered], bool]) -> Iterator[Registered]:
    try:
        check_folder(place, must_be_ours=True)
        files = sorted(place.glob(f"{kind}-*.json"))
    except (OSError, StoreError):
        return
    for file in files:
        entry = _read(file)
        if entry is not None and is_there(entry):
            yield entry
        else:
            with contextlib.suppress(OSError):
                file.unlink()


def _read(file: Path) -> Registered | None:
    try:
        with os.fdopen(open_own(file, os.O_RDONLY), encoding="utf-8") as opened:
            entry = json.loads(opened.read(ENTRY_BYTES_MAX))
        number = int(entry["number"]) if "number" in entry else 0
        return Registered(str(entry["kind"]), str(entry["name"]), int(entry["pid"]), Path(str(entry["path"])), number)
    except (OSError, StoreError, ValueError, KeyError, TypeError):
        return None


def _may_be_there(folder: Path) -> bool:
    """False only if it certainly is not: one that cannot be looked at may hold messages."""
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid > 0
