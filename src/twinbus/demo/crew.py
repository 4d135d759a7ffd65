"""The processes of the demo, and the promise that none of them outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from twinbus.errors import TwinbusError

PRIMARY_VARIABLE, SECONDARY_VARIABLE = "TWINBUS_PRIMARY", "TWINBUS_SECONDARY"
READY_WAIT_S = 15.0
STOP_WAIT_S = 10.0
LOOK_PAUSE_S = 0.01
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _uninterrupted() -> Iterator[None]:
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


class Crew:
    """Starts processes; when the `with` block ends, however it ends, they are gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _uninterrupted():
            for process in self._processes:
                process.kill()
            for process in self._processes:
                process.wait()

    def start(self, name: str, arguments: Sequence[str], environment: dict[str, str] | None = None) -> Member:
        """Run a module of twinbus in a process of its own; what it prints goes to files in the folder."""
        out, err = self.folder / f"{name}.out", self.folder / f"{name}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr, _uninterrupted():
            process = subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends the others in order
            )
            self._processes.append(process)
        return Member(name, process, out, err)

    def serve(self, namespace: str, data: Path, queues: Sequence[str], port: int = 0) -> Served:
        """A `twinbus serve` process that is ready for clients."""
        wanted = [part for queue in queues for part in ("--queue", queue)]
        address = ("--namespace", f"{namespace}:{port}", "--data", str(data))
        member = self.start(f"serve-{namespace}", ["twinbus", "serve", *address, *wanted, "--json"])
        ready = json.loads(member.first_line())
        return Served(member, int(ready["port"]), str(ready["connection_string"]))

    def work(self, name: str, arguments: Sequence[str], primary: Served, secondary: Served) -> Member:
        """A process that works with both namespaces; their keys stay out of the process list."""
        strings = {PRIMARY_VARIABLE: primary.connection_string, SECONDARY_VARIABLE: secondary.connection_string}
        return self.start(name, arguments, strings)


class Member:
    """One process."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.name = name
        self._process = process
        self._out = out
        self._err = err

    @property
    def pid(self) -> int:
        return self._process.pid

    def first_line(self) -> str:
        """The first line it prints; raises `TwinbusError` if it ends or takes too long instead."""
        deadline = time.monotonic() + READY_WAIT_S
        while time.monotonic() < deadline:
            ended = self._process.poll() is not None
            text = self._out.read_text()
            if "\n" in text:
                return text.splitlines()[0]
            if ended:
                raise self._failure()
            time.sleep(LOOK_PAUSE_S)
        raise TwinbusError(f"{self.name} was not ready within {READY_WAIT_S:g} s")

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


class Served(Member):
    """A `twinbus serve` process and how to reach it."""

    def __init__(self, member: Member, port: int, connection_string: str) -> None:
        super().__init__(member.name, member._process, member._out, member._err)
        self.port = port
        self.connection_string = connection_string
