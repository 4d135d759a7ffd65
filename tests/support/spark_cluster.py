"""A standalone Spark cluster on a loopback address, and drains on it as users start them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark
from free_ports import free_port

SPARK_HOME = Path(pyspark.__file__).parent
HOST = "127.0.0.1"
START_S, DRAIN_S = 180.0, 300.0
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
EXECUTOR, PYTHON_WORKER = "CoarseGrainedExecutorBackend", "pyspark.daemon"


def until(is_so: Callable[[], bool], what: str, wait_s: float = START_S) -> None:
    """Wait for something that other processes do."""
    deadline_s = time.monotonic() + wait_s
    while not is_so():
        assert time.monotonic() < deadline_s, f"{what}: not within {wait_s:g} s"
        time.sleep(0.05)


class SparkCluster:
    """A master and workers. Every process of it is gone at the end, killed ones too."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *,
        workers: int = 2,
        cores: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`cores` of each worker; `settings` are added to those of every driver."""
        self.folder = folder
        self._size, self._cores, self._settings = workers, cores, settings or {}
        self.events = folder / "events"
        self._environment = {
            **os.environ,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": LIGHT,
            "SPARK_CONF_DIR": str(folder / "conf"),
            **environment,
        }
        self._daemons: list[subprocess.Popen[bytes] | subprocess.Popen[str]] = []
        self._drivers: list[Drain] = []
        self._sessions: set[int] = set()
        self.workers: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> SparkCluster:
        self._configure()
        port = free_port()
        self.url = f"spark://{HOST}:{port}"
        self._start("master", MASTER, "--host", HOST, "--port", str(port), "--webui-port", "0")
        until(lambda: self._log("master").count("I have been elected leader") == 1, "the master is ready")
        for _ in range(self._size):
            self.add_worker()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self._sessions.union(*[processes_of(session) for session in self._sessions]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for daemon in self._daemons:
            daemon.wait()

    def add_worker(self) -> None:
        """Returns when the master knows it."""
        known = self._log("master").count("Registering worker")
        name = f"worker-{known}"
        work = ("--cores", str(self._cores), "--memory", "1g", "--work-dir", str(self.folder / name))
        self.workers.append(self._start(name, WORKER, "--host", HOST, "--webui-port", "0", *work, self.url))
        until(lambda: self._log("master").count("Registering worker") > known, "a worker is known")

    def heal(self) -> None:
        """All workers and no driver, as at the beginning."""
        for driver in self._drivers:
            driver.kill()
        self._drivers.clear()
        self.workers = [each for each in self.workers if each.poll() is None]
        while len(self.workers) < self._size:
            self.add_worker()

    def processes(self, part: str) -> set[int]:
        """Processes below the workers whose command line has this in it."""
        found = set().union(*[processes_of(worker.pid) for worker in self.workers])
        return {pid for pid in found if part in _command(pid)}

    def drain(self, *words: str, environment: Mapping[str, str] | None = None) -> Drain:
        """`twinbus pipeline drain` on this cluster, in a process of its own."""
        command = (sys.executable, "-m", "twinbus", "pipeline", "drain", "--master", self.url, *words)
        return self.run(*command, environment=environment)

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> Drain:
        started = Drain(command, {**self._environment, **(environment or {})}, self.folder)
        self._drivers.append(started)
        self._daemons.append(started.process)
        self._sessions.add(started.process.pid)
        return started

    def files_with(self, secret: str) -> list[str]:
        """Which files of the cluster (logs, jars, closures, event logs) have this text in them."""
        content = secret.encode()
        files = [file for file in self.folder.rglob("*") if file.is_file() and file.stat().st_size < 16 << 20]
        return [str(file.relative_to(self.folder)) for file in files if content in file.read_bytes()]

    def _configure(self) -> None:
        self.events.mkdir(parents=True)
        conf = self.folder / "conf"
        conf.mkdir()
        lines = (
            "spark.eventLog.enabled true",  # what the web pages of Spark show is made of these
            f"spark.eventLog.dir {self.events.as_uri()}",
            "spark.eventLog.compress false",
            f"spark.driver.host {HOST}",
            f"spark.driver.bindAddress {HOST}",
            "spark.executor.memory 512m",
            f"spark.executor.extraJavaOptions {LIGHT}",
            "spark.driver.memory 512m",
            *(f"{name} {value}" for name, value in self._settings.items()),
        )
        (conf / "spark-defaults.conf").write_text("\n".join(lines))

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            daemon = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        self._daemons.append(daemon)
        self._sessions.add(daemon.pid)
        return daemon

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")


class Drain:
    """A driver."""

    def __init__(self, command: tuple[str, ...], environment: Mapping[str, str], folder: Path) -> None:
        self.process = subprocess.Popen(
            [*command],
            env=dict(environment),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def kill(self) -> None:
        """The driver and its JVM, as kill -9 does."""
        for pid in processes_of(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.communicate()

    def ended(self) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=DRAIN_S)
        return self.process.returncode, out, err

    def finished(self) -> dict[str, Any]:
        """What it says at the end; it has to end well, with --json."""
        code, out, err = self.ended()
        assert code == 0, f"{out[-2000:]}\n{err[-2000:]}"
        said: dict[str, Any] = json.loads(out.splitlines()[-1])
        return said


def processes_of(session: int) -> set[int]:
    """All processes of a session, whoever their parent is by now."""
    return {pid for pid, its_session in _sessions() if its_session == session}


def _sessions() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[3])


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
