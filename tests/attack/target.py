"""A namespace under attack: how much memory it takes, and how long a neighbour waits."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catalogue import QUEUE, SESSIONS, SHORT_LOCKS, TOPIC, Attack
from served import Served

HERE = Path(__file__).parent
CHECK_S = 0.02
CALM_S, AFTER_S = 0.6, 0.5
NEIGHBOURS_QUEUE = "neighbours"
P99_S_MAX = 0.05
LONGEST_S_MAX = 0.5
"""99 of 100 say nothing about one long pause."""
PATIENCE_S = 90.0
"""For whatever should have ended long before."""


@dataclass(frozen=True, slots=True)
class Outcome:
    memory_mb: int
    """What it may take."""
    grown_bytes: int = 0
    """Resident memory at its peak, above what it was before."""
    left_bytes: int = 0
    """Still above it a little after the attack."""
    waits: list[float] = field(default_factory=list)
    """What a neighbour waited for each message to be stored, meanwhile, in seconds."""
    calm_p99_s: float = 0.0
    """The same before the attack, 99 of 100."""
    sent_bytes: int = 0
    connections: int = 0
    """What it cost the attacker."""
    failure: str = ""
    """What broke: the server, the neighbour, or the attack itself."""

    @property
    def p99_s(self) -> float:
        return p99(self.waits)

    @property
    def longest_s(self) -> float:
        return max(self.waits, default=0.0)

    def problems(self, *, p99_s_max: float = P99_S_MAX, longest_s_max: float = LONGEST_S_MAX) -> list[str]:
        """The bounds that were passed, however slow the machine was without an attack."""
        found = [self.failure] if self.failure else []
        if self.takes_too_much:
            found.append(f"took {self.grown_bytes / 2**20:.0f} MiB, more than {self.memory_mb}")
        if self.p99_s > p99_s_max:
            found.append(f"made a neighbour wait {1000 * self.p99_s:.0f} ms (p99), more than {1000 * p99_s_max:.0f}")
        if self.longest_s > longest_s_max:
            text = f"made a neighbour wait {1000 * self.longest_s:.0f} ms once, more than {1000 * longest_s_max:.0f}"
            found.append(text)
        return found

    @property
    def takes_too_much(self) -> bool:
        return self.grown_bytes > self.memory_mb * 2**20

    @property
    def waits_are_the_only_problem(self) -> bool:
        return not self.failure and not self.takes_too_much


class Broken(Exception):
    """Something ended that should not have."""


@contextlib.contextmanager
def served_for(*attacks: Attack) -> Iterator[Served]:
    """A namespace of its own with everything that these attacks need."""
    with tempfile.TemporaryDirectory() as folder:
        entities = Path(folder) / "entities.json"
        entities.write_text(json.dumps(_entities(attacks)), encoding="utf-8")
        rules = ("--rule", "sender:Send", "--rule", "listener:Listen")
        with Served("attacked", Path(folder) / "data", "--entities", str(entities), *rules) as served:
            yield served


def _entities(attacks: tuple[Attack, ...]) -> dict[str, Any]:
    queues: list[dict[str, Any]] = [{"Name": QUEUE}, {"Name": NEIGHBOURS_QUEUE}]
    queues.append({"Name": SESSIONS, "Properties": {"RequiresSession": True}})
    queues.append({"Name": SHORT_LOCKS, "Properties": {"LockDuration": "PT5S"}})
    count, expression = max((each.subscriptions, each.sql) for each in attacks)
    sql = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}
    rules = {"Rules": [{"Name": "asked", "Properties": sql}]} if expression else {}
    topic = {"Name": TOPIC, "Subscriptions": [{"Name": f"s{number}", **rules} for number in range(count)]}
    described = {"Name": "attacked", "Queues": queues, "Topics": [topic]}
    return {"UserConfig": {"Namespaces": [described]}}


class Target:
    def __init__(self, served: Served) -> None:
        self._served = served
        self._peak = 0

    def under(self, seconds: float, *attacks: Attack) -> Outcome:
        """What becomes of the namespace under these attacks, all at once.

        Never raises for what goes wrong with the namespace.
        """
        memory_mb = max(attack.memory_mb for attack in attacks)
        try:
            if any(attack.prepare is not None for attack in attacks):
                self._attack(0.0, attacks)
            with self._neighbour() as calm:
                time.sleep(CALM_S)
            before = self._resident_bytes()
            with self._neighbour() as waits, self._watched(before):
                costs = self._attack(max(seconds, *(attack.seconds for attack in attacks)), attacks)
            time.sleep(AFTER_S)
            left = self._resident_bytes() - before
        except Broken as error:
            return Outcome(memory_mb, failure=str(error))
        sent, connections = (sum(cost[part] for cost in costs) for part in ("sent_bytes", "connections"))
        return Outcome(memory_mb, self._peak - before, left, waits, p99(calm), sent, connections)

    def _attack(self, seconds: float, attacks: tuple[Attack, ...]) -> list[dict[str, int]]:
        """Attack, or only prepare for it (0 seconds); what it cost."""
        command = [sys.executable, str(HERE / "attacks.py"), str(seconds)]
        for attack in attacks:
            limited = {"Send": "sender", "Listen": "listener"}.get(attack.right) if seconds else None
            string = self._served.connection_string if limited is None else self._served.rule_strings[limited]
            command += [attack.name, string]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
            start_new_session=True,
        ) as attacking:
            try:
                said, complaint = attacking.communicate(timeout=seconds + PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise Broken("the attack did not end") from None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(attacking.pid, signal.SIGKILL)  # with all that it has started
        if attacking.returncode:
            raise Broken(f"the attack itself failed: {complaint.strip()[-500:]}")
        return [json.loads(line) for line in said.splitlines()]

    @contextlib.contextmanager
    def _neighbour(self) -> Iterator[list[float]]:
        """A neighbour at work; how long it waited is in the list afterwards."""
        waits: list[float] = []
        command = [sys.executable, str(HERE / "neighbour.py"), self._served.connection_string, NEIGHBOURS_QUEUE]
        neighbour = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        try:
            assert neighbour.stdout is not None
            if neighbour.stdout.readline() == "ready\n":
                yield waits
            said, complaint = neighbour.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Broken("the neighbour did not get an answer") from None
        finally:
            neighbour.kill()
            neighbour.wait()
        if neighbour.returncode or not said:
            state = "" if self._served.is_running else "; the server is gone"
            raise Broken(f"the neighbour was cut off: {complaint.strip()[-300:]}{state}")
        waits += json.loads(said)["seconds"]

    @contextlib.contextmanager
    def _watched(self, before: int) -> Iterator[None]:
        self._peak, is_over = before, threading.Event()

        def watch() -> None:
            while not is_over.wait(CHECK_S):
                with contextlib.suppress(Broken):
                    self._peak = max(self._peak, self._resident_bytes())

        watching = threading.Thread(target=watch, name="watch-memory", daemon=True)
        watching.start()
        try:
            yield
        finally:
            is_over.set()
            watching.join()

    def _resident_bytes(self) -> int:
        try:
            fields = Path(f"/proc/{self._served.pid}/statm").read_text(encoding="ascii").split()
            return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            raise Broken("the server is gone") from None


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)] if seconds else 0.0


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE)}
