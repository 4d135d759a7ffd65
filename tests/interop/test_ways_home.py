"""`python -m bench.ways_home` brings the same backlog home in each way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WAYS = ("syphon", "syphon --processes 2", "drain")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_each_way_home_brings_every_message_and_has_its_rows() -> None:
    command = [sys.executable, "-m", "bench.ways_home", "--messages", "3200", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    for way in WAYS:
        assert f"3,200 home, {way}, start to end" in done.stdout
        assert f"3,200 home, {way}: CPU of what moves" in done.stdout
