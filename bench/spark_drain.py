"""The rows about draining with Spark, beside a shovel between two RabbitMQ servers.

    python -m bench.spark_drain [--messages 200000] [--rounds 3] [--alone]

The same as the rows of the syphon, moved by tasks of a Spark inside this process, `local[2,4]`, with a ledger. What it
takes to start Spark, and the first job with everything it has to load, are rows of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.brokers import QUEUE
from bench.load import LoadClient
from bench.namespaces import ServedNamespace, served_pair
from bench.processes import Cores, Processes
from bench.results import Must, Row, drawn
from bench.shovel import QUEUES, Shovelling, Syphoning
from twinbus.spark.access import Access
from twinbus.spark.drain.drain import drain
from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.session import FOR_LITTLE_DATA, ensure_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUILD = Path(__file__).parent.parent / "build" / "bench"
MASTER = "local[2,4]"
FIRST = 1_000


class SparkDraining(Syphoning):
    """A backlog that Spark brings home."""

    def __init__(self, primary: ServedNamespace, secondary: ServedNamespace, ledger: Path) -> None:
        super().__init__(primary, secondary)
        self._ledger = ledger
        # Before Spark starts: its workers have the environment that it was started with.
        os.environ["TWINBUS_PRIMARY"] = primary.connection_string
        os.environ["TWINBUS_SECONDARY"] = secondary.connection_string
        began = time.perf_counter()
        self._spark: SparkSession = ensure_session(MASTER, settings=FOR_LITTLE_DATA)  # as the command does
        self.start_s = time.perf_counter() - began

    def rate(self, messages: int) -> float:
        asyncio.run(self._fill(messages))
        options = DrainOptions(
            primary=Access("env:TWINBUS_PRIMARY"),
            secondary=Access("env:TWINBUS_SECONDARY"),
            primary_name=self._primary.name,
            queue_count=QUEUES,
            ledger=str(self._ledger),
        )
        done = drain(self._spark, options)
        moved = done.count("moved")
        if done.ending != "empty" or moved != messages:
            raise SystemExit(f"bench: Spark brought {moved} of {messages} home, {done.ending}: {done.troubles}")
        return messages / done.seconds

    def stop(self) -> None:
        self._spark.stop()


def measure_spark_drain(
    folder: Path, build: Path, client: LoadClient | None, *, rounds: int, messages: int
) -> list[Row]:
    """Without a client for RabbitMQ, alone."""
    folder.mkdir(exist_ok=True)
    with served_pair(folder / "drain", None, (QUEUE,)) as (primary, secondary), Processes() as processes:
        ours = SparkDraining(primary, secondary, folder / "ledger")
        try:
            theirs = None if client is None else Shovelling(folder, build, client, processes)
            first_s = FIRST / ours.rate(FIRST)
            rates, their_rates = list[float](), list[float]()
            for _ in range(rounds):
                rates.append(ours.rate(messages))
                if theirs is not None:
                    their_rates.append(theirs.rate(messages))
        finally:
            ours.stop()
    return [
        _rate_row(messages, rates, their_rates),
        Row("Spark: start of the session", ours.start_s, "s"),
        Row(f"Spark: first job, {FIRST:,} home", first_s, "s"),
    ]


def _rate_row(messages: int, ours: list[float], theirs: list[float]) -> Row:
    name = f"{messages:,} home, Spark {MASTER}"
    details = {"twinbus_rounds": [round(rate) for rate in ours], "shovel_rounds": [round(rate) for rate in theirs]}
    if not theirs:
        return Row(name, max(ours), "msgs/s", ours=round(max(ours)), details=details)
    ratio = max(ours) / max(theirs)
    return Row(name, ratio, "x", Must(">=", 2.0), round(max(ours)), round(max(theirs)), details=details)


def main() -> None:
    parser = argparse.ArgumentParser(description="Drain with Spark, beside the shovel of RabbitMQ.")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="without RabbitMQ")
    chosen = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    client = None if chosen.alone else LoadClient(BUILD, Cores())
    with tempfile.TemporaryDirectory(prefix="run-", dir=BUILD) as folder:
        rows = measure_spark_drain(Path(folder), BUILD, client, rounds=chosen.rounds, messages=chosen.messages)
        print(drawn("drain with Spark, 1 KiB", rows))


if __name__ == "__main__":
    main()
