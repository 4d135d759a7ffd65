"""For how long anything was out in a month, whichever entity it was."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

HOUR_MS = 3_600_000


def hours_out(month: str, outages: list[dict[str, Any]], last_ms: int) -> float:
    """Hours of `month`, as 2025-03, in which at least one entity was out. One that is still out was so until
    `last_ms`.
    """
    begin_ms, end_ms = _month(month)
    spans = sorted(
        (
            max(row["suspected_ms"], begin_ms),
            min(last_ms if row["recovered_ms"] is None else row["recovered_ms"], end_ms),
        )
        for row in outages
    )
    total_ms, until_ms = 0, begin_ms
    for since_ms, till_ms in spans:
        total_ms += max(0, till_ms - max(since_ms, until_ms))
        until_ms = max(until_ms, till_ms)
    return total_ms / HOUR_MS


def _month(month: str) -> tuple[int, int]:
    """When it begins and ends."""
    year, number = map(int, month.split("-"))
    begin = datetime(year, number, 1, tzinfo=UTC)
    last_of_all = datetime.max.replace(tzinfo=UTC)
    is_last = (year, number) == (last_of_all.year, last_of_all.month)
    end = last_of_all if is_last else datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
    return round(begin.timestamp() * 1000), round(end.timestamp() * 1000)
