"""The archives that people install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent


class Archives(NamedTuple):
    wheel: Path
    sdist: Path


def build(folder: Path, source: Path = ROOT) -> Archives:
    """Wheel and source archive of what is in `source`, as `make package` builds them."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=100)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Archives(wheel, sdist)
