"""Liveness marks: a few numbers per writer in shared memory, which outlive the process. Do unwritten events wait?

A killed process cannot write its last record. If its mark says that nothing waited, its records are complete all the
same. The memory is lost when the machine restarts, and so is the certainty that what was written has reached the disk.

`record` sets `NOTED` after the event is in the queue and before it returns. The writer sets `WRITING`, clears `NOTED`,
writes everything in the queue, and clears `WRITING`. Nothing waits if both are clear, whenever the process is stopped:
an event that is not written was noted after `NOTED` was cleared, or is being written. There is no lock and no system
call, because this is on the path of a send.
"""

from __future__ import annotations

import mmap
import os
import stat
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path("/dev/shm")  # noqa: S108  memory that no file system has to keep: a store into it never waits for a disk
CELLS = 5
SIZE = 8 * CELLS
MAGIC, NOTED, WRITING, ALIVE_MS, WRITTEN = range(CELLS)
OURS = 0x746277_6D61_726B31
MARKS_MAX = 1000
"""What killed processes leave behind; beyond it the oldest go."""


class LivenessMark:
    """The mark of one writer. Without shared memory the numbers stay in the process."""

    def __init__(self) -> None:
        self.cells = memoryview(bytearray(SIZE)).cast("Q")
        self._path: Path | None = None

    def share(self, process: str, now_ms: int) -> None:
        """Move it to shared memory, where other processes can read it. Does nothing if there is none."""
        folder = _folder_of(os.getuid())
        with suppress(OSError, ValueError):
            _make_own(folder)
            _sweep(folder)
            path = folder / process
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                # Written, not only made longer: memory that is not there would end the process when it is touched.
                started = memoryview(bytearray(SIZE)).cast("Q")
                started[MAGIC], started[NOTED], started[WRITING], started[ALIVE_MS] = OURS, 1, 1, max(0, now_ms)
                os.write(file, started.cast("B"))
                shared = memoryview(mmap.mmap(file, SIZE)).cast("Q")
            finally:
                os.close(file)
            self._path, self.cells = path, shared

    def begin(self) -> None:
        """The writer is about to write everything that was noted so far."""
        cells = self.cells
        cells[WRITING] = 1
        cells[NOTED] = 0

    def end(self, now_ms: int, written: int) -> None:
        """The writer has done so; the last record has this number."""
        cells = self.cells
        cells[ALIVE_MS], cells[WRITTEN] = max(0, now_ms), written
        cells[WRITING] = 0

    def leave(self) -> None:
        """Remove the mark: the records say how they end."""
        path, self._path = self._path, None
        self.cells = memoryview(bytearray(SIZE)).cast("Q")  # one that was taken before is freed with its last user
        if path is not None:
            path.unlink(missing_ok=True)


class LivenessSeen(NamedTuple):
    is_clear: bool
    """No event waited."""
    alive_ms: int
    """When the process was last seen alive, by its own clock; a write interval later it may have been, too."""
    written: int
    """The number of its last record."""


def read_liveness(process: str, owner: int) -> LivenessSeen | None:
    """The mark of a process that this user owned; None if there is none."""
    if not process.isalnum():
        return None
    path = _folder_of(owner) / process
    try:
        if path.parent.lstat().st_uid != owner or path.lstat().st_uid != owner:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) != SIZE:
        return None
    cells = memoryview(data).cast("Q")
    if cells[MAGIC] != OURS:
        return None
    return LivenessSeen(not cells[NOTED] and not cells[WRITING], cells[ALIVE_MS], cells[WRITTEN])


def _folder_of(user: int) -> Path:
    return FOLDER / f"twinbus-{user}"


def _make_own(folder: Path) -> None:
    """Raises `OSError` if it is somebody else's: anybody may make a folder there."""
    folder.mkdir(mode=0o755, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not ours")


def _sweep(folder: Path) -> None:
    marks = list(folder.iterdir())
    if len(marks) < MARKS_MAX:
        return
    for path in sorted(marks, key=lambda each: each.lstat().st_mtime_ns)[: MARKS_MAX // 2]:
        path.unlink(missing_ok=True)


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> str:
    """A name for the time since the machine was started; empty if unknown."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def booted_ms() -> int:
    """About when the machine was started, in UTC milliseconds; 0 if unknown."""
    try:
        since_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return 0
    return round((time.time() - since_s) * 1000)
