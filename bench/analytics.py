"""What a large ledger says, asked of Spark, and of DuckDB on the same Parquet files as the honest one-machine peer.

    python -m bench.analytics [--quick] [--large]

1M and 5M events, with `--large` also 20M, with `--quick` only 200,000. Each size has a process, and so a JVM, of its
own: the memory is that size's. Every question is first asked once of both, who must agree, and then three times for the
clock; the best counts. The row about 1 % more is about compaction alone: the questions are always about everything.
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
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from bench.results import Must, Row, drawn, keep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "bench"
QUICK, USUAL, LARGE = (200_000,), (1_000_000, 5_000_000), (20_000_000,)
SEGMENT_LINES = 200_000
BASE_MS, SPAN_MS = 1_741_500_000_000, 6 * 3600 * 1000
HORIZON_MIN = 15
ROUNDS = 3
BYTES_PER_EVENT = 450
"""On disk, as lines and as Parquet together."""


def write_ledger(directory: Path, events: int, first: int = 0, process_base: int = 0) -> int:
    """So many events of two clients, a syphon and a receiver; every tenth message takes the detour. The messages."""
    writers = [_Lines(directory, f"{process_base + number:016x}") for number in range(4)]
    message = first
    while sum(writer.number for writer in writers) < events:
        at = BASE_MS + (message * 7) % SPAN_MS
        client, syphon, receiver = writers[message % 2], writers[2], writers[3]
        name = b'"message_ids":["%032x"],"sizes":[1024]' % (message * 0x9E3779B97F4A7C15 % (1 << 128))
        where = b'"entity":"queue%d","namespace":"contoso",' % (message % 20)
        if message % 10:
            client.add(at, b'"kind":"accepted",%b%b' % (where, name))
        else:
            parked = b'%b"queue":"contoso/x-servicebus-transfer/%d",%b' % (where, message // 10 % 10, name)
            client.add(at, b'"kind":"backlogged",%b' % parked)
            syphon.add(at + 600_000, b'"kind":"received_from_backlog",%b' % parked)
            syphon.add(at + 600_004, b'"kind":"sent_home",%b%b' % (where, name))
            syphon.add(at + 600_009, b'"kind":"completed",%b' % parked)
        receiver.add(at + 601_000, b'"kind":"delivered",%b%b' % (where, name))
        message += 1
    for writer in writers:
        writer.add(BASE_MS + SPAN_MS + 700_000, b'"kind":"closed"')
        writer.end()
    return message - first


class _Lines:
    """Lines of one process, as the ledger writes them, without its care."""

    def __init__(self, directory: Path, process: str) -> None:
        self._directory, self._process = directory, process
        self._who = b'{"v":1,"process":"%b","pid":1,"host":"bench","program":"bench"' % process.encode()
        self._lines: list[bytes] = []
        self._segment = 0
        self.number = 0

    def add(self, at_ms: int, said: bytes) -> None:
        self.number += 1
        body = b'%b,"number":%d,"at_ms":%d,"monotonic_us":%d,%b' % (self._who, self.number, at_ms, at_ms, said)
        self._lines.append(b'%b,"crc":%d}\n' % (body, crc32(body)))
        if len(self._lines) >= SEGMENT_LINES:
            self.end()

    def end(self) -> None:
        self._segment += 1
        name = f"20250309T060000Z-{self._process}-{self._segment:06}.jsonl"
        (self._directory / name).write_bytes(b"".join(self._lines))
        self._lines.clear()


def measure(events: int, folder: Path) -> dict[str, Any]:
    """Everything about one size, in this process."""
    from twinbus.spark.compaction.compaction import compact_ledger
    from twinbus.spark.jobs.compaction import on, steps_in
    from twinbus.spark.session import ensure_session

    ledger = folder / "ledger"
    ledger.mkdir()
    messages = write_ledger(ledger, events)
    session_s, spark = _timed(ensure_session)
    full_s, compacted = _timed(lambda: compact_ledger(on(spark), ledger))
    write_ledger(ledger, events // 100, first=messages, process_base=100)
    more_s, compacted = _timed(lambda: compact_ledger(on(spark), ledger))
    steps = steps_in(spark, compacted)
    found: dict[str, Any] = {"events": events, "session_s": session_s, "full_s": full_s, "more_s": more_s}
    found["parquet_mb"] = sum((compacted.store / file).stat().st_size for file in compacted.manifest.files) / 1e6
    for name, ours, theirs, same in _questions(steps, compacted):
        if not same(ours(), theirs()):
            raise SystemExit(f"bench: Spark and DuckDB do not agree about {name} of {events:,} events")
        found[name] = {"spark": _rounds(ours), "duckdb": _rounds(theirs)}
        print(f"bench: {events:,} events: {name}: {found[name]}", file=sys.stderr)
    found["jvm_mb"] = _jvm_mb()
    return found


Same = Callable[[Any, Any], bool]


def _questions(steps: DataFrame, compacted: Any) -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any], Same]]:
    """Each question to Spark and to DuckDB, and whether two answers are the same."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from duck_oracle import PER_MESSAGE, Oracle

    from twinbus.cost.prices import Prices
    from twinbus.spark.compaction.coverage import coverage_of
    from twinbus.spark.jobs.analysis import actual_cost, reconcile
    from twinbus.spark.transforms.ordering import journeys, ordering, ordering_by_session

    duck, coverage = Oracle(compacted), coverage_of(compacted)
    counted = PER_MESSAGE.replace("$horizon", str(HORIZON_MIN))
    yield (
        "reconcile",
        lambda: reconcile(steps, coverage, horizon_min=HORIZON_MIN).entities,
        lambda: duck.ask(f"select entity, verdict, count(*) from ({counted}) group by all"),
        lambda ours, theirs: {(e, v, n) for e, found in ours.items() for v, n in found.items()} == set(theirs),
    )
    yield (
        "order",
        lambda: ordering(ordering_by_session(journeys(steps))).collect(),
        duck.late,
        lambda ours, theirs: {row["entity"]: (row["arrived"], row["late"]) for row in ours} == theirs,
    )
    yield (
        "cost",
        lambda: actual_cost(steps, Prices()),
        duck.charges,
        lambda ours, theirs: (
            sum(bill.use.bytes for bill in ours)
            == sum(size for (kind, _), (_, _, size) in theirs.items() if kind != "completed")
        ),
    )


