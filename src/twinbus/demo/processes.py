"""The processes of the demo; none of them outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from twinbus.control.local_register import RUN_VARIABLE
from twinbus.demo import reaper
from twinbus.errors import TwinbusError

PRIMARY_VARIABLE, SECONDARY_VARIABLE = "TWINBUS_PRIMARY", "TWINBUS_SECONDARY"
PROXY_VARIABLE = "TWINBUS_DEMO_PROXY"
"""The connection string of the proxy, for an application that knows nothing of pairs."""
READY_WAIT_S = 60.0
STOP_WAIT_S = 60.0
LOOK_PAUSE_S = 0.01
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _defer_signals() -> Iterator[None]:
    """A signal that comes inside the block is taken when it ends: no process is started and then not known about."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda which, _: came.append(which)) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


class DemoProcesses:
    """Starts processes; when the `with` block ends, however it ends, they are gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._reaper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DemoProcesses:
        with _defer_signals():
            self._reaper = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-I", reaper.__file__, str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_error: object) -> None:
        with _defer_signals():
            for process in self._processes:
                _kill_group(process)
            for process in self._processes:
                process.wait()
                _wait_for_group(process.pid)
            if self._reaper is not None:
                self._notify_reaper(reaper.DONE)
                self._reaper.communicate()

    def _notify_reaper(self, line: object) -> None:
        """The reaper ends all processes if this one is killed."""
        if self._reaper is not None and self._reaper.stdin is not None:
            with suppress(BrokenPipeError):  # somebody killed the reaper; we are still here
                self._reaper.stdin.write(f"{line}\n".encode())
                self._reaper.stdin.flush()

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        environment: dict[str, str] | None = None,
        *,
        stdin: int = subprocess.DEVNULL,
    ) -> DemoProcess:
        """Run a module of twinbus in a process of its own; what it prints goes to files in the folder."""
        out, err = self.folder / f"{name}.out", self.folder / f"{name}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr, _defer_signals():
            process = subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-m", *arguments],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends the others in order
            )
            self._processes.append(process)
            self._notify_reaper(process.pid)
        return DemoProcess(name, process, out, err)

    def serve(self, ports: Mapping[str, int], data: Path, ledger: Path) -> list[ServedProcess]:
        """A `twinbus serve` process for each of these namespaces, all ready for clients; port 0 is any free one."""
        places = ("--data", str(data), "--ledger", str(ledger))
        members = [
            self.start(f"serve-{name}", ["twinbus", "serve", "--namespace", f"{name}:{port}", *places, "--json"])
            for name, port in ports.items()
        ]
        return [_served(member) for member in members]

    def proxy(self, options: Sequence[str], primary: ServedProcess, secondary: ServedProcess) -> ServedProcess:
        """A `twinbus proxy` process on any free port, ready for clients."""
        arguments = ["twinbus", "proxy", "--listen", "127.0.0.1:0", *options, "--json"]
        environment = _strings(primary, secondary) | {RUN_VARIABLE: str(self.folder / "run")}
        return _served(self.start("proxy", arguments, environment))

    def work(
        self,
        name: str,
        arguments: Sequence[str],
        primary: ServedProcess,
        secondary: ServedProcess,
        *,
        stdin: int = subprocess.DEVNULL,
    ) -> DemoProcess:
        """A process that works with both namespaces; their keys stay out of the process list."""
        return self.start(name, arguments, _strings(primary, secondary), stdin=stdin)

    def spark(self, ledger: Path, report: Path, primary: ServedProcess, secondary: ServedProcess) -> SparkProcess:
        """A process that starts Spark and then waits for requests. Its temporary files are in the demo's folder."""
        place = {"TMPDIR": str(self.folder), "SPARK_LOCAL_DIRS": str(self.folder / "spark")}
        java = {"JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={self.folder} -XX:-UsePerfData"}
        arguments = ["twinbus.demo.pipeline", str(ledger), str(report)]
        member = self.start("pipeline", arguments, _strings(primary, secondary) | place | java, stdin=subprocess.PIPE)
        return SparkProcess(member)


def _served(member: DemoProcess) -> ServedProcess:
    ready = json.loads(member.line(0))
    return ServedProcess(member, int(ready["port"]), str(ready["connection_string"]))


def _strings(primary: ServedProcess, secondary: ServedProcess) -> dict[str, str]:
    return {PRIMARY_VARIABLE: primary.connection_string, SECONDARY_VARIABLE: secondary.connection_string}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """With everything it started: each process leads a group of its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _wait_for_group(group: int) -> None:
    """Until nothing of it is left that could still write a file."""
    deadline = time.monotonic() + STOP_WAIT_S
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(LOOK_PAUSE_S)


class DemoProcess:
    def __init__(self, name: str, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.name = name
        self._process = process
        self._out = out
        self._err = err

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self, number: int) -> str:
        """A line that it prints; raises `TwinbusError` if it ends or takes too long instead."""
        deadline = time.monotonic() + READY_WAIT_S
        while time.monotonic() < deadline:
            found = self.line_so_far(number)
            if found is not None:
                return found
            time.sleep(LOOK_PAUSE_S)
        raise TwinbusError(f"{self.name} was not ready within {READY_WAIT_S:g} s")

    def line_so_far(self, number: int) -> str | None:
        """A line that it prints, if it has; raises `TwinbusError` if it ended instead."""
        ended = self._process.poll() is not None
        whole = self._out.read_text().split("\n")[:-1]
        if number < len(whole):
            return whole[number]
        if ended:
            raise self._failure()
        return None

    def send_line(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None  # started with a pipe
        with suppress(BrokenPipeError):  # whoever waits for the answer finds out that it ended, and why
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def is_done(self) -> bool:
        """True when it has ended well; raises `TwinbusError` when it ended badly."""
        code = self._process.poll()
        if code:
            raise self._failure()
        return code == 0

    def kill(self) -> None:
        """kill -9: no chance to write or say anything."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM; raises `TwinbusError` unless it ends well."""
        self._process.terminate()
        try:
            code = self._process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            raise TwinbusError(f"{self.name} did not stop within {STOP_WAIT_S:g} s") from None
        if code:
            raise self._failure()

    def _failure(self) -> TwinbusError:
        lines = self._err.read_text(errors="replace").split("\n")
        reason = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return TwinbusError(f"{self.name} ended with code {self._process.returncode}: {reason}")


class ServedProcess(DemoProcess):
    """A `twinbus serve` process and how to reach it."""

    def __init__(self, member: DemoProcess, port: int, connection_string: str) -> None:
        super().__init__(member.name, member._process, member._out, member._err)
        self.port = port
        self.connection_string = connection_string


class SparkProcess:
    """A process that answers each line on its standard input with one line of JSON."""

    def __init__(self, process: DemoProcess) -> None:
        self._process = process
        self._lines = 1  # the first says that it is ready

    def ready(self) -> dict[str, Any] | None:
        """How it started; None while it starts."""
        return self._line(0)

    def ask(self, request: str) -> Callable[[], dict[str, Any] | None]:
        """Send the request. The returned function gives the answer, or None as long as there is none."""
        self._process.send_line(request)
        number = self._lines
        self._lines += 1
        return lambda: self._line(number)

    def _line(self, number: int) -> dict[str, Any] | None:
        text = self._process.line_so_far(number)
        return None if text is None else json.loads(text)
