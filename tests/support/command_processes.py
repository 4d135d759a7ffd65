"""Commands that serve, as processes: started by a test, read line by line, ended by a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

Process: TypeAlias = subprocess.Popen[str]
Start: TypeAlias = Callable[..., Process]

WAIT_S = 60


@contextmanager
def command_processes(folder: Path) -> Iterator[Start]:
    """A function that starts `twinbus` with these arguments in the folder; what still runs at the end is killed.

    Keyword arguments are added to the environment.
    """
    processes: list[Process] = []

    def start(*arguments: str, **environment: str) -> Process:
        process = subprocess.Popen(
            [sys.executable, "-m", "twinbus", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, **environment},
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def next_line(process: Process) -> str:
    """The next line that it prints; "" if it ends, or prints nothing for long and is killed for that."""
    assert process.stdout is not None
    patience = threading.Timer(WAIT_S, process.kill)
    patience.start()
    try:
        return process.stdout.readline()
    finally:
        patience.cancel()


def end(process: Process, number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """Send a signal; the exit code and what was printed since."""
    process.send_signal(number)
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out, err
