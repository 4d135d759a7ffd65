"""Merges new steps into a balance: into the accounts, the tables made of them, and the totals of traffic.

Spark does all of it, whatever the size. Adding up small runs in this process with Arrow was measured beside it, each
time in a new process (CPU seconds of Python and JVM, one run each, 2 cores):

| events | report | Arrow for small runs | Spark alone |
|---|---|---|---|
| 2,000 | from nothing | 28 | 30 |
| 2,000 | 2 % new | 26 | 29 |
| 200,000 | from nothing | 45 | 45 |
| 200,000 | 1 % new | 35 | 39 |
| 200,000 | nothing new (same code) | 30 | 26 |

The gain is no larger than the difference of two runs of the same code in the last line, and it would be a second
program for every sum. In a warm session a report of 2,000 events takes 5 CPU seconds instead of 4. A small report
waits for the start of the JVM: see `session.QUICK_START`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from twinbus.spark.jobs import balance as balances
from twinbus.spark.jobs.account_files import merge_account_files, write_state_tables
from twinbus.spark.jobs.balance import Balance, TrafficRow
from twinbus.spark.jobs.merge_run import MergeRun, split_files
from twinbus.spark.jobs.order import write_repaired, write_stretches
from twinbus.spark.jobs.tables import AT_ONCE
from twinbus.spark.transforms.accounts import removals
from twinbus.spark.transforms.availability import changes, observed
from twinbus.spark.transforms.ordering import session_names
from twinbus.spark.transforms.traffic import traffic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POINTS_MAX = 240
BUCKETS_MS = [round(1000 * seconds) for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400)]
"""Each divides the next, so the sums of one can be added up to those of the other."""


def merge_new_steps(run: MergeRun) -> Balance:
    """The balance with the new steps in it; its files are durable when this returns."""
    bucket_ms = max(run.before.bucket_ms, choose_bucket_ms(run.span_ms[1] - run.span_ms[0]))
    steps = run.steps()
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        moved = at_once.submit(traffic(steps, bucket_ms=bucket_ms).collect)
        seen = at_once.submit(observed(steps).collect)
        removed = at_once.submit(removals(steps).collect)
        changed = at_once.submit(_append, run, "changes", changes(steps))
        named = at_once.submit(_append, run, "sessions", session_names(steps))
        files = merge_account_files(run)
        states = at_once.submit(write_state_tables, run, files)
        stretch_files = write_stretches(run, files)
        repaired = write_repaired(run, files, stretch_files)
    after = Balance(
        folded=run.compacted.manifest.files,
        homes=sorted(run.primary_names),
        steps=run.compacted.manifest.steps,
        tables={"accounts": files.all, "stretches": stretch_files, "mended": repaired}
        | states.result()
        | {"changes": changed.result(), "sessions": named.result()},
        traffic=run.before.traffic,
        observed=dict(run.before.observed),
        removed=dict(run.before.removed),
    )
    after.add_traffic([TrafficRow(*row) for row in moved.result()], bucket_ms)
    for entity, first_ms, last_ms in seen.result():
        after.add_observed(entity, first_ms, last_ms)
    for entity, at_ms in removed.result():
        after.removed[entity] = max(at_ms, after.removed.get(entity, at_ms))
    balances.sync_names(run.folder)
    return after


def choose_bucket_ms(span_ms: int) -> int:
    """The shortest bucket with no more points than a plot can show."""
    return next((each for each in BUCKETS_MS if span_ms / each <= POINTS_MAX), BUCKETS_MS[-1])


def _append(run: MergeRun, table: str, fresh: DataFrame) -> list[str]:
    kept, many = split_files(run.before.files(table))
    if many:
        fresh = run.read(table, many, run.new).unionByName(fresh).distinct()
    return [*kept, *run.write(table, fresh.coalesce(1))]
