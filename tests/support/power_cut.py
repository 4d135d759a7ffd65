"""A disk that loses power: what was not synced is gone.

`PowerCutDisk` is a SQLite VFS over the real file system. Reads and writes go through to real files, so a store works on
it as on any disk; beside them it remembers, for every file, which bytes a sync has made safe. At any moment
`crash_into` writes what a disk would hold after a power cut now:

    disk = PowerCutDisk(tmp_path / "data")
    store = SqliteStore(tmp_path / "data" / "store.db", connect=disk.connect)
    ...                                               # work
    disk.crash_into(tmp_path / "after")               # the store goes on; it does not notice
    SqliteStore(tmp_path / "after" / "store.db").load()

* Without `survivors` everything written since the last sync of its file is lost. With a `random.Random` each unsynced
  write is cut into sectors of 512 bytes to 4 KiB and every sector survives or not: torn and reordered writes.
* `before(operation, action)` calls the action just before that write, truncation, sync or deletion, counted from 1 over
  all files, in the thread that does it: a cut there is exact, and a seed repeats it. `operations` is the count so far.
* `refuses_syncs = True` makes every sync fail with an I/O error, after its writes have reached the file.
* Names are safe as soon as they exist, and so are deletions. SQLite syncs directories itself where that matters, and a
  log that comes back after its deletion holds nothing new.

Files below `root` that SQLite did not write (keys, settings) are copied as they are; lock files, sockets and shared
memory are not, because a cut ends those.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from threading import RLock
from types import TracebackType
from typing import Any

import apsw

_NUMBERS = count(1)
_SECTOR_BYTES = (512, 1024, 2048, 4096)
_KEPT_KINDS = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL
_NOT_COPIED = (".lock", "-shm")

Write = tuple[int, bytes]
"""Offset and bytes."""


class PowerCutDisk:
    """Files below `root`, with a memory of what is safe. Use `connect` as a store's connection factory."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.operations = 0
        self.refuses_syncs = False
        self._files: dict[Path, _Platter] = {}
        self._actions: dict[int, Callable[[], None]] = {}
        self._lock = RLock()
        self._vfs = _Files(f"power-cut-{next(_NUMBERS)}", self)

    def __enter__(self) -> PowerCutDisk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._vfs.unregister()

    def connect(self, path: Path) -> apsw.Connection:
        return apsw.Connection(str(path), vfs=self._vfs.vfs_name)

    def before(self, operation: int, action: Callable[[], None]) -> None:
        """Call the action just before the operation with that number."""
        self._actions[operation] = action

    def crash_into(self, directory: Path, *, survivors: Random | None = None) -> None:
        """Write what is left after a power cut now into a new directory, laid out as below `root`."""
        with self._lock:
            for path in sorted(self.root.rglob("*")):
                if path.is_file() and path not in self._files and not path.name.endswith(_NOT_COPIED):
                    _write(directory / path.relative_to(self.root), path.read_bytes())
            for path, platter in sorted(self._files.items()):
                _write(directory / path.relative_to(self.root), platter.after_cut(survivors))

    def opened(self, path: Path) -> None:
        """A file is opened; what it holds when it is first seen counts as safe."""
        with self._lock:
            if path not in self._files:
                self._files[path] = _Platter(path.read_bytes() if path.exists() else b"")

    def wrote(self, path: Path, write: Write | int) -> None:
        """A file is written to, or truncated to that length."""
        self._count()
        with self._lock:
            self._files[path].unsynced.append(write)

    def synced(self, path: Path) -> None:
        self._count()
        if self.refuses_syncs:
            raise apsw.IOError("the disk refuses to sync")
        with self._lock:
            self._files[path].sync()

    def deleted(self, path: Path) -> None:
        self._count()
        with self._lock:
            self._files.pop(path, None)

    def _count(self) -> None:
        with self._lock:
            self.operations += 1
            action = self._actions.pop(self.operations, None)
        if action is not None:
            action()


class _Platter:
    """One file: its safe bytes, and what happened to it since."""

    def __init__(self, safe: bytes) -> None:
        self.safe = bytearray(safe)
        self.unsynced: list[Write | int] = []

    def sync(self) -> None:
        for write in self.unsynced:
            _apply(self.safe, write)
        self.unsynced.clear()

    def after_cut(self, survivors: Random | None) -> bytes:
        held = bytearray(self.safe)
        for write in self.unsynced if survivors is not None else ():
            assert survivors is not None
            for piece in _torn(write, survivors):
                _apply(held, piece)
        return bytes(held)


class _Files(apsw.VFS):
    """SQLite's view of the disk."""

    def __init__(self, name: str, disk: PowerCutDisk) -> None:
        self.vfs_name = name
        self._disk = disk
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        if name is None or not flags[0] & _KEPT_KINDS:
            return apsw.VFSFile("", name, flags)
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name)
        self._disk.opened(path)
        return _File(name, flags, path, self._disk)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self._disk.deleted(Path(filename))
        super().xDelete(filename, syncdir)


class _File(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename, flags: list[int], path: Path, disk: PowerCutDisk) -> None:
        super().__init__("", name, flags)
        self._path = path
        self._disk = disk

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._disk.wrote(self._path, (offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.wrote(self._path, newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.synced(self._path)  # the real disk need not be bothered


def _torn(write: Write | int, survivors: Random) -> list[Write | int]:
    """The sectors of a write that made it."""
    if isinstance(write, int):
        return [write] if survivors.random() < 0.5 else []
    offset, data = write
    size = survivors.choice(_SECTOR_BYTES)
    return [(offset + at, data[at : at + size]) for at in range(0, len(data), size) if survivors.random() < 0.5]


def _apply(held: bytearray, write: Write | int) -> None:
    if isinstance(write, int):
        del held[write:]
        return
    offset, data = write
    held.extend(bytes(max(0, offset - len(held))))  # a hole reads as zeros
    held[offset : offset + len(data)] = data


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
