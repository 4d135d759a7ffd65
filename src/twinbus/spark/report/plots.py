"""Plots as SVG, drawn by hand: a timeline, a line, bars. No script, no font, no network."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import NamedTuple

from twinbus.plain_text import in_html
from twinbus.units import clock_time_or_ms

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 150, 36, 8, 40
INNER = WIDTH - LEFT - RIGHT
TICKS = 6
ROWS_MAX = 60


class PlotBar(NamedTuple):
    """A stretch of time in a row of a timeline; `end_ms` None: it goes on."""

    row: str
    kind: str
    begin_ms: int
    end_ms: int | None
    title: str


def timeline(bars: Sequence[PlotBar], first_ms: int, last_ms: int) -> str:
    """A row for each name, in the order in which they come."""
    rows = list(dict.fromkeys(bar.row for bar in bars))[:ROWS_MAX]
    height = TOP + 24 * len(rows) + BOTTOM
    across = _Axis(first_ms, last_ms)
    shapes = [across.draw(height)]
    for at, row in enumerate(rows):
        y = TOP + 24 * at
        shapes.append(_text(LEFT - 8, y + 16, row if len(row) <= 22 else row[:21] + "…", "end"))
        shapes += [_bar(bar, across, y, last_ms) for bar in bars if bar.row == row]
    return _svg("outages over time", height, shapes)


def _bar(bar: PlotBar, across: _Axis, y: int, last_ms: int) -> str:
    begin, end = across.at(bar.begin_ms), across.at(last_ms if bar.end_ms is None else bar.end_ms)
    shape = f'<rect class="{bar.kind}" x="{begin:.1f}" y="{y + 4}" width="{max(end - begin, 2):.1f}" height="16">'
    return f"{shape}<title>{in_html(bar.title)}</title></rect>"


def line(points: Sequence[tuple[int, float]], first_ms: int, last_ms: int) -> str:
    """A value over time; it stays as it is until the next point."""
    height = 200
    across, up = _Axis(first_ms, last_ms), _Scale(max((value for _, value in points), default=0), height)
    path: list[str] = []
    level = up.at(0)
    for at_ms, value in points:
        x = across.at(at_ms)
        path.append(f"{x:.1f},{level:.1f}")
        level = up.at(value)
        path.append(f"{x:.1f},{level:.1f}")
    path.append(f"{across.at(last_ms):.1f},{level:.1f}")
    ground = f"{LEFT},{up.at(0):.1f} {' '.join(path)} {across.at(last_ms):.1f},{up.at(0):.1f}"
    shapes = [across.draw(height), up.draw(), f'<polygon class="area" points="{ground}"/>']
    return _svg("messages over time", height, [*shapes, f'<polyline class="line" points="{" ".join(path)}"/>'])


def columns(points: Sequence[tuple[int, float]], first_ms: int, last_ms: int, bucket_ms: int) -> str:
    """A value for each stretch of time."""
    height = 200
    across, up = _Axis(first_ms, last_ms), _Scale(max((value for _, value in points), default=0), height)
    width = max(1.0, across.at(first_ms + bucket_ms) - across.at(first_ms) - 0.5)
    shapes = [across.draw(height), up.draw()]
    for at_ms, value in points:
        if value:
            x, y = max(across.at(at_ms), LEFT), up.at(value)
            title = in_html(f"{clock_time_or_ms(at_ms)}: {value:,.1f}")
            size = f'width="{width:.1f}" height="{up.at(0) - y:.1f}"'
            shapes.append(f'<rect class="column" x="{x:.1f}" y="{y:.1f}" {size}><title>{title}</title></rect>')
    return _svg("messages a second over time", height, shapes)


def shares(values: Sequence[tuple[str, float, str]]) -> str:
    """A bar for each name with its value as text."""
    height = TOP + 22 * len(values) + 4
    most = max((value for _, value, _ in values), default=0) or 1
    shapes = []
    for at, (name, value, text) in enumerate(values):
        y = TOP + 22 * at
        width = (INNER - 130) * value / most
        shapes.append(_text(LEFT - 8, y + 14, name, "end"))
        shapes.append(f'<rect class="column" x="{LEFT}" y="{y + 2}" width="{max(width, 1):.1f}" height="16"/>')
        shapes.append(_text(LEFT + width + 6, y + 14, text))
    return _svg("operations by stage", height, shapes)


class _Axis:
    """Time from left to right."""

    def __init__(self, first_ms: int, last_ms: int) -> None:
        self._first, self._span = first_ms, max(last_ms - first_ms, 1)

    def at(self, at_ms: float) -> float:
        return LEFT + INNER * min(max((at_ms - self._first) / self._span, 0.0), 1.0)

    def draw(self, height: int) -> str:
        """Lines with the time of day below, and below that the day where another one begins."""
        shapes, day_before = [], ""
        for tick in range(TICKS + 1):
            x = LEFT + INNER * tick / TICKS
            shapes.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{height - BOTTOM}"/>')
            at_ms = round(self._first + self._span * tick / TICKS)
            day, _, time = clock_time_or_ms(at_ms, seconds=self._span < 600_000).partition(" ")
            shapes.append(_text(x, height - 24, time, "middle"))
            if day != day_before:
                shapes.append(_text(x, height - 9, day, "middle"))
                day_before = day
        return "".join(shapes)


class _Scale:
    """Values from the bottom up, to a round number."""

    def __init__(self, most: float, height: int) -> None:
        self._top = _round_up(most)
        self._bottom = height - BOTTOM

    def at(self, value: float) -> float:
        return self._bottom - (self._bottom - TOP) * value / self._top

    def draw(self) -> str:
        shapes = []
        for part in (0, 0.5, 1):
            y = self.at(self._top * part)
            shapes.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
            shapes.append(_text(LEFT - 8, y + 4, f"{self._top * part:,g}", "end"))
        return "".join(shapes)


def _round_up(value: float) -> float:
    """The next 1, 2 or 5 with zeros behind it."""
    if value <= 0:
        return 1
    size: float = 10 ** floor(log10(value))
    return next(step * size for step in (1, 2, 5, 10) if step * size >= ceil(value * 1000) / 1000 or step == 10)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{in_html(text)}</text>'


def _svg(label: str, height: int, shapes: Sequence[str]) -> str:
    """In a box that can be moved sideways where the page is narrow: a plot that shrinks cannot be read."""
    drawn = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{"".join(shapes)}</svg>'
    return f'<div class="wide">{drawn}</div>'
