"""The change record of a drill, and how the changes of a killed drill are undone.

A change record is on disk for as long as something is changed. It is a file of JSON lines, each adding to the one
before; a torn last line is ignored. The drill keeps the file locked, and the lock ends with the process: a record
without a lock belongs to a drill that was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from twinbus.client.namespace import Namespace
from twinbus.drill.entity_admin import EntityAdministration
from twinbus.drill.injection import Way, clear_fault, put_status_back
from twinbus.errors import TwinbusError
from twinbus.own_files import make_own_folder, open_own, try_lock

SUFFIX = ".drill"


def default_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "twinbus" / "drills"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRecord:
    """What a drill changes. It holds no secrets: --undo is given the connection string again."""

    drill: str
    pid: int
    address: str
    """Of the primary."""
    entity: str
    way: Way
    began_at: str
    was: str = ""
    """The status before."""
    control: str = ""
    """The control socket, and the fault that was added there."""
    fault_id: str = ""
    subscription: str = ""
    """A subscription that was made for the canaries."""


class ChangeRecordFile:
    """One change record, from before the first change until everything is put back."""

    def __init__(self, folder: Path, note: ChangeRecord) -> None:
        """Raises `TwinbusError` if the file cannot be written: then nothing may be changed."""
        self.path = folder / f"{note.drill}{SUFFIX}"
        try:
            make_own_folder(folder)
            self._file = open_own(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND)
            self._begin(note)
        except OSError as error:
            raise TwinbusError(f"what a drill changes must be noted in {folder}, which fails: {error}") from None

    def _begin(self, note: ChangeRecord) -> None:
        try:
            if not try_lock(self._file):
                raise OSError(f"another process has locked {self.path}")
            self.add(**asdict(note))
        except OSError:
            self.close(is_put_back=True)  # nothing has been changed yet
            raise

    def add(self, **facts: Any) -> None:
        """On disk when this returns."""
        os.write(self._file, json.dumps(facts).encode() + b"\n")
        os.fsync(self._file)

    def close(self, *, is_put_back: bool) -> None:
        """Delete the file if nothing is left to undo."""
        if is_put_back:
            self.path.unlink(missing_ok=True)
        os.close(self._file)


def change_records_in(folder: Path) -> Iterator[tuple[Path, ChangeRecord, bool]]:
    """Every change record, and whether its drill still runs. Other files are skipped."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with contextlib.suppress(OSError):
            note = _read(path)
            if note is not None:
                yield path, note, _is_locked(path)


def _read(path: Path) -> ChangeRecord | None:
    facts: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            facts |= entry if isinstance(entry, dict) else {}
    known = {each.name for each in fields(ChangeRecord)}
    try:
        return ChangeRecord(**{name: value for name, value in facts.items() if name in known})
    except TypeError:
        return None


def _is_locked(path: Path) -> bool:
    file = os.open(path, os.O_RDONLY)
    try:
        return not try_lock(file, is_shared=True)
    finally:
        os.close(file)


class Undone(NamedTuple):
    drill: str
    entity: str
    is_done: bool
    text: str


async def undo_all(folder: Path, primary: Namespace | None, attempt_s: float) -> list[Undone]:
    """The result for every change record. Running drills are left alone; `primary` is needed to restore a status."""
    return [
        await _undo(path, note, is_running, primary, attempt_s) for path, note, is_running in change_records_in(folder)
    ]


async def _undo(
    path: Path, note: ChangeRecord, is_running: bool, primary: Namespace | None, attempt_s: float
) -> Undone:
    if is_running:
        text = f"its drill is running, in process {note.pid}: Ctrl-C or SIGTERM ends it cleanly"
        return Undone(note.drill, note.entity, False, text)
    try:
        if note.control:
            await clear_fault(Path(note.control), note.fault_id, note.entity)
        if note.was or note.subscription:
            await _put_back(note, _namespace_of(note, primary), attempt_s)
    except TwinbusError as error:
        return Undone(note.drill, note.entity, False, str(error))
    path.unlink(missing_ok=True)
    return Undone(note.drill, note.entity, True, "is as it was before the drill")


async def _put_back(note: ChangeRecord, primary: Namespace, attempt_s: float) -> None:
    async with EntityAdministration(primary, attempt_s) as admin:
        if note.was:
            await put_status_back(admin, note.entity, note.was)
        if note.subscription:
            await admin.remove_subscription(note.entity, note.subscription)


def _namespace_of(note: ChangeRecord, primary: Namespace | None) -> Namespace:
    """The namespace of a change record."""
    if primary is None:
        raise TwinbusError(f"give --primary (or TWINBUS_PRIMARY): the connection string of {note.address}")
    if primary.address != note.address:
        raise TwinbusError(f"it belongs to {note.address}, and --primary is {primary.address}")
    return primary
