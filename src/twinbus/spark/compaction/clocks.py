"""Clocks that go wrong for a while, put right by the other clock of the same records.

Each record has two times: UTC, which somebody may set, and a clock of the machine that is never set. Between them lies
an offset that changes only when the clock is set, or the machine sleeps. Records whose offset is another for a while,
and then what it was before, were written while the clock was wrong: by the other clock one knows when that really was.
A clock that stays wrong cannot be told from one that was put right, and is left alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

HEEDED_MS = 60_000
"""Less than that is ordinary: horizons are much longer."""
STEADY_MS = 1_000
"""By how much the offset may drift between one end of a wrong time and the other."""
FIRST_PLAUSIBLE_MS = 1_420_070_400_000
"""The start of 2015: whatever claims to be older has a clock that nobody set."""
AHEAD_MS = 60_000
"""By how much a record may be later than the moment it is read."""


class Wrong(NamedTuple):
    """What was put right."""

    records: int = 0
    most_ms: int = 0
    """By how much the clock was wrong, at most; negative: behind."""


def put_right(table: Any) -> tuple[Any, Wrong]:
    """The records of one process with their times put right where the clock was wrong for a while."""
    if table["monotonic_us"].null_count or table["at_ms"].null_count or table.num_rows < 3:
        return table, Wrong()
    order = np.argsort(table["number"].to_numpy(), kind="stable")
    at_ms, monotonic_us = table["at_ms"].to_numpy()[order], table["monotonic_us"].to_numpy()[order]
    offset = at_ms - monotonic_us // 1000
    wrong = _wrong_for_a_while(offset, monotonic_us)
    if not wrong.any():
        return table, Wrong()
    good = np.where(wrong, -1, np.arange(len(offset)))
    before = np.maximum.accumulate(good)
    right = np.array(at_ms)
    right[wrong] = monotonic_us[wrong] // 1000 + offset[before[wrong]]
    error = (at_ms - right)[wrong]
    put = np.empty_like(right)
    put[order] = right
    column = table.column_names.index("at_ms")
    return table.set_column(column, "at_ms", pa.array(put)), Wrong(
        int(wrong.sum()), int(error[np.argmax(np.abs(error))])
    )


def offsets(table: Any) -> list[int]:
    """The smallest and the largest offset between both clocks, in milliseconds; empty if nothing tells."""
    if not table.num_rows or table["monotonic_us"].null_count or table["at_ms"].null_count:
        return []
    found = table["at_ms"].to_numpy() - table["monotonic_us"].to_numpy() // 1000
    return [int(found.min()), int(found.max())]


def _wrong_for_a_while(offset: Any, monotonic_us: Any) -> Any:
    """Which records lie between two others that agree with each other, and not with them."""
    wrong = np.zeros(len(offset), bool)
    if (np.diff(monotonic_us) < 0).any():
        return wrong  # not one machine's clock: nothing follows from it
    breaks = np.flatnonzero(np.abs(np.diff(offset)) > HEEDED_MS)
    level, at = offset[0], 0
    while at < len(breaks):
        left = breaks[at] + 1
        level = offset[left - 1]
        back = next((each for each in breaks[at + 1 :] if abs(offset[each + 1] - level) <= STEADY_MS), None)
        if back is None:
            at += 1
        else:
            wrong[left : back + 1] = True
            at = int(np.searchsorted(breaks, back)) + 1
    return wrong
