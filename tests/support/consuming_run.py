"""A stream that consumes while its processes are killed, and what it delivered."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import consuming_program
from spark_cluster import processes_of, until

PROGRAM = str(Path(consuming_program.__file__))
END_S = 600.0


class ConsumingRun:
    """Runs the program, again whenever it was killed, until the queue is empty."""

    def __init__(self, folder: Path, queue: str, master: str, per_trigger: int, environment: dict[str, str]) -> None:
        self.folder = folder
        self._words = (str(folder), queue, master, str(per_trigger))
        self._environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        with (self.folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, PROGRAM, *self._words],
                env=self._environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def processes(self) -> set[int]:
        return set() if self._process is None else processes_of(self._process.pid)

    @property
    def batches(self) -> int:
        """How many are whole in the sink."""
        return len(list(self.folder.glob("out/*/_SUCCESS")))

    def wait_for_work(self, batches: int, chance: random.Random) -> None:
        """Until so many batches are done, messages are staged for another one, and a moment has passed."""
        until(lambda: self._is_over() or self._is_at_work_after(batches), "a batch is under way", END_S)
        assert not self._is_over(), f"it was quicker than its killer\n{self.said()}"
        time.sleep(chance.uniform(0, 0.3))

    def kill(self, pids: Iterable[int]) -> None:
        for pid in list(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_driver(self) -> None:
        assert self._process is not None
        self.kill(self.processes)
        self._process.wait()

    def finish(self) -> None:
        """It ends by itself, and well."""
        assert self._process is not None
        assert self._process.wait(END_S) == 0, self.said()

    def delivered(self) -> Counter[str]:
        """Ids in batches that are whole."""
        files = [file for whole in self.folder.glob("out/*/_SUCCESS") for file in whole.parent.glob("part-*")]
        return Counter(line for file in files for line in file.read_text().split())

    def said(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")[-4_000:]

    def _is_over(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _is_at_work_after(self, batches: int) -> bool:
        return self.batches >= batches and next((self.folder / "staging").glob("*/*.arrow"), None) is not None


def kill_on_the_way(
    run: ConsumingRun, victims: Iterable[Callable[[], set[int]] | None], every: int, chance: random.Random
) -> None:
    """Kill one after another, with so many batches between; None is the driver, which is started again."""
    run.start()
    for number, victim in enumerate(victims):
        run.wait_for_work(number * every, chance)
        if victim is None:
            run.kill_driver()
            run.start()
        else:
            run.kill(victim())
    run.finish()
