"""Hours of outages in a month: overlaps once, only what is within the month."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.spark.jobs.findings import HOUR_MS, hours_out

MARCH_MS = 1_740_787_200_000
DAY = 24


def outage(begin_h: int, end_h: int | None) -> dict[str, Any]:
    end_ms = None if end_h is None else MARCH_MS + end_h * HOUR_MS
    return {"suspected_ms": MARCH_MS + begin_h * HOUR_MS, "recovered_ms": end_ms}


@pytest.mark.parametrize(
    ("outages", "hours"),
    [
        ([], 0),
        ([outage(1, 3), outage(2, 4), outage(10, 11)], 4),
        ([outage(1, 9), outage(2, 4)], 8),
        ([outage(-5, 2)], 2),
        ([outage(31 * DAY - 1, 31 * DAY + 9)], 1),
        ([outage(40 * DAY, 41 * DAY)], 0),
        ([outage(5, None)], 15),
    ],
)
def test_hours_are_those_in_which_anything_was_out(outages: list[dict[str, Any]], hours: float) -> None:
    assert hours_out("2025-03", outages, MARCH_MS + 20 * HOUR_MS) == hours


def test_the_last_month_of_all_has_an_end() -> None:
    assert hours_out("9999-12", [outage(0, 1)], 0) == 0
