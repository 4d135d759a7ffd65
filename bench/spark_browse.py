"""How many messages a task of format("servicebus") should read: one queue, browsed with each partition size by turns.

python -m bench.spark_browse [--messages 100000] [--rounds 5] [--keep]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.backlog import backlog_message, put
from bench.load import BODY_BYTES
from bench.namespaces import QUEUE, ServedNamespace
from bench.processes import Processes
from bench.results import Row, drawn, keep
from twinbus.spark import register
from twinbus.spark.session import ensure_session
from twinbus.spark.source.options import PARTITION_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUILD = Path(__file__).parent.parent / "build" / "bench"
MASTER = "local[2,4]"
SIZES = (PARTITION_MAX, 50_000)
CHUNK = 20_000


def measure_spark_browse(folder: Path, *, rounds: int, messages: int) -> list[Row]:
    """A row for each partition size: the median of its rounds, after one that does not count."""
    with Processes() as processes:
        namespace = ServedNamespace("contoso", folder, processes, None)
        namespace.start()
        for start in range(0, messages, CHUNK):
            numbers = range(start, min(messages, start + CHUNK))
            chunk = [backlog_message(QUEUE, str(number), b"x" * BODY_BYTES) for number in numbers]
            asyncio.run(put(namespace, QUEUE, chunk))
        os.environ["TWINBUS_BROWSED"] = namespace.connection_string  # before Spark starts: its workers have it then
        spark = ensure_session(MASTER)
        try:
            register(spark)
            taken_s = {size: list[float]() for size in SIZES}
            for _ in range(1 + rounds):
                for size in SIZES:
                    taken_s[size].append(_browse(spark, size, messages))
        finally:
            spark.stop()
    return [_row(size, seconds[1:], messages) for size, seconds in taken_s.items()]


def _browse(spark: SparkSession, size: int, messages: int) -> float:
    """Seconds until all messages were read, with their bodies."""
    options = {"servicebus.credential": "env:TWINBUS_BROWSED", "maxMessagesPerPartition": str(size)}
    began = time.perf_counter()
    found = spark.read.format("servicebus").options(**options).load(QUEUE).selectExpr("sum(length(body))").first()
    taken_s = time.perf_counter() - began
    if found is None or found[0] != messages * BODY_BYTES:
        raise SystemExit(f"bench: {found} bytes were read of {messages * BODY_BYTES}")
    return taken_s


def _row(size: int, rounds_s: list[float], messages: int) -> Row:
    median_s = sorted(rounds_s)[len(rounds_s) // 2]
    details = {"rounds_s": [round(each, 2) for each in rounds_s]}
    name = f"{messages:,} browsed by Spark {MASTER}, {size:,} a task"
    return Row(name, median_s, "s", ours=round(messages / median_s), details=details)


def main() -> None:
    parser = argparse.ArgumentParser(description="Browse a queue with Spark, with partitions of several sizes.")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="keep the rows with the results of the bench")
    chosen = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="browse-", dir=BUILD) as folder:
        rows = measure_spark_browse(Path(folder), rounds=chosen.rounds, messages=chosen.messages)
    print(drawn("browse with Spark, 1 KiB", rows))
    if chosen.keep:
        keep(rows, {"at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()), "bench": "spark-browse"})


if __name__ == "__main__":
    main()
