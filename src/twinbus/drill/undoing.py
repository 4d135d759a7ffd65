"""Undo what drills have left changed that were killed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from twinbus.client.namespace import Namespace
from twinbus.drill.injection import clear_fault, put_status_back
from twinbus.drill.notes import Note, notes_in
from twinbus.drill.target import Office
from twinbus.errors import TwinbusError


class Undone(NamedTuple):
    drill: str
    entity: str
    is_done: bool
    text: str


async def undo_all(folder: Path, primary: Namespace | None, attempt_s: float) -> list[Undone]:
    """What became of every note. Drills that are running are left alone; `primary` is needed for a status."""
    return [await _undo(path, note, is_running, primary, attempt_s) for path, note, is_running in notes_in(folder)]


async def _undo(path: Path, note: Note, is_running: bool, primary: Namespace | None, attempt_s: float) -> Undone:
    if is_running:
        return _told(note, False, f"its drill is running, in process {note.pid}: Ctrl-C or SIGTERM ends it cleanly")
    try:
        if note.control:
            await clear_fault(Path(note.control), note.fault_id, note.entity)
        if note.was or note.subscription:
            await _put_back(note, _right(note, primary), attempt_s)
    except TwinbusError as error:
        return _told(note, False, str(error))
    path.unlink(missing_ok=True)
    return _told(note, True, "is as it was before the drill")


async def _put_back(note: Note, primary: Namespace, attempt_s: float) -> None:
    async with Office(primary, attempt_s) as office:
        if note.was:
            await put_status_back(office, note.entity, note.was)
        if note.subscription:
            await office.remove_subscription(note.entity, note.subscription)


def _right(note: Note, primary: Namespace | None) -> Namespace:
    """The namespace of a note."""
    if primary is None:
        raise TwinbusError(f"give --primary (or TWINBUS_PRIMARY): the connection string of {note.address}")
    if primary.address != note.address:
        raise TwinbusError(f"it belongs to {note.address}, and --primary is {primary.address}")
    return primary


def _told(note: Note, is_done: bool, text: str) -> Undone:
    return Undone(note.drill, note.entity, is_done, text)
