"""What a large ledger says, asked of Spark, and of DuckDB on the same Parquet files as the honest one-machine peer.

    python -m bench.run --only analytics [--quick]
    python -m bench.analytics [--events N ...]

1M, 5M and 20M events; `--quick`: 1M. Each size has a process, and so a JVM, of its own: the memory is that size's. A
small report comes first, so that no size pays for the warming up of the JVM. Then: a report from nothing, which reads
the segments and accounts for everything; three times 1 % more is written, about messages old and new, and reported;
and a report of the same store from nothing once more. Spark and DuckDB must agree before anything is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.analytics_ledger import LedgerWriter
from bench.results import Must, Row, drawn, keep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.spark.compaction.compaction import CompactedLedger
    from twinbus.spark.jobs.findings import Findings

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "bench"
QUICK, FULL = (1_000_000,), (1_000_000, 5_000_000, 20_000_000)
WARM_UP_EVENTS = 100_000
HORIZON_MIN = 15
ROUNDS = 3
LARGE_ENOUGH = 5_000_000
"""From here on an incremental report must be ten times as fast: below, what every question costs anyway shows."""
BYTES_PER_EVENT = 500
"""On disk, as lines and as Parquet together."""


def measure(events: int, folder: Path) -> dict[str, Any]:
    """Everything about one size, in this process."""
    from twinbus.spark.compaction.compaction import compact_ledger
    from twinbus.spark.jobs.compaction import on
    from twinbus.spark.session import ensure_session

    session_s, spark = _timed(ensure_session)
    _warm_up(spark, folder / "warm-up")
    ledger = folder / "ledger"
    written = LedgerWriter(ledger)
    written.write(events)
    first = reported(spark, ledger)
    more = []
    for _ in range(ROUNDS):
        written.write(events // 100)
        more.append(reported(spark, ledger))
    again = reported(spark, ledger, folder / "again")
    if _said(again.found) != _said(more[-1].found):
        raise SystemExit(f"bench: little by little, {events:,} events do not say what they say at once")
    # The report has merged step files since, so DuckDB asks those that are there now.
    return {
        "events": events,
        "session_s": session_s,
        "compact_s": min(first.compact_s, again.compact_s),
        "analyse_s": min(first.analyse_s, again.analyse_s),
        "more_s": sorted(each.compact_s + each.analyse_s for each in more),
        "jvm_mb": _jvm_mb(),
        "duckdb_s": _asked_of_duckdb(compact_ledger(on(spark), ledger, folder / "again"), again.found),
    }


def _said(found: Findings) -> dict[str, Any]:
    """All that a report says but when it was made."""
    return found.as_dict() | {"made_at": None}


class Reported(NamedTuple):
    """A report and how long it took."""

    compacted: CompactedLedger
    found: Findings
    compact_s: float
    analyse_s: float


def reported(spark: SparkSession, ledger: Path, store: Path | None = None) -> Reported:
    """All that `twinbus pipeline report` does once the session is up, except for drawing it."""
    from twinbus.cost.prices import Prices
    from twinbus.spark.compaction.compaction import compact_ledger
    from twinbus.spark.jobs.analysis import analyse
    from twinbus.spark.jobs.compaction import on

    compact_s, compacted = _timed(lambda: compact_ledger(on(spark), ledger, store))
    analyse_s, found = _timed(
        lambda: analyse(spark, compacted, Prices(), horizon_min=HORIZON_MIN, tell=lambda _text: None)
    )
    print(f"bench: {compacted.bytes_read:,} bytes: {compact_s:.2f} + {analyse_s:.2f} s", file=sys.stderr)
    return Reported(compacted, found, compact_s, analyse_s)


def _warm_up(spark: SparkSession, ledger: Path) -> None:
    written = LedgerWriter(ledger)
    for events in (WARM_UP_EVENTS, WARM_UP_EVENTS // 100):
        written.write(events)
        reported(spark, ledger)


def _asked_of_duckdb(compacted: CompactedLedger, found: Findings) -> float:
    """Seconds that DuckDB takes for where the messages are, order and cost; it must say the same."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from duck_oracle import PER_MESSAGE, Oracle

    duck = Oracle(compacted)
    query = PER_MESSAGE.replace("$horizon", str(HORIZON_MIN))

    def ask() -> tuple[Any, Any, Any]:
        where = duck.ask(f"select entity, verdict, count(*) from ({query}) group by all")
        return where, duck.late(), duck.charges()

    where, late, charges = ask()
    _agree("where they are", set(where), _counts_in(found))
    _agree("order", late, {row["entity"]: (row["arrived"], row["late"]) for row in found.ordering})
    moved = sum(size for (kind, _), (_, _, size) in charges.items() if kind != "completed")
    _agree("cost", moved, sum(bill.use.bytes for bill in found.bills))
    return min(_timed(ask)[0] for _ in range(ROUNDS))


