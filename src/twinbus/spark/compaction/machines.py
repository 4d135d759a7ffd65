"""Which processes share a clock, and whose clock was set while they ran.

Processes of the same machine, since its last start, have one clock. Each record has two times: UTC, which somebody may
set, and a clock that is never set. By how much the offset between them changes is by how much the clock was set, or the
machine slept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from twinbus.spark.compaction.manifest import Process


class Clock(NamedTuple):
    """The clock of one process."""

    process: str
    machine: str
    """The same for all processes that share it."""
    set_ms: int
    """By how much it was set, at most."""
    is_primarys: bool
    """Whether the primary has the same clock."""
    is_secondarys: bool


class Clocks(NamedTuple):
    """The clocks of all processes."""

    known: tuple[Clock, ...] = ()
    primary_set_ms: int = 0
    secondary_set_ms: int = 0


def clocks_of(processes: Mapping[str, Process], primary: Collection[str], secondary: Collection[str]) -> Clocks:
    """The clocks of these processes; `primary` and `secondary` are those in which each kept its ledger."""
    machine = {name: each.boot or name for name, each in processes.items()}
    set_ms = _set_ms(processes, machine)
    homes, others = ({machine[name] for name in names} for names in (primary, secondary))
    known = (
        Clock(name, of, set_ms[of], is_primarys=homes == {of}, is_secondarys=others == {of})
        for name, of in machine.items()
    )
    primary_ms, secondary_ms = (max((set_ms[of] for of in found), default=0) for found in (homes, others))
    return Clocks(tuple(known), primary_ms, secondary_ms)


def _set_ms(processes: Mapping[str, Process], machine: Mapping[str, str]) -> dict[str, int]:
    offsets: dict[str, list[int]] = {of: [] for of in machine.values()}
    for name, each in processes.items():
        offsets[machine[name]] += each.clock.offsets
    return {of: max(found) - min(found) if found else 0 for of, found in offsets.items()}
