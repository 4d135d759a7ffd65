"""Who kept a ledger in a window of time. A silence proves nothing, unless it is proven that the silent one was idle.

A process keeps its ledger from its first record on: until it closed it; until now, if it runs and can write; or until
it was last seen alive while nothing waited to be written. Its records have consecutive numbers, so it was idle where
it has none. Nobody knows what happened outside: perhaps its program ran again, with a ledger elsewhere.

So an expected writer without such a time in the window is absent there, and its records may be missing. Presence for a
part of the window is enough, as in a report of everything: what starts each hour is gone in between. Only a window
without any message needs more: then somebody who accepts or stores messages must have kept a ledger in all of it.

A syphon is different: it accepts and stores nothing, and one that had nothing to bring home may not have been started.
So its absence matters only for messages that look lost: it may have brought them home.

At a URL a segment arrives some time after it was written. A closed process may have a successor of which nothing is
there yet. So an expected writer has to be present to the end of a window that ends less than an hour ago.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from twinbus.ledger.upkeep.expected import EXPECTED_FILE, ExpectedWriter, absent
from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.compaction.coverage import LedgerPresence, MissingRecords, StoreCoverage, find_presences
from twinbus.spark.compaction.namespace_records import RESTART_MS
from twinbus.spark.transforms.selection import LedgerSelection
from twinbus.units import clock_time_or_ms

ARRIVAL_MS = 3_600_000
"""How long segments may take to a URL: they are finished first, every quarter of an hour if something is recorded."""
PAUSES_SHARE_MAX = 0.01
"""How much of a window without a message may be restarts."""


def with_absent_in_window(
    coverage: StoreCoverage, compacted: CompactedLedger, window: LedgerSelection
) -> StoreCoverage:
    """The same coverage; whoever is absent in the window counts as missing, unless it is missing already.

    It is about certainty. What the records of others prove, they prove all the same: see `find_evidence`.
    """
    if not window.has_window or not compacted.manifest.processes:
        return coverage
    present = find_presences(compacted)
    missing = [*coverage.missing]
    if not any(window.overlaps(each.first_ms, each.last_ms) for each in present):
        text = f"no record is from this time{_nearest(window, present, 'the')}"
        missing.append(MissingRecords("", "all processes", None, window.begin_ms, window.end_ms, text))
    late = None if compacted.has_locks else compacted.read_ms
    missing += [gap for writer in compacted.expected for gap in _of_writer(writer, window, present, late)]
    return replace(coverage, missing=tuple(missing), unkept=unkept_time(window, present, compacted.read_ms))


def _of_writer(
    writer: ExpectedWriter, window: LedgerSelection, present: list[LedgerPresence], read_ms: int | None
) -> Iterator[MissingRecords]:
    """`read_ms` is when segments that arrive late were read; None: none does."""
    seen = [each for each in present if writer.is_called(each.host, each.program)]
    since_ms, until_ms = max(writer.since_ms, window.begin_ms), min(writer.until_ms, window.end_ms - 1)
    part = msgspec.structs.replace(writer, since_ms=since_ms, until_ms=until_ms)
    if since_ms > until_ms or absent([writer], seen):
        return
    text = f"{EXPECTED_FILE} expects {writer}, and no record of this time is from it{_nearest(window, seen, 'its')}"
    if not absent([part], seen):
        if read_ms is None:
            return
        last_ms, end_ms = max(each.last_ms for each in seen), min(until_ms, read_ms)
        if end_ms <= read_ms - ARRIVAL_MS or last_ms + RESTART_MS >= end_ms:
            return
        text = (
            f"the last record of {writer} is from {clock_time_or_ms(last_ms)} UTC; later ones may not have arrived "
            "yet: let the window end an hour ago (--until 1h)"
        )
        since_ms = max(since_ms, last_ms)
    # One process of a syphon may have been idle, and another one shows what it is. What a namespace took from those
    # who keep no ledger, only its own tells; so without it, "all is accounted for" is about the others.
    accepts = {role for each in seen for role in each.roles} != {"syphon"}
    yield MissingRecords("", f"{writer}", None, since_ms, until_ms + 1, text, hides_accepted=accepts)


def _nearest(window: LedgerSelection, present: Iterable[LedgerPresence], whose: str) -> str:
    """When the last record before the window is from, or else the first one after it."""
    moments = [moment for each in present for moment in (each.first_ms, each.last_ms) if moment]
    before = [moment for moment in moments if moment < window.begin_ms]
    if before:
        return f"; {whose} last one is from {clock_time_or_ms(max(before))} UTC"
    return f"; {whose} first one is from {clock_time_or_ms(min(moments))} UTC" if moments else ""


def unkept_time(window: LedgerSelection, present: Iterable[LedgerPresence], now_ms: int) -> tuple[int, int] | None:
    """The first part of a window, up to now, in which nobody who takes messages kept a ledger; None: there is none.

    A window without a beginning begins with the ledger. Restarts do not count, unless they are many.
    """
    takers = sorted((each for each in present if each.takes_messages), key=lambda each: each.first_ms)
    end_ms = min(window.end_ms, now_ms)
    upto_ms = min((each.first_ms for each in takers), default=0) if window.since_ms is None else window.since_ms
    pauses_ms = max(RESTART_MS, round((end_ms - upto_ms) * PAUSES_SHARE_MAX))
    for each in takers:
        pause_ms = max(0, each.first_ms - upto_ms)
        if pause_ms > min(RESTART_MS, pauses_ms):
            break
        pauses_ms -= pause_ms
        upto_ms = max(upto_ms, each.last_ms)
    later_ms = min((each.first_ms for each in takers if each.first_ms > upto_ms), default=end_ms)
    return (upto_ms, min(later_ms, end_ms)) if upto_ms + RESTART_MS < end_ms else None
