"""Short runs of `make chaos-proxy`: the proxy is killed under load, and everything that it accepted is received."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def kill_and_count(*options: str) -> list[dict[str, int]]:
    """How often each was killed, by variant; every promise is checked by the program itself."""
    command = [sys.executable, "-m", "bench.chaos_proxy", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    heads, *rows = (line.split()[1:6] for line in done.stdout.splitlines()[1:])
    return [dict(zip(heads, map(int, row), strict=True)) for row in rows]


@pytest.mark.long
@pytest.mark.timeout(300)  # locks of those who were killed last a while, and the machine may be busy
def test_killing_the_proxy_while_messages_are_in_its_spool_loses_nothing() -> None:
    # With this seed both namespaces are away at the first kill, and the next one comes while messages go home.
    (killed,) = kill_and_count("--spool", "with", "--runs", "2", "--messages", "2000", "--seed", "50")
    assert killed["proxy"] == 2
    assert all(killed[each] for each in ("primary", "secondary", "spooled"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killing_the_proxy_again_and_again_loses_nothing() -> None:
    without, spooled = kill_and_count("--runs", "6", "--messages", "2000", "--seed", "1")
    assert without["proxy"] == spooled["proxy"] == 6
    assert not any(without[each] for each in ("primary", "secondary", "spooled"))
    assert all(spooled[each] for each in ("primary", "secondary", "spooled"))
