"""One form for numbers in every `--json`: whatever a part of the program calls them inside.

| what | name | value |
|---|---|---|
| a time | `at`, `..._at` | text, ISO 8601 in UTC with milliseconds: `2031-03-09T14:05:06.789Z` |
| a duration | `..._s` | a number of seconds |
| a size | `..._bytes` | a whole number of bytes |
| a rate | `per_s`, `..._per_s` | a number a second |
| a count | any other | a whole number |

What is unknown is null. Names that users have chosen (entities, sessions, properties) stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any

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
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return None if not isfinite(value) else round(value * factor, 6) if factor != 1 else value


def _whole(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_whole(each) for each in value]
    return round(value) if isinstance(value, float) and isfinite(value) else value
