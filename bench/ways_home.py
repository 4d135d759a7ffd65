"""The rows about the ways home: one syphon, several processes of one, and a drain, each for the same backlog.

    python -m bench.ways_home [--messages 160000] [--rounds 3]

Eight backlog queues hold messages for four entities. Each way is the command that users type, with a ledger; they take
turns, and each finds the same backlog. Two rates are told: while it moves, by its own clock, and from the start of the
command to its end, as a user waits. Nothing is bound to a core. Where the time goes is said in microseconds of CPU a
message: of what moves, Spark's JVM included, and of the two namespaces.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.backlog import backlog_message, make_backlog, put
from bench.load import BODY_BYTES, SLOWEST_RATE
from bench.namespaces import ServedNamespace, served_pair
from bench.processes import Processes
from bench.results import Row, drawn

BUILD = Path(__file__).parent.parent / "build" / "bench"
QUEUES = 8
ENTITIES = tuple(f"orders-{number}" for number in range(4))
CHUNK = 20_000
START_S = 120
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Way:
    """A command that brings a backlog home."""

    name: str
    words: tuple[str, ...]


SYPHON = ("syphon", "--until-empty")
WAYS = (
    Way("syphon", SYPHON),
    Way("syphon --processes 2", (*SYPHON, "--processes", "2")),
    Way("drain", ("pipeline", "drain")),
)


class Trip(NamedTuple):
    """One backlog, brought home."""

    moving_s: float
    """By the clock of the command."""
    whole_s: float
    """From its start to its end."""
    mover_cpu_s: float
    namespaces_cpu_s: float


class WaysHome:
    def __init__(self, primary: ServedNamespace, secondary: ServedNamespace, folder: Path) -> None:
        self._primary = primary
        self._secondary = secondary
        self._folder = folder
        self._paths = make_backlog(secondary, primary.name, QUEUES)
        self._trips = 0

    def travel(self, way: Way, messages: int) -> Trip:
        asyncio.run(self._fill(messages))
        self._trips += 1
        place = self._folder / f"trip-{self._trips}"
        place.mkdir()
        strings = {"TWINBUS_PRIMARY": self._primary, "TWINBUS_SECONDARY": self._secondary}
        environment = {name: side.connection_string for name, side in strings.items()}
        command = (sys.executable, "-m", "twinbus", *way.words, "--ledger", str(place / "ledger"), "--json")
        command += ("--queues", str(QUEUES), "--primary-name", self._primary.name)
        before_s, began = self._namespaces_cpu_s(), time.perf_counter()
        with Processes() as processes:
            log = place / "log"
            process = processes.start(command, None, log, environment)
            mover_cpu_s = process.session_cpu_s_at_end(LOOK_S, START_S + messages / SLOWEST_RATE)
            whole_s = time.perf_counter() - began
            if process.returncode != 0:
                raise SystemExit(f"bench: {way.name} ended with {process.returncode}: {process.last_words()}")
        said = next(line for line in reversed(_lines(log)) if line.get("event") == "finished")
        if said["moved"] != messages:
            raise SystemExit(f"bench: {way.name} brought {said['moved']} of {messages} messages home")
        return Trip(float(said["elapsed_s"]), whole_s, mover_cpu_s, self._namespaces_cpu_s() - before_s)

    def _namespaces_cpu_s(self) -> float:
        processes = (self._primary.process, self._secondary.process)
        return sum(process.cpu_s() for process in processes if process is not None)

    async def _fill(self, messages: int) -> None:
        body, share = os.urandom(BODY_BYTES), messages // QUEUES
        for index, path in enumerate(self._paths):
            for start in range(0, share, CHUNK):
                numbers = range(start, min(share, start + CHUNK))
                filled = [
                    backlog_message(ENTITIES[number % len(ENTITIES)], f"{self._trips}-{index}-{number}", body)
                    for number in numbers
                ]
                await put(self._secondary, path, filled)


def _lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def measure_ways_home(folder: Path, *, rounds: int, messages: int) -> list[Row]:
    messages -= messages % (QUEUES * len(ENTITIES))
    folder.mkdir(exist_ok=True)
    trips: dict[str, list[Trip]] = {way.name: [] for way in WAYS}
    with served_pair(folder / "pair", None, ENTITIES) as (primary, secondary):
        ways = WaysHome(primary, secondary, folder)
        for _ in range(rounds):
            for way in WAYS:
                trips[way.name].append(ways.travel(way, messages))
    return [row for name, found in trips.items() for row in _rows(name, messages, found)]


def _rows(name: str, messages: int, trips: list[Trip]) -> list[Row]:
    moving = [messages / trip.moving_s for trip in trips]
    whole = [messages / trip.whole_s for trip in trips]
    mover_us = min(trip.mover_cpu_s for trip in trips) / messages * 1e6
    namespaces_us = min(trip.namespaces_cpu_s for trip in trips) / messages * 1e6
    details = {"twinbus_rounds": [round(rate) for rate in moving]}
    waited = {"twinbus_rounds": [round(rate) for rate in whole]}
    start = f"{messages:,} home, {name}"
    return [
        Row(start, max(moving), "msgs/s", ours=round(max(moving)), details=details),
        Row(f"{start}, start to end", max(whole), "msgs/s", ours=round(max(whole)), details=waited),
        Row(f"{start}: CPU of what moves", mover_us, "us/msg"),
        Row(f"{start}: CPU of both namespaces", namespaces_us, "us/msg"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="One syphon, several processes of it, and a drain, by turns.")
    parser.add_argument("--messages", type=int, default=160_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=BUILD) as folder:
        rows = measure_ways_home(Path(folder), rounds=chosen.rounds, messages=chosen.messages)
    print(drawn("ways home, 1 KiB", rows))


if __name__ == "__main__":
    main()
