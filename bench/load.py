"""The load client: compiled once, then run against a broker."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from bench.brokers import Broker
from bench.debian import need
from bench.processes import LOOPBACK, Cores, bind_to

SOURCE = Path(__file__).with_name("load_client.c")
# Debian ships these two libraries without the names that plain -l looks for.
LIBRARIES = ("-l:libqpid-proton-proactor.so.1", "-l:libqpid-proton-core.so.10")
BODY_BYTES = 1024
WINDOW = 1_000
SLOWEST_RATE = 2_000
"""Messages a second below which a measurement is given up."""


class LoadClient:
    def __init__(self, build: Path, cores: Cores) -> None:
        self._core = cores.client
        self._program = _compiled(build)

    def send(self, broker: Broker, count: int, colour: str | None = None) -> float:
        """Messages a second, each of them accepted, which means: on disk; `colour` is a property for rules."""
        return self._run("send", broker, count, {} if colour is None else {"BENCH_COLOUR": colour})

    def receive(self, broker: Broker, count: int) -> float:
        """Messages a second, each of them accepted and settled."""
        return self._run("receive", broker, count, {})

    def receive_confirmed(self, broker: Broker, count: int) -> float:
        """Messages a second, each settlement confirmed by the broker. (RabbitMQ does not offer that.)"""
        return self._run("receive", broker, count, {"CONFIRM": "1"})

    def send_one_by_one(self, broker: Broker, count: int) -> tuple[float, float]:
        """Milliseconds until the answer, of half of the messages and of 99 in 100: one is in flight at a time."""
        result = self._result("send", broker, count, {}, window=1)
        return float(result["p50_ms"]), float(result["p99_ms"])

    def _run(self, mode: str, broker: Broker, count: int, more: dict[str, str]) -> float:
        return float(self._result(mode, broker, count, more)["rate"])

    def _result(
        self, mode: str, broker: Broker, count: int, more: dict[str, str], window: int = WINDOW
    ) -> dict[str, Any]:
        where = (LOOPBACK, str(broker.port), broker.address)
        numbers = (str(count), str(window), *([str(BODY_BYTES)] if mode == "send" else []))
        credentials = {"BENCH_USER": broker.user, "BENCH_PASSWORD": broker.password}
        done = subprocess.run(
            (str(self._program), mode, *where, *numbers),
            env={**os.environ, **credentials, **more},
            capture_output=True,
            text=True,
            timeout=60 + count * WINDOW / SLOWEST_RATE / window,
            check=False,
            preexec_fn=lambda: bind_to(self._core),
        )
        if done.returncode:
            raise SystemExit(f"bench: {broker.name}, {mode}: {done.stderr.strip() or 'the load client failed'}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result


def _compiled(build: Path) -> Path:
    need("gcc", "libc6-dev", "libqpid-proton11-dev")
    program = build / "load_client"
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        build.mkdir(parents=True, exist_ok=True)
        command = ("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(SOURCE), *LIBRARIES)
        subprocess.run(command, check=True)
    return program