def _timed(step: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = step()
    return time.perf_counter() - began, result


def _rounds(question: Callable[[], Any]) -> dict[str, float]:
    took = [_timed(question)[0] for _ in range(ROUNDS)]
    return {"best": round(min(took), 3), "worst": round(max(took), 3)}


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
    if shutil.disk_usage(BUILD).free < events * BYTES_PER_EVENT * 1.2:
        raise SystemExit(f"bench: {events:,} events need {events * BYTES_PER_EVENT * 1.2 / 1e9:.0f} GB in {BUILD}")
    with tempfile.TemporaryDirectory(prefix="analytics-", dir=BUILD) as folder:
        command = [sys.executable, "-m", "bench.analytics", "--in", folder, "--events", str(events)]
        said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def rows(sizes: tuple[int, ...]) -> list[Row]:
    """One table for all sizes."""
    found = [measured_apart(events) for events in sizes]
    result = [row for each in found for row in _rows_of(each)]
    for small, large in pairwise(found):
        result += _growth(small, large)
    return result


def _rows_of(found: dict[str, Any]) -> list[Row]:
    label = f"{found['events']:,} events"
    table = [
        Row(f"{label}: session start", found["session_s"], "s"),
        Row(f"{label}: compaction", found["events"] / found["full_s"], "events/s"),
        Row(f"{label}: compaction of 1 % more, faster by", found["full_s"] / found["more_s"], "x", Must(">=", 10)),
        Row(f"{label}: memory of the JVM, at most", found["jvm_mb"], "MB"),
    ]
    for name in ("reconcile", "order", "cost"):
        spark, duckdb = found[name]["spark"], found[name]["duckdb"]
        details = {"spark": spark, "duckdb": duckdb}
        table.append(Row(f"{label}: {name}", spark["best"], "s", details=details))
        table.append(Row(f"{label}: {name}, DuckDB faster by", spark["best"] / duckdb["best"], "x"))
    return table


def _growth(small: dict[str, Any], large: dict[str, Any]) -> list[Row]:
    """How much more time and memory an event takes than in the smaller ledger: 1 is linear."""
    more = large["events"] / small["events"]
    label = f"{large['events']:,} beside {small['events']:,}"
    ratio = large["reconcile"]["spark"]["best"] / small["reconcile"]["spark"]["best"] / more
    return [
        Row(f"{label}: time of an event in reconcile", ratio, "x", Must("<", 1.2)),
        Row(f"{label}: time of an event in compaction", large["full_s"] / small["full_s"] / more, "x", Must("<", 1.2)),
        Row(f"{label}: memory of an event", large["jvm_mb"] / small["jvm_mb"] / more, "x", Must("<", 1.0)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask a large ledger, with Spark and with DuckDB.")
    parser.add_argument("--quick", action="store_true", help="200,000 events only")
    parser.add_argument("--large", action="store_true", help="20 million events too: half an hour and 10 GB")
    parser.add_argument("--events", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.folder is not None:
        print(json.dumps(measure(chosen.events, chosen.folder)))
        return
    table = rows(QUICK if chosen.quick else USUAL + (LARGE if chosen.large else ()))
    print(drawn("ledger", table))
    keep(table, {"at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()), "bench": "analytics"})


if __name__ == "__main__":
    main()
