"""All rows of the benchmark.

    python -m bench.run [--quick] [--alone] [--only broker|pairing|proxy|syphon|spark|ways|analytics|fanout]

Rounds take turns, twinbus then RabbitMQ, and the best round of each counts: the others say more about what else the
machine did. Everything happens on loopback addresses and in one folder below build/, on the disk that the sources are
on; the folder and all processes are gone at the end.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.analytics import FULL as LEDGERS
from bench.analytics import QUICK as SMALL_LEDGERS
from bench.analytics import measure_analytics
from bench.analytics_cold import SIZES as COLD
from bench.analytics_cold import measure_cold
from bench.brokers import Broker, Twinbus, rabbitmq_version, start_rabbitmq
from bench.debian import version_of
from bench.fanout import measure_fanout
from bench.load import BODY_BYTES, WINDOW, LoadClient
from bench.pairing import measure_pairing
from bench.processes import Cores, Processes
from bench.proxy import measure_proxy
from bench.results import Must, Row, drawn, keep
from bench.shovel import measure_homecoming
from bench.spark_drain import measure_spark_drain
from bench.ways_home import measure_ways_home

BUILD = Path(__file__).parent.parent / "build" / "bench"
TITLES = {
    "broker": "1 KiB, durable",
    "pairing": "pairing, 1 KiB",
    "proxy": "through the proxy, 1 KiB, durable",
    "syphon": "syphon beside shovel, 1 KiB",
    "spark": "drain with Spark beside shovel, 1 KiB",
    "ways": "ways home side by side, 1 KiB",
    "analytics": "a large ledger, beside DuckDB",
    "fanout": "topics beside exchanges, 1 KiB",
}
SMALL = 10_000
"""A queue that counts as nearly empty."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rounds: int
    messages: int
    stored: int
    looks: int
    """Rounds of receiving from the large queue and from a small one."""
    disk_bytes: int
    turns: int
    """Rounds of the plain SDK and the paired client, interleaved."""
    outages: int
    """Of each kind."""
    moves: int
    """Rounds of syphon and shovel, interleaved."""
    moved: int
    """Messages in each of them."""
    moved_once: int | None
    """Messages that the syphon moves once, to see what that takes of memory; None: it does not."""
    ledger_events: tuple[int, ...]
    """Events in ledgers that are asked what they say."""
    singles: int
    """Messages that go through the proxy one by one, in each round."""
    copies: int
    """Copies that each topic makes in each of `looks` rounds."""

    def __str__(self) -> str:
        broker = f"{self.rounds} rounds of {self.messages:,} messages, {self.stored:,} stored"
        pairing = f"pairing: {self.turns} rounds, {self.outages} outages of each kind"
        syphon = f"syphon: {self.moves} rounds of {self.moved:,} messages"
        return f"{broker}; {pairing}; {syphon}; topics: {self.looks} rounds of {self.copies:,} copies"


FULL = Size(
    rounds=7,
    messages=50_000,
    stored=1_000_000,
    looks=7,
    disk_bytes=8 << 30,
    turns=40,
    outages=20,
    moves=3,
    moved=100_000,
    moved_once=1_000_000,
    ledger_events=LEDGERS,
    singles=5_000,
    copies=100_000,
)
QUICK = Size(
    rounds=3,
    messages=20_000,
    stored=200_000,
    looks=3,
    disk_bytes=2 << 30,
    turns=5,
    outages=2,
    moves=1,
    moved=50_000,
    moved_once=None,
    ledger_events=SMALL_LEDGERS,
    singles=1_000,
    copies=20_000,
)


@dataclass(frozen=True, slots=True)
class Bench:
    folder: Path
    processes: Processes
    cores: Cores
    client: LoadClient
    size: Size

    def start_again_and_again(self, twinbus: Twinbus) -> tuple[Broker, float]:
        """A running namespace, and the shortest time that a start took."""
        broker, best_s = twinbus.start()
        for _ in range(self.size.looks):
            broker.process.stop()
            broker, took_s = twinbus.start()
            best_s = min(best_s, took_s)
        return broker, best_s

    # --- beside RabbitMQ ---

    def compare(self, ours: Broker, theirs: Broker | None) -> list[Row]:
        """Durable ingest and egress."""
        rates: dict[tuple[str, str], list[float]] = {}
        for _ in range(self.size.rounds):
            for broker in (ours, theirs):
                if broker is not None:
                    rates.setdefault(("ingest", broker.name), []).append(self.client.send(broker, self.size.messages))
                    rates.setdefault(("egress", broker.name), []).append(
                        self.client.receive(broker, self.size.messages)
                    )
        return [_ratio(name, rates[name, ours.name], rates.get((name, "RabbitMQ"))) for name in ("ingest", "egress")]

    def confirmed(self, ours: Broker) -> Row:
        """Egress where each settlement is confirmed: then it is on disk."""

        def once() -> float:
            self.client.send(ours, self.size.messages)
            return self.client.receive_confirmed(ours, self.size.messages)

        best = max(once() for _ in range(self.size.looks))
        return Row("egress, settlement on disk", best, "msgs/s", ours=round(best))

    # --- many messages stored ---

    def store_many(self, small: Broker) -> list[Row]:
        twinbus = Twinbus(self.folder / "large", self.processes, self.cores.broker)
        twinbus.prepare()
        large, _ = twinbus.start()
        fill = self.client.send(large, self.size.stored)
        filled_mb = large.process.memory_mb("VmHWM")
        large.process.kill()  # the harder case: the log has to be recovered
        large, restart_s = twinbus.start()
        few, many = self._receive_in_turns(small, large)
        most_mb = max(filled_mb, large.process.memory_mb("VmHWM"))
        large.process.kill()
        stored = f"{self.size.stored:,} stored"
        return [
            Row(f"{stored}: ingest until there", fill, "msgs/s", ours=round(fill)),
            Row(f"{stored}: memory, at most", most_mb, "MB", Must("<", 300)),
            Row(f"{stored}: restart after kill -9", restart_s, "s", Must("<", 10)),
            Row(f"{stored}: egress, part of that at {SMALL:,}", many / few, "x", Must(">=", 0.7), round(many)),
        ]

    def _receive_in_turns(self, small: Broker, large: Broker) -> tuple[float, float]:
        """The best rates from a queue with few and from one with many messages; both are as full at the end."""
        few, many = [], []
        for _ in range(self.size.looks):
            self.client.send(small, SMALL)
            few.append(self.client.receive(small, SMALL))
            many.append(self.client.receive(large, SMALL))
            self.client.send(large, SMALL)
        return max(few), max(many)


