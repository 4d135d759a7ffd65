"""Lengths of time as people write them: `500ms`, `30s`, `5m`, `2h`."""

from __future__ import annotations

import re

from twinbus.errors import OptionsError

_WRITTEN = re.compile(r"(?P<number>\d{1,12}(?:\.\d{1,3})?)(?P<unit>ms|s|m|h)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_SHOWN = ((3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def parse_duration(text: str) -> int:
    """Milliseconds; raises `OptionsError` if the text is no length of time."""
    written = _WRITTEN.fullmatch(text.strip())
    if written is None:
        raise OptionsError(f"a length of time is a number with ms, s, m or h, as 500ms, 30s or 5m, got {text!r}")
    return round(float(written["number"]) * _UNIT_MS[written["unit"]])


def duration_text(length_ms: int) -> str:
    """A length of time in the largest unit that keeps it short: `500 ms`, `1.5 s`, `15 min`."""
    for unit_ms, name in _SHOWN:
        if length_ms >= unit_ms:
            return f"{round(length_ms / unit_ms, 1):g} {name}"
    return f"{length_ms} ms"
