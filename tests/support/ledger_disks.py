"""Disks for the ledger that refuse on demand."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from twinbus.ledger.writing.segment import Disk


class RefusingDisk(Disk):
    """Full after `room` bytes (None: never), taking what still fits of a write; may also refuse to cut back.

    The write that meets the end is torn within a line: how long lines are depends on the clock and the process.
    """

    def __init__(self, room: int | None = None) -> None:
        self.room = room
        self.cuts_back = True
        self.syncs = 0

    def write(self, file: int, data: bytes | memoryview) -> int:
        if self.room is None:
            return super().write(file, data)
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if len(data) < self.room:
            taken = super().write(file, data)
            self.room -= taken
            return taken
        fits, self.room = bytes(data[: self.room]), 0
        return super().write(file, fits.removesuffix(b"\n").removesuffix(b"}"))  # without its newline a line is whole

    def truncate(self, file: int, size: int) -> None:
        if not self.cuts_back:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().truncate(file, size)

    def sync(self, file: int) -> None:
        self.syncs += 1
        super().sync(file)


class HangingDisk(Disk):
    """Does not come back from a write before it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.let_go = threading.Event()

    def write(self, file: int, data: bytes | memoryview) -> int:
        self.reached.set()
        self.let_go.wait(30)
        return super().write(file, data)


class SmallDisk(Disk):
    """A file system of `size` bytes, by its own account; the limits that were set are measured against it."""

    def __init__(self, size: int) -> None:
        self.size = size

    def free_bytes(self, directory: Path) -> int:
        return self.size - self.used_bytes(directory)
