"""Lengths of time as people write them."""

from __future__ import annotations

from datetime import timedelta

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


def in_words(length: timedelta) -> str:
    """Exact to the millisecond, in at most as many words as needed: "0 s", "200 ms", "1 min 30 s", "-2 h"."""
    left = round(abs(length) / timedelta(milliseconds=1))
    words = []
    for unit_ms, unit in _UNITS:
        count, left = divmod(left, unit_ms)
        if count:
            words.append(f"{count} {unit}")
    return ("-" if length < timedelta(0) and words else "") + (" ".join(words) or "0 s")


def roughly(seconds: float) -> str:
    """The two largest units at most, whole seconds: what a glance at a table needs."""
    return " ".join(in_words(timedelta(seconds=round(seconds))).split(" ")[:4])