def _counts_in(found: Findings) -> set[tuple[str, str, int]]:
    entities = found.reconciliation.entities
    return {(entity, verdict, count) for entity, counts in entities.items() for verdict, count in counts.items()}


def _agree(question: str, theirs: object, ours: object) -> None:
    if theirs != ours:
        raise SystemExit(f"bench: Spark and DuckDB do not agree about {question}")


def _timed(step: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = step()
    return time.perf_counter() - began, result


def _jvm_mb() -> float:
    """The most memory that a child of this process, which is the JVM, has had."""
    most = 0.0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            said = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if said["PPid"].strip() == str(os.getpid()) and "VmHWM" in said:
            most = max(most, int(said["VmHWM"].split()[0]) / 1024)
    return most


def measured_apart(events: int) -> dict[str, Any]:
    """`measure` in a process of its own."""
    BUILD.mkdir(parents=True, exist_ok=True)
    needed = events * BYTES_PER_EVENT * 1.2
    if shutil.disk_usage(BUILD).free < needed:
        raise SystemExit(f"bench: {events:,} events need {needed / 1e9:.0f} GB in {BUILD}")
    with tempfile.TemporaryDirectory(prefix="analytics-", dir=BUILD) as folder:
        command = [sys.executable, "-m", "bench.analytics", "--in", folder, "--events", str(events)]
        said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def measure_analytics(sizes: tuple[int, ...]) -> list[Row]:
    """One table for all sizes, the smallest first."""
    found = [measured_apart(events) for events in sizes]
    result = [row for each in found for row in _rows_of(each)]
    for small, large in pairwise(found):
        result += _growth(small, large)
    return result


def _rows_of(found: dict[str, Any]) -> list[Row]:
    label = f"{found['events']:,} events"
    full_s = found["compact_s"] + found["analyse_s"]
    more_s = min(found["more_s"])
    must = Must(">=", 10) if found["events"] >= LARGE_ENOUGH else None
    details = {name: found[name] for name in ("session_s", "compact_s", "analyse_s", "more_s", "duckdb_s")}
    return [
        Row(f"{label}: session start", found["session_s"], "s"),
        Row(f"{label}: report from nothing", full_s, "s", details=details),
        Row(f"{label}: of that, reading the segments", found["compact_s"], "s"),
        Row(f"{label}: report after 1 % more", more_s, "s"),
        Row(f"{label}: after 1 % more, faster by", full_s / more_s, "x", must),
        Row(f"{label}: analysis, DuckDB on the same Parquet", found["duckdb_s"], "s"),
        Row(f"{label}: analysis from nothing, DuckDB faster by", found["analyse_s"] / found["duckdb_s"], "x"),
        Row(f"{label}: report after 1 % more, DuckDB faster by", more_s / found["duckdb_s"], "x"),
        Row(f"{label}: memory of the JVM, at most", found["jvm_mb"], "MB"),
    ]


def _growth(small: dict[str, Any], large: dict[str, Any]) -> list[Row]:
    """How much more time and memory an event takes than in the smaller ledger: 1 is linear."""
    more = large["events"] / small["events"]
    label = f"{large['events']:,} beside {small['events']:,}"
    analysis, reading, memory = (large[name] / small[name] / more for name in ("analyse_s", "compact_s", "jvm_mb"))
    return [
        Row(f"{label}: time of an event in the analysis", analysis, "x", Must("<=", 1.2)),
        Row(f"{label}: time of an event in reading", reading, "x", Must("<=", 1.2)),
        Row(f"{label}: memory of an event", memory, "x", Must("<=", 1.0)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask a large ledger, with Spark and with DuckDB.")
    parser.add_argument("--events", type=int, nargs="+", default=FULL, metavar="N", help="sizes, the smallest first")
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.folder is not None:
        print(json.dumps(measure(chosen.events[0], chosen.folder)))
        return
    table = measure_analytics(tuple(chosen.events))
    print(drawn("ledger", table))
    keep(table, {"at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()), "bench": "analytics"})


if __name__ == "__main__":
    main()
