"""Plots of the report: what stands beside what."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from twinbus.spark.report.plots import FRAMES, ROWS_MAX, PlotBar, columns, line, shares, timeline

LETTER = 7.0
"""Wider than a digit of the report's font."""
DAY_MS = 86_400_000
FIRST_MS = 1_741_528_800_000
SPANS = [60_000, 3_600_000, DAY_MS, 30 * DAY_MS, 4000 * DAY_MS]
ANCHOR = {"start": 0.0, "middle": 0.5, "end": 1.0}


def labels(svg: str) -> list[tuple[float, float, float, str]]:
    """(y, left, right, text) of all of them."""
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">([^<]*)</text>', svg)
    placed = []
    for x, y, anchor, text in found:
        left = float(x) - ANCHOR[anchor] * len(text) * LETTER
        placed.append((float(y), left, left + len(text) * LETTER, text))
    return sorted(placed)


@pytest.mark.parametrize("span_ms", SPANS)
@pytest.mark.parametrize("kind", ["timeline", "line", "columns"])
def test_no_label_of_a_plot_covers_another_or_leaves_the_plot(span_ms: int, kind: str) -> None:
    last_ms, points = FIRST_MS + span_ms, [(FIRST_MS, 1.0), (FIRST_MS + span_ms // 2, 123_456.0)]
    svg = {
        "timeline": timeline([PlotBar("orders", "out", FIRST_MS, None, "x")], FIRST_MS, last_ms),
        "line": line(points, FIRST_MS, last_ms),
        "columns": columns(points, FIRST_MS, last_ms, max(1, span_ms // 60)),
    }[kind]
    drawn = [f"<svg{each}" for each in svg.split("<svg")[1:]]
    for frame, each in zip(FRAMES, drawn, strict=True):
        placed = labels(each)
        assert len(placed) >= 2
        for (y, _, right, text), (next_y, left, _, next_text) in pairwise(placed):
            assert y != next_y or right < left, f"{text} covers {next_text}"
        assert all(left >= 0 and right <= frame.width for _, left, right, _ in placed)


@pytest.mark.parametrize("span_ms", [1, 1_000, 61_000, 3_599_000, 5_321_000, 17 * 3_600_000, 9 * DAY_MS, 4000 * DAY_MS])
def test_ticks_are_at_round_times(span_ms: int) -> None:
    first_ms = FIRST_MS - 31_000
    svg = timeline([PlotBar("orders", "out", first_ms, None, "x")], first_ms, first_ms + span_ms)
    for frame, each in zip(FRAMES, svg.split("<svg")[1:], strict=True):
        times = [text for *_, text in labels(each) if ":" in text]
        assert 1 <= len(times) <= frame.ticks + 1
        assert len(set(times)) == len(times) or span_ms > DAY_MS, times
        if span_ms > 61_000:
            assert all(re.fullmatch(r"\d\d:[0-5][05]", text) for text in times), times
            assert {text[3:] for text in times} <= {"00", "15", "30", "45"} or span_ms < 3_600_000, times


def test_the_value_of_a_column_has_the_digits_it_needs() -> None:
    points = [(FIRST_MS, 0.03333), (FIRST_MS + 1000, 0.0000123), (FIRST_MS + 2000, 12_345.6), (FIRST_MS + 3000, 12.34)]
    svg = columns(points, FIRST_MS, FIRST_MS + 4000, 1000)
    assert re.findall(r": ([\d.,]+)</title>", svg.split("<svg")[1]) == ["0.0333", "0.0000123", "12,346", "12.3"]


def test_a_timeline_says_how_many_rows_it_leaves_out() -> None:
    bars = [PlotBar(f"orders-{at}", "out", FIRST_MS, None, "x") for at in range(ROWS_MAX + 7)]
    assert "And 7 more" in timeline(bars, FIRST_MS, FIRST_MS + DAY_MS)
    assert "more" not in timeline(bars[:ROWS_MAX], FIRST_MS, FIRST_MS + DAY_MS)


def test_large_numbers_have_no_exponent() -> None:
    svg = line([(FIRST_MS, 2_400_000.0)], FIRST_MS, FIRST_MS + 60_000)
    assert "5,000,000" in svg
    assert "e+" not in svg


def test_a_share_has_its_unit_where_there_is_room() -> None:
    broad, narrow = shares([("pings", 12, "12")], "operations").split("<svg")[1:]
    assert "12 operations" in broad
    assert "operations<" not in narrow
