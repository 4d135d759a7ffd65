"""Tables and lengths of time, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twinbus.plain_text import in_html


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    text: tuple[int, ...] = (),
    long: tuple[int, ...] = (),
    total: bool = False,
) -> str:
    """Columns in `text` are not numbers, those in `long` may take several lines; with `total` the last row is one."""

    def cell(tag: str, at: int, value: object) -> str:
        shown = f"{value:,}" if isinstance(value, int) else in_html(str(value), "\n")
        kinds = " ".join(kind for kind, chosen in (("text", text), ("long", long)) if at in chosen)
        mark = f' class="{kinds}"' if kinds else ""
        return f"<{tag}{mark}>{shown}</{tag}>"

    def line(at: int, row: Sequence[Any]) -> str:
        mark = ' class="total"' if total and at == len(rows) - 1 else ""
        return f"<tr{mark}>{''.join(cell('td', place, value) for place, value in enumerate(row))}</tr>"

    top = "".join(cell("th", at, head) for at, head in enumerate(heads)) if any(heads) else ""
    body = "".join(line(at, row) for at, row in enumerate(rows))
    return f'<div class="wide"><table>{f"<tr>{top}</tr>" if top else ""}{body}</table></div>'


def length(length_ms: float) -> str:
    """As 1 h 30 min, 5 min, 12 s, 250 ms."""
    if length_ms < 1000:
        return f"{length_ms:g} ms"
    minutes, seconds = divmod(round(length_ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (seconds if not hours else 0, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number)
