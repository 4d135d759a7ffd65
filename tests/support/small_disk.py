"""A real disk of a few MiB, to be filled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STEP_BYTES = 64 << 10


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "of-somebody-else"

    def fill(self) -> None:
        """Somebody else takes all that is left, to the last page."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (STEP_BYTES, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass

    def make_room(self) -> None:
        """Somebody else gives it back."""
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[SmallDisk]:
    """Mounted there as long as this lasts; skips the test where nobody may mount."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted (needs root): {os.fsdecode(mounted.stderr).strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
