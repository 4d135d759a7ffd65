"""Clocks: times that were wrong for a while are corrected, and processes that share a clock are found.

Each record has two times: UTC, which can be set, and a monotonic clock that is never set. The offset between them
changes only when UTC is set or the machine sleeps. Records whose offset differs for a while and then returns to what it
was were written while UTC was wrong: the monotonic clock gives their true time. A clock that stays wrong looks like one
that was corrected and is left alone.

Processes of one machine, since its last start, share one clock. The range of their offsets is how far it was set. If
the offsets were not measured, as in stores of older versions, the clock may have been set by anything: it proves
nothing and is shared with nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from twinbus.spark.compaction.manifest import Process

HEEDED_MS = 60_000
"""A smaller change is ordinary: horizons are much longer."""
STEADY_MS = 1_000
"""How far the offset may drift while the clock is wrong."""
FIRST_PLAUSIBLE_MS = 1_420_070_400_000
"""The start of 2015: the clock of an older record was never set."""
AHEAD_MS = 60_000
"""How much later than the moment it is read a record may be."""


class ClockRepair(NamedTuple):
    """What was corrected."""

    records: int = 0
    most_ms: int = 0
    """The largest error; negative: the clock was behind."""


def correct_times(table: Any) -> tuple[Any, ClockRepair]:
    """The records of one process, with correct times where the clock was wrong for a while."""
    if table["monotonic_us"].null_count or table["at_ms"].null_count or table.num_rows < 3:
        return table, ClockRepair()
    order = np.argsort(table["number"].to_numpy(), kind="stable")
    at_ms, monotonic_us = table["at_ms"].to_numpy()[order], table["monotonic_us"].to_numpy()[order]
    offset = at_ms - monotonic_us // 1000
    wrong = _wrong_for_a_while(offset, monotonic_us)
    if not wrong.any():
        return table, ClockRepair()
    last_good = np.maximum.accumulate(np.where(wrong, -1, np.arange(len(offset))))
    right = np.array(at_ms)
    right[wrong] = monotonic_us[wrong] // 1000 + offset[last_good[wrong]]
    error = (at_ms - right)[wrong]
    in_table_order = np.empty_like(right)
    in_table_order[order] = right
    corrected = table.set_column(table.column_names.index("at_ms"), "at_ms", pa.array(in_table_order))
    return corrected, ClockRepair(int(wrong.sum()), int(error[np.argmax(np.abs(error))]))


def clock_offsets(table: Any) -> list[int]:
    """The smallest and the largest offset between both clocks, in milliseconds; empty if a time is missing."""
    if not table.num_rows or table["monotonic_us"].null_count or table["at_ms"].null_count:
        return []
    found = table["at_ms"].to_numpy() - table["monotonic_us"].to_numpy() // 1000
    return [int(found.min()), int(found.max())]


def _wrong_for_a_while(offset: Any, monotonic_us: Any) -> Any:
    """Which records lie between two others that agree with each other, and not with them."""
    wrong = np.zeros(len(offset), bool)
    if (np.diff(monotonic_us) < 0).any():
        return wrong  # not the clock of one machine: it proves nothing
    breaks = np.flatnonzero(np.abs(np.diff(offset)) > HEEDED_MS)
    at = 0
    while at < len(breaks):
        left = breaks[at] + 1
        back = next((each for each in breaks[at + 1 :] if abs(offset[each + 1] - offset[left - 1]) <= STEADY_MS), None)
        if back is None:
            at += 1
        else:
            wrong[left : back + 1] = True
            at = int(np.searchsorted(breaks, back)) + 1
    return wrong


class ProcessClock(NamedTuple):
    process: str
    machine: str
    """The same for all processes that share the clock."""
    set_ms: int | None
    """The most it was set by; None: not measured."""
    is_primarys: bool = False
    """Whether the primary has the same clock."""
    is_secondarys: bool = False
    is_missing: bool = False
    """Whether records of this process may be missing, and it is not the primary."""
    is_missings: bool = False
    """Whether all processes whose records may be missing have the same clock."""


class ProcessClocks(NamedTuple):
    known: tuple[ProcessClock, ...] = ()
    primary_set_ms: int | None = 0
    secondary_set_ms: int | None = 0
    missing: int = 0
    """How many processes beside the primary may have missing records, known or not."""


def find_clocks(
    processes: Mapping[str, Process],
    primary: Collection[str],
    secondary: Collection[str],
    missing: Collection[str] = (),
) -> ProcessClocks:
    """The clocks of these processes.

    `primary` and `secondary` are the processes in which each kept its ledger, `missing` those with missing records.
    """
    machine = {name: each.boot if each.boot and each.clock.offsets else name for name, each in processes.items()}
    offsets: dict[str, list[int]] = {of: [] for of in machine.values()}
    for name, each in processes.items():
        offsets[machine[name]] += each.clock.offsets
    set_ms = {of: max(found) - min(found) if found else None for of, found in offsets.items()}
    ours, theirs, dark = ({machine.get(name, name) for name in names} for names in (primary, secondary, missing))
    beside = {*missing} - {*primary}
    known = (
        ProcessClock(name, of, set_ms[of], ours == {of}, theirs == {of}, name in beside, dark == {of})
        for name, of in machine.items()
    )
    primary_ms, secondary_ms = (_most(set_ms[of] for of in found) for found in (ours, theirs))
    return ProcessClocks(tuple(known), primary_ms, secondary_ms, len(beside))


def _most(set_ms: Iterable[int | None]) -> int | None:
    """The most that any of them was set by; None if one was not measured."""
    found = [*set_ms]
    return None if None in found else max((each for each in found if each is not None), default=0)
