"""Which processes share a clock, and whose clock was set while they ran.

Processes of the same machine, since its last start, have one clock. Each record has two times: UTC, which somebody may
set, and a clock that is never set. By how much the offset between them changes is by how much the clock was set, or the
machine slept. If nobody looked at that, as where an older version read the records, the clock may have been set by
anything: then it proves nothing, and is shared with nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from twinbus.spark.compaction.manifest import Process


class Clock(NamedTuple):
    """The clock of one process."""

    process: str
    machine: str
    """The same for all processes that share it."""
    set_ms: int | None
    """By how much it was set, at most; None: nobody looked."""
    is_primarys: bool = False
    """Whether the primary has the same clock."""
    is_secondarys: bool = False
    is_missing: bool = False
    """Whether records of this process may be missing, and it is not the primary."""
    is_missings: bool = False
    """Whether all of whom records may be missing have the same clock."""


class Clocks(NamedTuple):
    """The clocks of all processes."""

    known: tuple[Clock, ...] = ()
    primary_set_ms: int | None = 0
    secondary_set_ms: int | None = 0
    missing: int = 0
    """How many there are, beside the primary, of whom records may be missing, known or not."""


def clocks_of(
    processes: Mapping[str, Process],
    primary: Collection[str],
    secondary: Collection[str],
    missing: Collection[str] = (),
) -> Clocks:
    """The clocks of these processes; `primary` and `secondary` are those in which each kept its ledger, `missing` those
    of whom records may be missing.
    """
    machine = {name: each.boot if each.boot and each.clock.offsets else name for name, each in processes.items()}
    set_ms = _set_ms(processes, machine)
    homes, others, dark = ({machine.get(name, name) for name in names} for names in (primary, secondary, missing))
    beside = {*missing} - {*primary}
    known = (
        Clock(name, of, set_ms[of], homes == {of}, others == {of}, name in beside, dark == {of})
        for name, of in machine.items()
    )
    primary_ms, secondary_ms = (_most(set_ms[of] for of in found) for found in (homes, others))
    return Clocks(tuple(known), primary_ms, secondary_ms, len(beside))


def _set_ms(processes: Mapping[str, Process], machine: Mapping[str, str]) -> dict[str, int | None]:
    offsets: dict[str, list[int]] = {of: [] for of in machine.values()}
    for name, each in processes.items():
        offsets[machine[name]] += each.clock.offsets
    return {of: max(found) - min(found) if found else None for of, found in offsets.items()}


def _most(set_ms: Iterable[int | None]) -> int | None:
    """The most that any of them was set; None if nobody looked at one of them."""
    found = [*set_ms]
    known = [each for each in found if each is not None]
    return max(known, default=0) if len(known) == len(found) else None
