"""Clocks of different machines that disagree, as messages show that arrived before they left.

A little is ordinary, and the horizon is wider by that. More than a minute means that a clock is wrong. Then the horizon
stays as it is: wider by a day it would hide what was lost by others. What looks lost is unknown instead, and so is the
answer, until the clock is known: nobody can say who has overtaken whom.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from twinbus.ledger.endings import FOREVER_MS
from twinbus.spark.compaction.coverage import Coverage, Unknown

MINUTE_MS = 60_000
HEEDED_MS = 1_000
WRONG_MS = 60_000


class Heeded(NamedTuple):
    """What to judge by."""

    horizon_min: int
    dark_until_ms: int


def is_wrong(backwards_ms: int) -> bool:
    """Whether clocks disagree by more than any horizon should make up for."""
    return backwards_ms > WRONG_MS


def heeded(before: Heeded, backwards_ms: int) -> Heeded:
    """The same, minding that clocks disagree by so much."""
    if backwards_ms <= HEEDED_MS:
        return before
    if is_wrong(backwards_ms):
        return Heeded(before.horizon_min, FOREVER_MS)
    dark_until_ms = before.dark_until_ms + (backwards_ms if before.dark_until_ms else 0)
    return Heeded(before.horizon_min + -(-backwards_ms // MINUTE_MS), dark_until_ms)


def told(coverage: Coverage, backwards_ms: int) -> Coverage:
    """The same, with a word about a clock that is wrong."""
    if not is_wrong(backwards_ms):
        return coverage
    text = (
        f"messages arrived {backwards_ms / 1000:,.0f} s before they left: a clock is wrong, so nobody can say who has "
        "overtaken whom"
    )
    return replace(coverage, unknown=(*coverage.unknown, Unknown("", "clocks", None, 0, FOREVER_MS, text)))
