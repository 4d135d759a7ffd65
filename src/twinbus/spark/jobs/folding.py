"""Brings a balance forward: what is new is added to the accounts, and with them to what follows from them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from twinbus.spark.jobs import balance as balances
from twinbus.spark.jobs.accounting import account_for
from twinbus.spark.jobs.balance import Balance
from twinbus.spark.jobs.following import judged, stretches
from twinbus.spark.jobs.mending import mended
from twinbus.spark.jobs.noting import noted
from twinbus.spark.jobs.run import Run
from twinbus.spark.jobs.tables import AT_ONCE

POINTS_MAX = 240
BUCKETS_MS = [round(1000 * seconds) for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400)]
"""Each is a whole part of the next, so that sums of one can be added up to sums of the other."""


def brought_forward(run: Run) -> Balance:
    """The balance with the new steps in it; what it is made of is on disk."""
    bucket_ms = max(run.before.bucket_ms, bucket_for(run.span_ms[1] - run.span_ms[0]))
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        noting = at_once.submit(noted, run, bucket_ms)
        accounted = account_for(run)
        counted = at_once.submit(judged, run, accounted)
        sent = stretches(run, accounted)
        torn = mended(run, accounted, sent)
    notes = noting.result()
    after = Balance(
        folded=run.compacted.manifest.files,
        homes=sorted(run.homes),
        steps=run.compacted.manifest.steps,
        tables={"accounts": accounted.all, "stretches": sent, "mended": torn} | counted.result() | notes.tables,
        traffic=run.before.traffic,
        observed=dict(run.before.observed),
        removed=dict(run.before.removed),
    )
    after.add(notes.traffic, bucket_ms)
    for entity, first_ms, last_ms in notes.observed:
        after.see(entity, first_ms, last_ms)
    for entity, at_ms in notes.removed:
        after.removed[entity] = max(at_ms, after.removed.get(entity, at_ms))
    balances.keep_names(run.folder)
    return after


def bucket_for(span_ms: int) -> int:
    """The shortest bucket that gives a plot no more points than it can show."""
    return next((each for each in BUCKETS_MS if span_ms / each <= POINTS_MAX), BUCKETS_MS[-1])