def _ratio(name: str, ours: list[float], theirs: list[float] | None) -> Row:
    rounds: dict[str, Any] = {"twinbus_rounds": [round(rate) for rate in ours]}
    if theirs is None:
        return Row(name, max(ours), "msgs/s", ours=round(max(ours)), details=rounds)
    rounds["rabbitmq_rounds"] = [round(rate) for rate in theirs]
    ratio = max(ours) / max(theirs)
    return Row(name, ratio, "x", Must(">=", 2.0), round(max(ours)), round(max(theirs)), details=rounds)


def measure_broker(size: Size, cores: Cores, folder: Path, *, alone: bool) -> list[Row]:
    client = LoadClient(BUILD, cores)
    with Processes() as processes:
        bench = Bench(folder, processes, cores, client, size)
        twinbus = Twinbus(folder / "small", processes, cores.broker)
        twinbus.prepare()
        ours, start_s = bench.start_again_and_again(twinbus)
        rows = [Row("start-up to first connection", start_s, "s", Must("<", 1))]
        theirs = None if alone else start_rabbitmq(folder / "rabbitmq", BUILD, processes, cores.broker)
        rows = [*bench.compare(ours, theirs), bench.confirmed(ours), *rows]
        if theirs is not None:
            theirs.process.kill()
        return [*rows, *bench.store_many(ours)]


def measure_part(part: str, size: Size, cores: Cores, folder: Path, *, alone: bool) -> list[Row]:
    if part == "broker":
        return measure_broker(size, cores, folder, alone=alone)
    if part == "proxy":
        client = LoadClient(BUILD, cores)
        counts = {"rounds": size.rounds, "messages": size.messages, "singles": size.singles, "outages": size.outages}
        return measure_proxy(folder, cores, client, **counts)
    if part == "syphon":
        client = LoadClient(BUILD, cores)
        return measure_homecoming(
            folder, BUILD, client, rounds=size.moves, messages=size.moved, many=size.moved_once, alone=alone
        )
    if part == "spark":
        return measure_spark_drain(
            folder / "spark", BUILD, None if alone else LoadClient(BUILD, cores), rounds=size.moves, messages=size.moved
        )
    if part == "ways":
        return measure_ways_home(folder / "ways", rounds=size.moves, messages=size.moved)
    if part == "fanout":
        return measure_fanout(folder, BUILD, cores, rounds=size.looks, copies=size.copies, alone=alone)
    if part == "analytics":
        return measure_cold(COLD) + measure_analytics(size.ledger_events)
    return measure_pairing(folder, cores, turns=size.turns, outages=size.outages)


def circumstances(size: Size, cores: Cores, *, alone: bool) -> dict[str, Any]:
    """What has to be known to compare these numbers with others."""
    versions = {
        "twinbus": f"{version('twinbus')} ({_commit()})",
        "python": platform.python_version(),
        "azure-servicebus": version("azure-servicebus"),
        "sqlite": sqlite3.sqlite_version,
        "qpid-proton": version_of("libqpid-proton11"),
    }
    if not alone:
        versions |= {"rabbitmq": rabbitmq_version(BUILD), "erlang": version_of("erlang-base")}
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions,
        "cores": cores.count,
        "bound": str(cores),
        "size": str(size),
        "body_bytes": BODY_BYTES,
        "window": WINDOW,
    }


def _commit() -> str:
    """What the sources are, as far as git knows."""
    asked = ("git", "-C", str(BUILD), "describe", "--always", "--dirty")
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "no commit"
    except FileNotFoundError:
        return "no commit"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure twinbus, beside RabbitMQ.")
    parser.add_argument("--quick", action="store_true", help="a few minutes instead of many, with less of everything")
    parser.add_argument("--alone", action="store_true", help="without RabbitMQ")
    parser.add_argument("--only", choices=TITLES, help="some of the rows")
    chosen = parser.parse_args()
    size, cores = (QUICK if chosen.quick else FULL), Cores()
    BUILD.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(BUILD).free < size.disk_bytes:
        raise SystemExit(f"bench: needs {size.disk_bytes >> 30} GiB free on the disk of {BUILD}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    with tempfile.TemporaryDirectory(prefix="run-", dir=BUILD) as folder:
        rows = []
        for part, title in TITLES.items():
            if chosen.only in (None, part):
                found = measure_part(part, size, cores, Path(folder), alone=chosen.alone)
                print(drawn(title, found), end="\n\n", flush=True)
                rows += found
    around = circumstances(size, cores, alone=chosen.alone or chosen.only in ("pairing", "proxy", "ways", "analytics"))
    print(", ".join(f"{name} {number}" for name, number in around["versions"].items()))
    print(f"{size}; {cores.count} cores: {cores}")
    keep(rows, around)


def _end(*_: object) -> None:
    sys.exit("bench: stopped")  # an exception, so that everything is cleaned up


if __name__ == "__main__":
    main()
