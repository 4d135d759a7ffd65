"""Who kept a ledger in a window of time. A silence proves nothing, unless it is proven that the silent one was idle.

A process keeps its ledger from its first record on: until it closed it, if it runs, until now, or until it was last
seen alive while nothing waited to be written. Its records have consecutive numbers, so in that time it was idle where
it has none. Nobody knows what happened outside: perhaps its program ran again, with a ledger elsewhere.

So an expected writer without such a time in the window is absent there, and its records may be missing. Presence for a
part of the window is enough, as in a report of everything: what starts each hour is gone in between. Only a window
without any message needs more: then somebody who accepts or stores messages must have kept a ledger in all of it.

A syphon is different: it accepts and stores nothing, and one that had nothing to bring home may not have been started.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from twinbus.ledger.upkeep.expected import EXPECTED_FILE, ExpectedWriter, absent
from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.compaction.coverage import MissingRecords, StoreCoverage
from twinbus.spark.compaction.namespace_records import RESTART_MS
from twinbus.spark.transforms.selection import LedgerSelection
from twinbus.units import clock_time_or_ms


class LedgerPresence(msgspec.Struct):
    """A time in which a process kept its ledger."""

    host: str
    program: str
    first_ms: int
    last_ms: int
    roles: tuple[str, ...]

    @property
    def takes_messages(self) -> bool:
        """Whether it may accept or store messages, as far as its records tell."""
        return not self.roles or not {"client", "namespace"}.isdisjoint(self.roles)


def find_presences(compacted: CompactedLedger) -> list[LedgerPresence]:
    found = []
    for name, each in compacted.manifest.processes.items():
        last_ms = each.last_ms
        if each.closed:
            pass
        elif name in compacted.running:
            last_ms = max(last_ms, compacted.read_ms)
        elif each.end is not None and each.end.is_complete:
            last_ms = max(last_ms, each.end.until_ms)
        found.append(LedgerPresence(each.host, each.program, each.first_ms, last_ms, tuple(each.roles)))
    return found


def with_absent_in_window(
    coverage: StoreCoverage, compacted: CompactedLedger, window: LedgerSelection
) -> StoreCoverage:
    """The same coverage; whoever is absent in the window counts as missing, unless it is missing already."""
    if not window.has_window or not compacted.manifest.processes:
        return coverage
    present = find_presences(compacted)
    missing = [*coverage.missing]
    if not any(window.overlaps(each.first_ms, each.last_ms) for each in present):
        text = f"no record is from this time{_nearest(window, present, 'the')}"
        missing.append(MissingRecords("", "all processes", None, window.begin_ms, window.end_ms, text))
    missing += [gap for writer in compacted.expected for gap in _of_writer(writer, window, present)]
    return replace(coverage, missing=tuple(missing))


def _of_writer(
    writer: ExpectedWriter, window: LedgerSelection, present: list[LedgerPresence]
) -> Iterator[MissingRecords]:
    seen = [each for each in present if writer.is_called(each.host, each.program)]
    since_ms, until_ms = max(writer.since_ms, window.begin_ms), min(writer.until_ms, window.end_ms - 1)
    part = msgspec.structs.replace(writer, since_ms=since_ms, until_ms=until_ms)
    if since_ms > until_ms or absent([writer], seen) or not absent([part], seen):
        return
    if any(each.takes_messages for each in seen):
        text = f"{EXPECTED_FILE} expects {writer}, and no record of this time is from it{_nearest(window, seen, 'its')}"
        accepts = any(not each.roles or "client" in each.roles for each in seen)
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

    A window without a beginning begins with the ledger.
    """
    takers = sorted((each for each in present if each.takes_messages), key=lambda each: each.first_ms)
    end_ms = min(window.end_ms, now_ms)
    upto_ms = min((each.first_ms for each in takers), default=0) if window.since_ms is None else window.since_ms
    for each in takers:
        if each.first_ms > upto_ms + RESTART_MS:
            break
        upto_ms = max(upto_ms, each.last_ms)
    later_ms = min((each.first_ms for each in takers if each.first_ms > upto_ms), default=end_ms)
    return (upto_ms, min(later_ms, end_ms)) if upto_ms + RESTART_MS < end_ms else None
