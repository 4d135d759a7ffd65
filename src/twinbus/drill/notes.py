"""What a drill has changed, on disk as long as it is changed: whoever kills the drill can still undo it.

A note is a file of JSON lines, each adding to the one before; a torn last line is as if it were not there. The drill
keeps its note locked, and a lock ends with the process: a note without a lock belongs to a drill that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from twinbus.errors import TwinbusError
from twinbus.own_files import make_own_folder, open_own

SUFFIX = ".drill"


def default_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "twinbus" / "drills"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """No secrets: whoever undoes a drill says again how the namespace is reached."""

    drill: str
    pid: int
    address: str
    """Of the primary."""
    entity: str
    way: Literal["status", "control"]
    began_at: str
    was: str = ""
    """The status before."""
    control: str = ""
    """The control socket, and the fault that was ordered there."""
    fault_id: str = ""
    subscription: str = ""
    """A subscription that was made for the canaries."""


class NoteKeeper:
    """One note, from before the first change until everything is put back."""

    def __init__(self, folder: Path, note: Note) -> None:
        """Raises `TwinbusError` if it cannot be written: then nothing may be changed."""
        self.path = folder / f"{note.drill}{SUFFIX}"
        try:
            make_own_folder(folder)
            self._file = open_own(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND)
            self._begin(note)
        except OSError as error:
            raise TwinbusError(f"what a drill changes must be noted in {folder}, which fails: {error}") from None

    def _begin(self, note: Note) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.add(**asdict(note))
        except OSError:
            self.close(is_put_back=True)  # a note that could not be written is about nothing
            raise

    def add(self, **facts: Any) -> None:
        """On disk when this returns."""
        os.write(self._file, json.dumps(facts).encode() + b"\n")
        os.fsync(self._file)

    def close(self, *, is_put_back: bool) -> None:
        """The note goes if there is nothing to undo any more."""
        if is_put_back:
            self.path.unlink(missing_ok=True)
        os.close(self._file)


def notes_in(folder: Path) -> Iterator[tuple[Path, Note, bool]]:
    """Every note, and whether its drill still runs; what is no note is passed over."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with contextlib.suppress(OSError):
            note = _read(path)
            if note is not None:
                yield path, note, _is_locked(path)


def _read(path: Path) -> Note | None:
    facts: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            facts |= said if isinstance(said, dict) else {}
    known = {each.name for each in fields(Note)}
    try:
        return Note(**{name: value for name, value in facts.items() if name in known})
    except TypeError:
        return None


def _is_locked(path: Path) -> bool:
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
