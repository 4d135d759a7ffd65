"""Kill the syphon, the primary and the secondary, at random moments, again and again; then count.

Nothing that a backlog queue has acknowledged may be lost. A message may come home more than once, but no more than one
unsettled window for each kill, and with its id and body as they were; where the destination detects duplicates, it is
there once. `make chaos-syphon RUNS=50 SEED=1`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bench.backlog import backlog_message, found_in, make_backlog, put
from bench.chaos import Account, arguments, count_and_exit, show_progress
from bench.namespaces import ServedNamespace, served_pair
from bench.processes import Process, Processes
from twinbus.syphon import SyphonOptions

DETECTING = "invoices"
ENTITIES = ("orders", DETECTING)
QUEUES = 2
VICTIMS = ("syphon", "primary", "secondary")
LOCK = timedelta(seconds=5)
"""As short as it may be: what a killed syphon had borrowed comes back after that."""
WINDOW = QUEUES * SyphonOptions().prefetch
"""What a syphon may have in its hands at a time."""
RATE = 4_000
"""Messages a second: slow enough to be killed in the middle of it."""
MIDWAY = 0.7
"""How many of the kills wait until messages are on their way; the others come when they come."""
DRAIN_S = 120
MOVES_S = 10


@dataclass(slots=True)
class SyphonAccount(Account):
    """Promised is what a backlog queue has acknowledged."""

    @property
    def undetected(self) -> int:
        """Repeats where there should be none: the destination detects duplicates."""
        return sum(times - 1 for (entity, _), times in self.home.items() if entity == DETECTING)

    @property
    def repeats_max(self) -> int:
        return WINDOW * self.kills.total()

    @property
    def is_fine(self) -> bool:
        return self.is_whole and self.repeats <= self.repeats_max and not self.undetected

    def columns(self) -> list[tuple[str, object]]:
        return [
            ("kills", self.kills.total()),
            *[(victim, self.kills[victim]) for victim in VICTIMS],
            ("messages", len(self.promised)),
            ("home", len(self.home)),
            ("repeats", self.repeats),
            ("at most", self.repeats_max),
            ("undetected", self.undetected),
            ("damaged", len(self.damaged)),
            ("left", self.left),
            ("LOST", len(self.lost)),
        ]


class Chaos:
    def __init__(
        self, primary: ServedNamespace, secondary: ServedNamespace, processes: Processes, folder: Path, seed: int
    ) -> None:
        self._primary = primary
        self._secondary = secondary
        self._processes = processes
        self._log = folder / "syphon.log"
        self._chance = random.Random(seed)
        self._syphon: Process | None = None
        self._paths = make_backlog(secondary, primary.name, QUEUES, lock_duration=LOCK)
        self.account = SyphonAccount()

    def start_syphon(self) -> None:
        self._syphon = self._processes.start(self._command(), None, self._log, self._environment())

    def round(self, number: int, victim: str, messages: int) -> None:
        """New messages, a kill somewhere while they are on their way, and the victim is back."""
        asyncio.run(self._fill_and_kill(number, messages, victim))
        time.sleep(self._chance.uniform(0, 0.3))
        self._revive(victim)

    async def _fill_and_kill(self, number: int, messages: int, victim: str) -> None:
        begin = self._log.stat().st_size
        filling = asyncio.create_task(self._fill(number, messages))
        if victim == "secondary":
            await filling  # or nobody would know which messages it has acknowledged
        if self._chance.random() < MIDWAY:
            await self._moves(begin)
        await asyncio.sleep(self._chance.uniform(0, messages / RATE / 2))
        await asyncio.to_thread(self._kill, victim)
        await filling

    async def _moves(self, begin: int) -> None:
        """Until the syphon says that it has messages in its hands, or seems to have had them between two looks."""
        until = time.monotonic() + MOVES_S
        while time.monotonic() < until:
            if any(_holds_messages(line) for line in self._log.read_bytes()[begin:].splitlines()):
                return
            await asyncio.sleep(0.05)

    async def _fill(self, number: int, messages: int) -> None:
        for index, path in enumerate(self._paths):
            entity = self._chance.choice(ENTITIES)
            ids = [f"{number}-{index}-{count}" for count in range(messages // QUEUES)]
            await put(self._secondary, path, [backlog_message(entity, one, one.encode()) for one in ids])
            self.account.promised |= {(entity, one) for one in ids}

    def _kill(self, victim: str) -> None:
        self.account.kills[victim] += 1
        if victim == "syphon":
            assert self._syphon is not None
            self._syphon.kill()
        else:
            self._served(victim).kill()

    def _revive(self, victim: str) -> None:
        if victim == "syphon":
            self.start_syphon()
        else:
            self._served(victim).start()

    def _served(self, victim: str) -> ServedNamespace:
        return self._primary if victim == "primary" else self._secondary

    # --- the end ---

    def finish(self) -> None:
        """Bring the rest home in peace, and count."""
        assert self._syphon is not None
        self._syphon.stop()
        command = (*self._command(), "--until-empty")
        environment = {**os.environ, **self._environment()}
        with self._log.open("ab") as log, suppress(subprocess.TimeoutExpired):
            subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=DRAIN_S, check=False)
        asyncio.run(self._count())

    async def _count(self) -> None:
        for entity in ENTITIES:
            for (message_id, body), times in (await found_in(self._primary, entity)).items():
                self.account.note_arrival(entity, message_id, body, times)
        for path in self._paths:
            for queue in (path, f"{path}/$DeadLetterQueue"):
                self.account.left += (await found_in(self._secondary, queue)).total()

    def _command(self) -> tuple[str, ...]:
        pace = ("--rate", str(RATE), "--timeout", "5s", "--json")
        return (sys.executable, "-m", "twinbus", "syphon", "--count", str(QUEUES), *pace)

    def _environment(self) -> dict[str, str]:
        strings = self._primary.connection_string, self._secondary.connection_string
        return dict(zip(("TWINBUS_PRIMARY", "TWINBUS_SECONDARY"), strings, strict=True))


def _holds_messages(line: bytes) -> bool:
    try:
        said = json.loads(line)
    except ValueError:
        return False  # half a line, or a line for people
    return bool(said.get("event") == "progress" and said["held"] > 0)


def run(runs: int, messages: int, seed: int, folder: Path) -> SyphonAccount:
    """So many kills, the three victims in turn but in random order."""
    chance = random.Random(seed)
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(runs)]
    chance.shuffle(victims)
    with served_pair(folder, None, ENTITIES, (DETECTING,)) as (primary, secondary), Processes() as processes:
        chaos = Chaos(primary, secondary, processes, folder, seed)
        chaos.start_syphon()
        for number, victim in enumerate(victims):
            chaos.round(number, victim, messages)
            show_progress(number + 1, runs)
        chaos.finish()
    return chaos.account


def main() -> None:
    chosen = arguments("Kill the syphon and both namespaces, and count what arrives.", messages=8_000).parse_args()
    count_and_exit(chosen.seed, [lambda seed, folder: run(chosen.runs, chosen.messages, seed, folder)])


if __name__ == "__main__":
    main()
