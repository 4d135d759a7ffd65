"""A namespace under attack: how much memory it takes, and how long a neighbour waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from served import Served

HERE = Path(__file__).parent
LOOK_S = 0.02
NEIGHBOURS_QUEUE = "neighbours"
GROWN_BYTES_MAX = 192 * 1024 * 1024
"""What strangers may take together (64 MiB, and what their sockets and TLS take), or one peer with a key."""
P99_S_MAX = 0.05


@dataclass(frozen=True, slots=True)
class Outcome:
    grown_bytes: int
    """Resident memory at its peak, above what it was before."""
    left_bytes: int
    """Still above it a second after the attack."""
    p99_s: float
    longest_s: float
    """What a neighbour waited for a message to be stored, meanwhile."""
    calm_p99_s: float
    """The same before the attack."""

    def problems(self) -> list[str]:
        """The bounds that were passed. A machine that is slow without an attack may be as slow during one."""
        found = []
        if self.grown_bytes > GROWN_BYTES_MAX:
            found.append(f"took {self.grown_bytes / 2**20:.0f} MiB, more than {GROWN_BYTES_MAX / 2**20:.0f}")
        most_s = max(P99_S_MAX, 3 * self.calm_p99_s)
        if self.p99_s > most_s:
            found.append(f"made a neighbour wait {1000 * self.p99_s:.0f} ms (p99), more than {1000 * most_s:.0f}")
        return found


class Target:
    def __init__(self, served: Served) -> None:
        self._served = served
        self._peak = 0
        self._is_over = threading.Event()

    def under(self, name: str, seconds: float) -> Outcome:
        """What becomes of the namespace under this attack."""
        calm = self._neighbour_during(lambda: time.sleep(1.0))
        before = self._resident_bytes()
        self._peak, self._is_over = before, threading.Event()
        watch = threading.Thread(target=self._watch, name="watch-memory")
        watch.start()
        try:
            waits = self._neighbour_during(lambda: self._attack(name, seconds))
        finally:
            self._is_over.set()
            watch.join()
        time.sleep(1.0)
        left = self._resident_bytes()
        return Outcome(self._peak - before, left - before, p99(waits), max(waits), p99(calm))

    def _attack(self, name: str, seconds: float) -> None:
        command = [sys.executable, str(HERE / "attacks.py"), name, self._served.connection_string, str(seconds)]
        subprocess.run(command, check=True, timeout=seconds + 60, env=_environment())

    def _neighbour_during(self, act: object) -> list[float]:
        command = [sys.executable, str(HERE / "neighbour.py"), self._served.connection_string, NEIGHBOURS_QUEUE]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
        ) as neighbour:
            assert neighbour.stdout is not None
            assert neighbour.stdout.readline() == "ready\n"
            assert callable(act)
            act()
            said, _ = neighbour.communicate()
        assert neighbour.returncode == 0, "the neighbour was cut off"
        return list(json.loads(said)["seconds"])

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_S):
            self._peak = max(self._peak, self._resident_bytes())

    def _resident_bytes(self) -> int:
        fields = Path(f"/proc/{self._served.pid}/statm").read_text(encoding="ascii").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE)}
