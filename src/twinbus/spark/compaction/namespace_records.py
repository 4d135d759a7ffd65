"""What follows if the ledger of a namespace does not have a message.

A namespace records a message before it acknowledges it. So a message that was acknowledged, and is not in a ledger that
is complete for that time, is lost. While no ledger was kept, a missing record means nothing; where records may be
missing or may still come, the answer is unknown.

A ledger may be started one day, or stopped for a while. A namespace that was killed is different: what it acknowledged
and did not record is what a report looks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from twinbus.ledger.reading.process_end import FOREVER_MS
from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.compaction.coverage import StoreCoverage, ending_of
from twinbus.spark.compaction.manifest import Process
from twinbus.spark.compaction.primaries import is_kept_by_primary, is_kept_by_secondary, primary_names, unique_names

RESTART_MS = 60_000
"""A shorter pause is a restart: nobody runs a namespace without its ledger for so short a time."""


class Period(NamedTuple):
    since_ms: int
    until_ms: int


class NamespaceRecords(NamedTuple):
    """When a namespace kept a ledger, and when that is complete."""

    is_kept: bool = False
    """Whether it kept a ledger at any time."""
    complete: tuple[Period, ...] = ()
    """When its ledger is complete: what it does not have did not happen."""
    not_kept: tuple[Period, ...] = ()
    """When it kept none."""
    is_running: bool = False
    """Whether it still writes: recent events may not be written yet."""
    read_ms: int = 0
    """When the ledger was read."""
    processes: tuple[str, ...] = ()
    """The processes in which it kept its ledger."""


def primary_records(compacted: CompactedLedger, coverage: StoreCoverage) -> NamespaceRecords:
    """What the store has of the primary's own ledger."""
    processes = compacted.manifest.processes
    names = primary_names(processes.values())
    is_named = any(each.primaries for each in processes.values())
    kept = {
        name: each
        for name, each in processes.items()
        if is_kept_by_primary(each, names) and each.first_ms and (is_named or each.stores)
    }
    found = _records(kept, primary_not_kept(processes.values()), compacted, coverage)
    # If no client names its primary, it may be another one: what this one does not have proves nothing.
    return found if is_named else found._replace(complete=())


def secondary_records(compacted: CompactedLedger, coverage: StoreCoverage) -> NamespaceRecords:
    """What the store has of the secondary's own ledger, about its backlog queues."""
    processes = compacted.manifest.processes
    known = list(processes.values())
    kept = {name: each for name, each in processes.items() if is_kept_by_secondary(each, known) and each.first_ms}
    return _records(kept, _not_kept(kept.values()), compacted, coverage)


def primary_not_kept(processes: Iterable[Process]) -> tuple[Period, ...]:
    """When messages may have come to the primary while it kept no ledger.

    As long as no client names a primary, every namespace is one.
    """
    known = list(processes)
    primaries = {name.casefold() for name in unique_names(name for process in known for name in process.primaries)}
    return _not_kept(
        each
        for each in known
        if (not primaries or each.program.casefold() in primaries) and "namespace" in each.roles and each.first_ms > 0
    )


def _not_kept(processes: Iterable[Process]) -> tuple[Period, ...]:
    """When a namespace kept no ledger, given the processes in which it did: before the first, and between them.

    Not before a process whose first records are missing: when it began, nobody knows.
    """
    kept = sorted(processes, key=lambda each: each.first_ms)
    if not kept:
        return ()  # it never kept one: its missing records prove nothing anyway
    found, last = [Period(0, kept[0].first_ms)] if kept[0].has_beginning else [], kept[0]
    for each in kept[1:]:
        if last.closed and each.has_beginning and each.first_ms - last.last_ms > RESTART_MS:
            found.append(Period(last.last_ms, each.first_ms))
        last = each if each.last_ms >= last.last_ms else last
    return tuple(found)


def _records(
    kept: dict[str, Process], not_kept: tuple[Period, ...], compacted: CompactedLedger, coverage: StoreCoverage
) -> NamespaceRecords:
    if not kept:
        return NamespaceRecords(not_kept=not_kept)
    last = max(kept.values(), key=lambda each: each.last_ms)
    after = [Period(last.last_ms + 1, FOREVER_MS)] if last.closed else []
    return NamespaceRecords(
        is_kept=True,
        complete=tuple(_complete(kept, coverage)),
        not_kept=(*not_kept, *after),
        is_running=any(ending_of(name, each, compacted.running) == "running" for name, each in kept.items()),
        read_ms=compacted.read_ms,
        processes=tuple(kept),
    )


def _complete(kept: dict[str, Process], coverage: StoreCoverage) -> list[Period]:
    """Periods without a hole. A namespace that closes and is back soon was down in between: nothing came."""
    if any(not each.process for each in coverage.missing):
        return []  # records of any process may be missing
    found: list[Period] = []
    closed_ms = -RESTART_MS
    for name, each in sorted(kept.items(), key=lambda item: item[1].first_ms):
        holes = sorted(Period(gap.since_ms, gap.until_ms) for gap in coverage.missing if gap.process == name)
        parts = list(_without(Period(each.first_ms, each.last_ms), holes))
        is_next = each.first_ms - closed_ms <= RESTART_MS and found and parts
        if is_next and found[-1].until_ms == closed_ms and parts[0].since_ms == each.first_ms:
            parts[0] = Period(found.pop().since_ms, parts[0].until_ms)
        found += parts
        closed_ms = each.last_ms if each.closed else -RESTART_MS
    return found


def _without(period: Period, holes: Sequence[Period]) -> Iterable[Period]:
    """What is left of a period; the holes are in order."""
    since_ms = period.since_ms
    for each in holes:
        if each.until_ms <= since_ms or each.since_ms >= period.until_ms:
            continue
        if each.since_ms > since_ms:
            yield Period(since_ms, each.since_ms)
        since_ms = max(since_ms, each.until_ms)
    if since_ms < period.until_ms:
        yield Period(since_ms, period.until_ms)
