"""When the primary kept no ledger. That it told nothing of a message of such a time means nothing.

A ledger may be kept from some day on, or not for a while. A namespace that was killed is another matter: what it
acknowledged and did not tell of is what one looks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twinbus.spark.compaction.manifest import Process
from twinbus.spark.compaction.primaries import different

SHORT_MS = 60_000
"""A restart: nobody runs a namespace without its ledger for so little time."""


class Stretch(NamedTuple):
    since_ms: int
    until_ms: int


def untold(processes: Iterable[Process]) -> tuple[Stretch, ...]:
    """When messages may have come to the primary that it was not asked to tell of."""
    known = list(processes)
    primaries = {name.casefold() for name in different(name for process in known for name in process.primaries)}
    return when_not_kept(each for each in known if _tells(each, primaries))


def when_not_kept(processes: Iterable[Process]) -> tuple[Stretch, ...]:
    """When a namespace kept no ledger, by the processes in which it kept one: before the first, and between them."""
    kept = sorted(processes, key=lambda each: each.first_ms)
    if not kept:
        return ()  # it never told of anything: nothing follows from its silence anyway
    found, last = [Stretch(0, kept[0].first_ms)], kept[0]
    for each in kept[1:]:
        if last.closed and each.first_ms - last.last_ms > SHORT_MS:
            found.append(Stretch(last.last_ms, each.first_ms))
        last = each if each.last_ms >= last.last_ms else last
    return tuple(found)


def _tells(process: Process, primaries: set[str]) -> bool:
    """Whether this is a primary with a ledger; as long as nobody has named any, every namespace is one."""
    is_asked = not primaries or process.program.casefold() in primaries
    return is_asked and "namespace" in process.roles and process.first_ms > 0
