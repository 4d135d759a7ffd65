"""What of the state is new to a page: sections of rows are told row by row, others whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Section = Mapping[str, Any]
Sections = Mapping[str, Section]

ROWS = frozenset(
    (
        *("entities", "queues", "processes", "syphons", "quarantine", "spools", "proxies", "faults", "events"),
        *("history", "sources"),
    )
)
"""Sections that are rows by key; every other one is a value."""


def delta(before: Sections, after: Sections) -> dict[str, Any]:
    """What a page that has `before` lacks of `after`. Sections that are the same object cost nothing."""
    changes: dict[str, Any] = {}
    for name, now in after.items():
        then = before.get(name)
        if then is now:
            continue
        if name not in ROWS:
            if then != now:
                changes[name] = {"value": now}
            continue
        rows = {key: row for key, row in now.items() if then is None or then.get(key) != row}
        gone = [] if then is None else [key for key in then if key not in now]
        if rows or gone or then is None:
            changes[name] = {"rows": rows, "gone": gone}
    return changes
