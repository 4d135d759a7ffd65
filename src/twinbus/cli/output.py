"""The output of commands: text, JSON, tables, questions. It never contains keys, or characters that harm a terminal.

`hide_typed` collects the keys on the command line first, also those in the wrong place.

`--json` has one form for numbers, and names say which: times are ISO 8601 in UTC (`at`, `..._at`), durations seconds
(`..._s`), sizes bytes (`..._bytes`), rates per second (`..._per_s`), counts whole numbers. Unknown values are null.
Names that users have chosen (entities, sessions, properties) stay as they are.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import typer

from twinbus.cli.exit_codes import ExitCode
from twinbus.plain_text import harmless, on_one_line, shown, without, without_keys
from twinbus.units import utc_time

ERROR_LENGTH_MAX = 4_000
SECRET_LENGTH_MIN = 8
"""What is shorter is found in too many texts."""

_KEY = re.compile(r"(?i)(?:SharedAccessKey|AccountKey)\s*=\s*([^;\s]+)|\bsig=([^&;\s]+)")
_KEY_LIKE = re.compile(r"[A-Za-z0-9+/]{43}=")

_typed: list[str] = []
"""The longest first: some are a part of another."""


def hide_typed(arguments: Sequence[str]) -> None:
    """From now on, keys and signatures in these arguments are written nowhere; those of earlier calls are forgotten."""
    found: set[str] = set()
    before = ""
    for argument in arguments:
        found.update(one or other for one, other in _KEY.findall(argument))
        found.update(_KEY_LIKE.findall(argument))
        option, _, value = argument.partition("=") if argument.startswith("--") else (before, "", argument)
        if option == "--key":
            found.add(value)
        elif option == "--rule":
            found.add(value.split(":", 2)[-1])
        before = argument
    found |= {each.rstrip("=") for each in found}  # what is taken for an option ends before an equals sign
    _typed[:] = sorted((each for each in found if len(each) >= SECRET_LENGTH_MIN), key=len, reverse=True)


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Write a result, or a note on stderr. In a result only keys that were typed are hidden: the rest is data."""
    hidden = without_keys(text, _typed) if err else without(text, _typed)
    typer.echo(shown(hidden), err=err, nl=nl)


def say_event(event: str, facts: Mapping[str, Any]) -> None:
    """Write one of the JSON lines of a command that goes on for a while."""
    say(json_text({"event": event, **facts}))


def note(text: str) -> None:
    """Write one line on stderr, whatever is in the text."""
    typer.echo(f"twinbus: {error_line(text)}", err=True)


