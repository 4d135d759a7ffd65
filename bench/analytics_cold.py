"""A report as a user waits for it: each in a process of its own, from its start to its end.

    python -m bench.analytics_cold [--events N ...] [--keep]

For each size: from nothing, with nothing new, after 1 % more, with nothing new once more; and DuckDB with three of the
questions on the same Parquet files, in a process of its own. The reports twice: without a class archive, and with the
one that every report after the first has. Beside the clock: the CPU time of all processes of the
report, the JVM included, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.analytics_ledger import LedgerWriter
from bench.results import Must, Row, drawn, keep
from twinbus.spark.class_archive import NEVER_VARIABLE

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "bench"
TWINBUS = (sys.executable, "-m", "twinbus", "pipeline")
SIZES = (20, 100_000, 1_000_000)
BECOME_PARENT_OF_ORPHANS = 36
"""PR_SET_CHILD_SUBREAPER: a JVM ends after the process that started it, and its time counts too."""
CERTAIN_OR_NOT = (0, 3, 4)
"""Exit codes of a report."""
FROM_NOTHING_S = {100_000: 10, 1_000_000: 20}
NOTHING_NEW_S = 3
ASK_DUCKDB = """
import sys
sys.path.insert(0, "tests/support")
from pathlib import Path
from duck_oracle import PER_MESSAGE, Oracle
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
duck = Oracle(compact_ledger(read_in_process, Path(sys.argv[1])))
query = PER_MESSAGE.replace("$horizon", "15")
duck.ask(f"select entity, verdict, count(*) from ({query}) group by all"), duck.late(), duck.charges()
"""


class Waited(NamedTuple):
    """How long a command took, and the CPU time of it and all that it started."""

    clock_s: float
    cpu_s: float
    said: bytes


def wait_for(command: list[str], cache: Path) -> Waited:
    """Run a command to its end, and that of everything it started, with the class archive that is in a cache folder."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), NEVER_VARIABLE: "1"}
    before, began = _cpu_s(), time.perf_counter()
    process = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, env=environment)
    clock_s = time.perf_counter() - began
    if process.returncode not in CERTAIN_OR_NOT:
        raise SystemExit(f"bench: {' '.join(command)} ended with {process.returncode}: {process.stderr.decode()}")
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return Waited(clock_s, _cpu_s() - before, process.stdout)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_cold(sizes: Sequence[int]) -> list[Row]:
    """The rows of all sizes."""
    ctypes.CDLL(None).prctl(BECOME_PARENT_OF_ORPHANS, 1, 0, 0, 0)
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cold-", dir=BUILD) as folder:
        archived = Path(folder, "cache")
        made = _row("making a class archive", wait_for([*TWINBUS, "quick-start"], archived))
        return [made, *(row for events in sizes for row in _measure(events, Path(folder), archived))]


def _measure(events: int, folder: Path, archived: Path) -> list[Row]:
    """The rows of one size. `folder` is for what it writes, `archived` a cache folder with a class archive."""
    rows: list[Row] = []
    for kind, cache in (("cold", folder / "no-cache"), ("cold, with class archive", archived)):
        ledger = folder / f"{events}-{cache.name}"
        written = LedgerWriter(ledger)
        written.write(events)
        command = [*TWINBUS, "report", "--ledger", str(ledger), "--json"]
        first, same = wait_for(command, cache), wait_for(command, cache)
        written.write(max(1, events // 100))
        more, same_again = wait_for(command, cache), wait_for(command, cache)
        if first.said != same.said or more.said != same_again.said:
            raise SystemExit("bench: with nothing new, a report says something else")
        label = f"{events:,} events, {kind}"
        limit = FROM_NOTHING_S.get(events) if cache == archived else None
        rows += [
            _row(f"{label}: report from nothing", first, None if limit is None else Must("<=", limit)),
            _row(f"{label}: report with nothing new", min(same, same_again), Must("<=", NOTHING_NEW_S)),
            _row(f"{label}: report after 1 % more", more),
        ]
    duck = wait_for([sys.executable, "-c", ASK_DUCKDB, str(ledger)], archived)
    return [*rows, _row(f"{events:,} events, cold: three questions, DuckDB on the same Parquet", duck)]


def _row(name: str, waited: Waited, must: Must | None = None) -> Row:
    note = f"{waited.cpu_s:.1f} s of CPU"
    return Row(name, waited.clock_s, "s", must, note=note, details={"cpu_s": round(waited.cpu_s, 2)})


def main() -> None:
    parser = argparse.ArgumentParser(description="How long a user waits for a report.")
    parser.add_argument("--events", type=int, nargs="+", default=SIZES, metavar="N", help="sizes, the smallest first")
    parser.add_argument("--keep", action="store_true", help="keep the rows with the results of the bench")
    chosen = parser.parse_args()
    table = measure_cold(chosen.events)
    print(drawn("report", table))
    if chosen.keep:
        keep(table, {"at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()), "bench": "analytics-cold"})


if __name__ == "__main__":
    main()
