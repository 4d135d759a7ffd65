"""A short `make chaos-syphon`: each of the three is killed once, and everything comes home."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.long
@pytest.mark.timeout(300)  # locks of those who were killed last a while, and the machine may be busy
def test_killing_the_syphon_and_both_namespaces_loses_nothing() -> None:
    command = [sys.executable, "-m", "bench.chaos_syphon", "--runs", "3", "--messages", "4000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    heads, values = (line.split() for line in done.stdout.splitlines()[1:])
    counted = dict(zip(heads[:4], values[:4], strict=True))
    assert counted == {"kills": "3", "syphon": "1", "primary": "1", "secondary": "1"}
