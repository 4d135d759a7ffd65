"""Processes that are bound to a core and do not outlive the measurement."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType

from twinbus.broker.net.ports import bind_sockets

LOOPBACK = "127.0.0.1"
LOOK_PAUSE_S = 0.002
STOP_WAIT_S = 60
SASL_HEADER = b"AMQP\x03\x01\x00\x00"


class Cores:
    """Brokers on one core, the load client on another; on a machine with a single core nothing is bound."""

    def __init__(self) -> None:
        available = sorted(os.sched_getaffinity(0))
        self.count = len(available)
        bound = len(available) > 1
        self.client: int | None = available[0] if bound else None
        self.broker: int | None = available[-1] if bound else None

    def __str__(self) -> str:
        return "one core for all" if self.broker is None else f"client on core {self.client}, broker on {self.broker}"


def bind_to(core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})


class Processes:
    """Starts processes; when the `with` block ends, however it ends, they and their children are gone."""

    def __init__(self) -> None:
        self._started: list[Process] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._started):
            process.kill()

    def start(self, command: Sequence[str], core: int | None, log: Path, environment: Mapping[str, str]) -> Process:
        """Run a command in a session of its own, so that Ctrl-C reaches the measurement alone."""
        with log.open("ab") as output:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                start_new_session=True,
                preexec_fn=partial(bind_to, core),
            )
        process = Process(popen, log)
        self._started.append(process)
        return process


class Process:
    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self._popen = popen
        self._log = log

    def wait_for_port(self, port: int, wait_s: float) -> None:
        """Until an AMQP server answers there; ends the program when the process ends or it takes too long."""
        deadline = time.monotonic() + wait_s
        while not answers(port):
            if self._popen.poll() is not None:
                raise SystemExit(f"bench: {self._popen.args!r} ended: {self.last_words()}")
            if time.monotonic() > deadline:
                raise SystemExit(f"bench: nothing answered on port {port} within {wait_s:g} s: {self.last_words()}")
            time.sleep(LOOK_PAUSE_S)

    def memory_mb(self, field: str = "VmRSS") -> int:
        """Resident memory in megabytes; `VmHWM` is the most it ever was."""
        for line in Path(f"/proc/{self._popen.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return round(int(line.split()[1]) * 1024 / 1e6)
        raise SystemExit(f"bench: this system does not report {field}")

    def cpu_s(self) -> float:
        """Seconds of CPU that it has used, in all its threads."""
        fields = Path(f"/proc/{self._popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def session_cpu_s_at_end(self, every_s: float, wait_s: float) -> float:
        """Wait until it ends; seconds of CPU of it and of all processes below it, as of the last look at each."""
        used: dict[int, float] = {}
        deadline = time.monotonic() + wait_s
        while self._popen.poll() is None:
            used |= _session_cpu_s(self._popen.pid)
            if time.monotonic() > deadline:
                raise SystemExit(f"bench: {self._popen.args!r} did not end within {wait_s:g} s: {self.last_words()}")
            time.sleep(every_s)
        return sum(used.values())

    @property
    def returncode(self) -> int | None:
        return self._popen.returncode

    def stop(self) -> None:
        self._popen.terminate()
        self._popen.wait(STOP_WAIT_S)

    def kill(self) -> None:
        """End the process and its children on the spot."""
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()

    def last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"


def _session_cpu_s(session: int) -> dict[int, float]:
    """By process of a session."""
    found: dict[int, float] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = file.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                found[int(file.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def answers(port: int) -> bool:
    """Whether an AMQP server takes a connection on this port of the loopback address, and says hello."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=5) as connection:
            connection.sendall(SASL_HEADER)
            return connection.recv(8) == SASL_HEADER
    except OSError:
        return False


def free_port() -> int:
    """One that stays free, also while whoever is to have it is dead."""
    (bound,) = bind_sockets([(socket.AF_INET, (LOOPBACK, 0))])
    with bound:
        return int(bound.getsockname()[1])
