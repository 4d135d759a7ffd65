"""Plots as SVG, drawn by hand: a timeline, a line, bars. No script, no font, no network.

Each plot is drawn twice, for wide screens and for phones; the style of the page shows one of them. One picture for both
would have to shrink, with letters that nobody can read, or be moved sideways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, log10
from typing import NamedTuple

from twinbus.plain_text import in_html
from twinbus.units import clock_time_or_ms

TOP, BOTTOM = 8, 46
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
STEPS = (
    *(count * SECOND for count in (1, 2, 5, 10, 15, 30)),
    *(count * MINUTE for count in (1, 5, 10, 15, 30)),
    *(count * HOUR for count in (1, 2, 3, 6, 12)),
    *(DAY << at for at in range(24)),
)
"""Round stretches of time between the ticks of an axis."""
ROWS_MAX = 60


class PlotFrame(NamedTuple):
    """The size of a plot."""

    name: str
    width: int
    left: int
    right: int
    ticks: int
    label_max: int
    """How many letters fit to the left."""
    value_max: int
    """How much room a value needs to the right of its bar."""

    @property
    def inner(self) -> int:
        return self.width - self.left - self.right


FRAMES = (PlotFrame("broad", 960, 150, 36, 6, 22, 130), PlotFrame("narrow", 358, 152, 38, 2, 20, 40))


class PlotBar(NamedTuple):
    """A stretch of time in a row of a timeline; `end_ms` None: it goes on."""

    row: str
    kind: str
    begin_ms: int
    end_ms: int | None
    title: str


def timeline(bars: Sequence[PlotBar], first_ms: int, last_ms: int) -> str:
    """A row for each name, in the order in which they come; below the last one, how many more there are."""
    names = list(dict.fromkeys(bar.row for bar in bars))
    rows, more = names[:ROWS_MAX], len(names) - ROWS_MAX
    height = TOP + 24 * len(rows) + BOTTOM

    def draw(frame: PlotFrame) -> list[str]:
        across = _Axis(first_ms, last_ms, frame)
        shapes = [across.draw(height)]
        for at, row in enumerate(rows):
            y = TOP + 24 * at
            shapes.append(_label(frame, y + 16, row))
            shapes += [_bar(bar, across, y, last_ms) for bar in bars if bar.row == row]
        return shapes

    return _svgs("outages over time", height, draw) + (f"<p>And {more:,} more.</p>" if more > 0 else "")


def _label(frame: PlotFrame, y: float, name: str) -> str:
    shown = name if len(name) <= frame.label_max else name[: frame.label_max - 1] + "…"
    return _text(frame.left - 8, y, shown, "end")


def _bar(bar: PlotBar, across: _Axis, y: int, last_ms: int) -> str:
    begin, end = across.at(bar.begin_ms), across.at(last_ms if bar.end_ms is None else bar.end_ms)
    shape = f'<rect class="{bar.kind}" x="{begin:.1f}" y="{y + 4}" width="{max(end - begin, 2):.1f}" height="16">'
    return f"{shape}<title>{in_html(bar.title)}</title></rect>"


def line(points: Sequence[tuple[int, float]], first_ms: int, last_ms: int) -> str:
    """A value over time; it stays as it is until the next point."""
    height = 200

    def draw(frame: PlotFrame) -> list[str]:
        across = _Axis(first_ms, last_ms, frame)
        up = _Scale(max((value for _, value in points), default=0), height, frame)
        path: list[str] = []
        level = up.at(0)
        for at_ms, value in points:
            x = across.at(at_ms)
            path.append(f"{x:.1f},{level:.1f}")
            level = up.at(value)
            path.append(f"{x:.1f},{level:.1f}")
        path.append(f"{across.at(last_ms):.1f},{level:.1f}")
        ground = f"{frame.left},{up.at(0):.1f} {' '.join(path)} {across.at(last_ms):.1f},{up.at(0):.1f}"
        area = f'<polygon class="area" points="{ground}"/>'
        return [across.draw(height), up.draw(), area, f'<polyline class="line" points="{" ".join(path)}"/>']

    return _svgs("messages over time", height, draw)


def columns(points: Sequence[tuple[int, float]], first_ms: int, last_ms: int, bucket_ms: int) -> str:
    """A value for each stretch of time."""
    height = 200

    def draw(frame: PlotFrame) -> list[str]:
        across = _Axis(first_ms, last_ms, frame)
        up = _Scale(max((value for _, value in points), default=0), height, frame)
        width = max(1.0, across.at(first_ms + bucket_ms) - across.at(first_ms) - 0.5)
        shapes = [across.draw(height), up.draw()]
        for at_ms, value in points:
            if value:
                x, y = max(across.at(at_ms), frame.left), up.at(value)
                title = in_html(f"{clock_time_or_ms(at_ms)}: {_number(value)}")
                size = f'width="{width:.1f}" height="{up.at(0) - y:.1f}"'
                shapes.append(f'<rect class="column" x="{x:.1f}" y="{y:.1f}" {size}><title>{title}</title></rect>')
        return shapes

    return _svgs("messages a second over time", height, draw)


def shares(values: Sequence[tuple[str, float, str]], unit: str) -> str:
    """A bar for each name with its value as text, and the unit where there is room for it."""
    height = TOP + 22 * len(values) + 4
    most = max((value for _, value, _ in values), default=0) or 1

    def draw(frame: PlotFrame) -> list[str]:
        shapes = []
        for at, (name, value, text) in enumerate(values):
            y = TOP + 22 * at
            width = (frame.inner - frame.value_max) * value / most
            shapes.append(_text(frame.left - 8, y + 14, name, "end"))
            shapes.append(
                f'<rect class="column" x="{frame.left}" y="{y + 2}" width="{max(width, 1):.1f}" height="16"/>'
            )
            beside = f"{text} {unit}" if frame is FRAMES[0] else text
            shapes.append(_text(frame.left + width + 6, y + 14, beside))
        return shapes

    return _svgs("operations by stage", height, draw)


class _Axis:
    """Time from left to right."""

    def __init__(self, first_ms: int, last_ms: int, frame: PlotFrame) -> None:
        self._first, self._span, self._frame = first_ms, max(last_ms - first_ms, 1), frame

    def at(self, at_ms: float) -> float:
        return self._frame.left + self._frame.inner * min(max((at_ms - self._first) / self._span, 0.0), 1.0)

    def draw(self, height: int) -> str:
        """Lines at round times, with the time of day below, and below that the day where another one begins."""
        shapes, day_before = [], ""
        step = next((each for each in STEPS if self._span <= each * self._frame.ticks), STEPS[-1])
        start = -(-self._first // step) * step
        for at_ms in range(start, self._first + self._span + 1, step) or (self._first,):
            x = self.at(at_ms)
            shapes.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{height - BOTTOM}"/>')
            day, _, time = clock_time_or_ms(at_ms, seconds=step < MINUTE).partition(" ")
            shapes.append(_text(x, height - 27, time, "middle"))
            if day != day_before:
                shapes.append(_text(x, height - 11, day, "middle"))
                day_before = day
        return "".join(shapes)


class _Scale:
    """Values from the bottom up, to a round number."""

    def __init__(self, most: float, height: int, frame: PlotFrame) -> None:
        self._top = _round_up(most)
        self._bottom = height - BOTTOM
        self._frame = frame

    def at(self, value: float) -> float:
        return self._bottom - (self._bottom - TOP) * value / self._top

    def draw(self) -> str:
        shapes = []
        left, right = self._frame.left, self._frame.width - self._frame.right
        for part in (0, 0.5, 1):
            y = self.at(self._top * part)
            shapes.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
            shapes.append(_text(left - 8, y + 4, _number(self._top * part), "end"))
        return "".join(shapes)


def _number(value: float) -> str:
    """Three digits, or all in front of the point, and no exponent: `2,500,000`, `0.25`."""
    if value <= 0:
        return "0"
    text = f"{value:,.{max(0, 2 - floor(log10(value)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _round_up(value: float) -> float:
    """The next 1, 2 or 5 with zeros behind it."""
    if value <= 0:
        return 1
    size: float = 10 ** floor(log10(value))
    return next(step * size for step in (1, 2, 5, 10) if step * size >= ceil(value * 1000) / 1000 or step == 10)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{in_html(text)}</text>'


def _svgs(label: str, height: int, draw: Callable[[PlotFrame], Sequence[str]]) -> str:
    return "".join(
        f'<svg class="{frame.name}" viewBox="0 0 {frame.width} {height}" role="img" aria-label="{label}">'
        f"{''.join(draw(frame))}</svg>"
        for frame in FRAMES
    )
