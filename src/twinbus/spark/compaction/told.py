"""What the primary's own ledger proves by its silence.

A namespace records a message before it acknowledges it. So a message that was acknowledged, and is not in a ledger that
is complete for that time, is lost. Where the ledger was not kept (`untold`) silence means nothing; where records may be
missing, or may still come, nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from twinbus.ledger.endings import FOREVER_MS
from twinbus.spark.compaction.compaction import Compacted
from twinbus.spark.compaction.coverage import Coverage, ending_of
from twinbus.spark.compaction.manifest import Process
from twinbus.spark.compaction.primaries import homes, is_kept_by_primary, is_kept_by_secondary
from twinbus.spark.compaction.untold import SHORT_MS, Stretch, when_not_kept


class Silence(NamedTuple):
    """When the primary's silence says something."""

    is_kept: bool = False
    """Whether the primary has kept a ledger at any time."""
    told: tuple[Stretch, ...] = ()
    """When its ledger is complete: what it does not tell of did not happen."""
    untold: tuple[Stretch, ...] = ()
    """When it kept none."""
    is_running: bool = False
    """Whether it still writes: what is young may not have been written down yet."""
    read_ms: int = 0
    """When the ledger was read."""
    processes: tuple[str, ...] = ()
    """Those in which it kept its ledger."""


def silence_of(compacted: Compacted, coverage: Coverage) -> Silence:
    """What follows from the silence of the primary in this store."""
    processes = compacted.manifest.processes
    known, called = processes.values(), homes(processes.values())
    is_named = any(each.primaries for each in known)
    kept = {
        name: each
        for name, each in processes.items()
        if is_kept_by_primary(each, called) and each.first_ms and (is_named or each.stores)
    }
    found = _silence(kept, coverage.untold, compacted, coverage)
    # If no client names its primary, nobody says that it is this one: what it does not tell of proves nothing.
    return found if is_named else found._replace(told=())


def silence_of_secondary(compacted: Compacted, coverage: Coverage) -> Silence:
    """What follows from the silence of the secondary about its backlog queues."""
    processes = compacted.manifest.processes
    known = list(processes.values())
    kept = {name: each for name, each in processes.items() if is_kept_by_secondary(each, known) and each.first_ms}
    return _silence(kept, when_not_kept(kept.values()), compacted, coverage)


def _silence(
    kept: dict[str, Process], untold: tuple[Stretch, ...], compacted: Compacted, coverage: Coverage
) -> Silence:
    if not kept:
        return Silence(untold=untold)
    last = max(kept.values(), key=lambda each: each.last_ms)
    over = [Stretch(last.last_ms + 1, FOREVER_MS)] if last.closed else []
    return Silence(
        is_kept=True,
        told=tuple(_told(kept, coverage)),
        untold=(*untold, *over),
        is_running=any(ending_of(name, each, compacted.running) == "running" for name, each in kept.items()),
        read_ms=compacted.read_ms,
        processes=tuple(kept),
    )


def _told(kept: dict[str, Process], coverage: Coverage) -> Iterable[Stretch]:
    """Stretches without a hole. A namespace that closes and is back soon was away in between: nothing came."""
    if any(not each.process for each in coverage.unknown):
        return []  # records of any process may be missing
    found: list[Stretch] = []
    closed_ms = -SHORT_MS
    for name, each in sorted(kept.items(), key=lambda item: item[1].first_ms):
        dark = sorted(Stretch(gap.since_ms, gap.until_ms) for gap in coverage.unknown if gap.process == name)
        parts = list(_without(Stretch(each.first_ms, each.last_ms), dark))
        is_next = each.first_ms - closed_ms <= SHORT_MS and found and parts
        if is_next and found[-1].until_ms == closed_ms and parts[0].since_ms == each.first_ms:
            parts[0] = Stretch(found.pop().since_ms, parts[0].until_ms)
        found += parts
        closed_ms = each.last_ms if each.closed else -SHORT_MS
    return found


def _without(stretch: Stretch, dark: Sequence[Stretch]) -> Iterable[Stretch]:
    """What is left of a stretch; the dark ones are in order."""
    since_ms = stretch.since_ms
    for each in dark:
        if each.until_ms <= since_ms or each.since_ms >= stretch.until_ms:
            continue
        if each.since_ms > since_ms:
            yield Stretch(since_ms, each.since_ms)
        since_ms = max(since_ms, each.until_ms)
    if since_ms < stretch.until_ms:
        yield Stretch(since_ms, stretch.until_ms)