def can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> bool:
    """Ask on stderr, because stdout is for the result alone."""
    say(f"{question} [y/N] ", err=True, nl=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def confirm_or_exit(question: str, refused: str) -> None:
    """Ends with 3, and the note `refused`, if the answer is no."""
    if not confirm(question):
        note(refused)
        raise typer.Exit(ExitCode.NOT_ALL)


def error_line(text: str) -> str:
    """One line, whatever an argument, a file name or a server said."""
    return on_one_line(without_keys(text, _typed), ERROR_LENGTH_MAX)


def or_dash(value: object) -> str:
    """One line, or a dash for None."""
    return "-" if value is None else on_one_line(str(value))


def traceback_text(text: str) -> str:
    return shown(without_keys(text, _typed))


AS_IT_IS = {"properties", "places", "sessions", "duplicate_detection", "kept_back", "body", "connection_string"}
"""What is below these names was named by users."""

MOMENTS_MS = {
    "at_ms",
    "enqueued_ms",
    "failed_over_ms",
    "first_ms",
    "from_ms",
    "held_since_ms",
    "last_ms",
    "newest_ms",
    "oldest_ms",
    "recovered_ms",
    "since_ms",
    "suspected_ms",
    "until_ms",
}
"""Milliseconds since 1970; every other `_ms` is a duration."""

MOMENT_MS_MIN = 10**11
"""The year 1973: nothing lasts that long."""

SCALED: Mapping[str, tuple[str, float]] = {
    "seconds": ("elapsed_s", 1),
    "seconds_left": ("left_s", 1),
    "hours": ("lasts_s", 3600),
    "capacity_hours": ("capacity_s", 3600),
    "rate": ("messages_per_s", 1),
    "rate_limit": ("limit_per_s", 1),
    "per_second": ("per_s", 1),
    **{f"ms_{which}": (f"{which}_s", 0.001) for which in ("p50", "p95", "p99", "max")},
}
SIZES = {
    "bytes": "size_bytes",
    "size": "size_bytes",
    "sizes": "sizes_bytes",
    "size_bytes_max": "size_max_bytes",
}
RENAMED = {"scheduled_for": "scheduled_at"}
UNITS = {"_ms": 0.001, "_us": 0.000_001, "_min": 60}
WHOLE = {"messages"}
"""Counts that are calculated, and come as floats."""


def json_text(document: Any, *, indent: int | None = None) -> str:
    """The document in the one form, as JSON."""
    return json.dumps(in_form(document), indent=indent)


def in_form(document: Any) -> Any:
    match document:
        case dict():
            return dict(_pair(str(name), value) for name, value in document.items())
        case list() | tuple():
            return [in_form(each) for each in document]
        case float() if not isfinite(document):
            return None  # JSON has no infinity
        case _:
            return document


def _pair(given: str, value: Any) -> tuple[str, Any]:
    name = RENAMED.get(given, given)
    if name in AS_IT_IS or (isinstance(value, dict) and name not in SIZES):
        return name, value if name in AS_IT_IS else in_form(value)
    if name in SIZES and _is_amount(value):
        return SIZES[name], _whole(value)
    if isinstance(value, list | tuple | dict):
        return name, in_form(value)
    if name == "bucket_ms" and isinstance(value, int) and value >= MOMENT_MS_MIN:
        return "at", _moment(value / 1000)  # a row of a plot; beside the rows it is how long each bucket is
    if name in MOMENTS_MS:
        return _moment_name(name), _moment(None if not value else value / 1000)
    if name == "at" or name.endswith("_at"):
        return name, _moment(value)
    if name in SCALED:
        renamed, factor = SCALED[name]
        return renamed, _scaled(value, factor)
    for suffix, factor in UNITS.items():
        if name.endswith(suffix):
            return f"{name.removesuffix(suffix)}_s", _scaled(value, factor)
    return name, _whole(value) if name in WHOLE or name.endswith("_bytes") else in_form(value)


def _is_amount(value: Any) -> bool:
    several = value if isinstance(value, list | tuple) else [value]
    return all(each is None or isinstance(each, int | float) for each in several)


def _moment_name(name: str) -> str:
    bare = name.removesuffix("_ms")
    return bare if bare == "at" or bare.endswith("_at") else f"{bare}_at"


def _moment(value: Any) -> Any:
    """Of seconds since 1970, or of a text in another form of ISO 8601."""
    if isinstance(value, str):
        return value.removesuffix("+00:00") + "Z" if value.endswith("+00:00") else value
    if value is None or isinstance(value, bool):
        return value
    try:
        at = datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):  # a time that no calendar has
        return None
    return utc_time(at)


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return None if not isfinite(value) else round(value * factor, 6) if factor != 1 else value


def _whole(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_whole(each) for each in value]
    return round(value) if isinstance(value, float) and isfinite(value) else value


# --- tables ---

CELL_LENGTH_MAX = 300


def _cell(value: object) -> str:
    """Spaces stay: some cells are indented."""
    text = harmless(str(value))
    return text if len(text) <= CELL_LENGTH_MAX else f"{text[:CELL_LENGTH_MAX]}..."


def table(rows: Sequence[Sequence[object]]) -> str:
    """Columns under their heads (the first row); the first column to the left, numbers to the right."""
    texts = [[f"{cell:,}" if isinstance(cell, int) else _cell(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in texts
    )
