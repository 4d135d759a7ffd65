"""Durations and times as the documents write them: ISO 8601."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

INFINITE = "P10675199DT2H48M5.4775807S"
"""The longest duration the service knows, and its word for ever."""
INFINITE_MS = 10_675_199 * 24 * 3_600_000
"""From here on a duration counts as infinite: clients round the one above on its way back."""

_DURATION = re.compile(
    r"(?P<sign>-?)P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,12}(?:\.\d{1,12})?)S)?)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_FIRST_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MS
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MS
"""What documents can write, in UTC: the years 1 to 9999. A zone can lead out of them."""


def read_duration(text: str) -> int:
    """`PT1M30.5S` -> 90500 milliseconds; `ValueError` if it is no duration of days, hours, minutes and seconds."""
    match = _DURATION.fullmatch(text)
    if match is None or text.endswith(("P", "T")):
        raise ValueError(text)
    part = match.groupdict(default="0")
    minutes = (int(part["days"]) * 24 + int(part["hours"])) * 60 + int(part["minutes"])
    value = minutes * 60_000 + round(float(part["seconds"]) * 1000)
    return -value if part["sign"] == "-" else value


def write_duration(value_ms: int) -> str:
    """90500 -> `PT1M30.5S`."""
    if value_ms < 0:
        return "-" + write_duration(-value_ms)
    days, rest = divmod(value_ms, 24 * 3_600_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    seconds = f"{rest // 1000}.{rest % 1000:03}".rstrip("0").rstrip(".")
    date = f"{days}D" if days else ""
    clock = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number)
    if rest or not (date or clock):
        clock += f"{seconds}S"
    return f"P{date}T{clock}" if clock else f"P{date}"


def read_endless(text: str) -> int | None:
    """A duration, or None if it is as good as infinite."""
    value = read_duration(text)
    return None if value >= INFINITE_MS else value


def write_endless(value_ms: int | None) -> str:
    return INFINITE if value_ms is None else write_duration(value_ms)


def read_time(text: str) -> int:
    """A moment as milliseconds since 1970; `ValueError` if it is none. Without a zone it is UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    value_ms = (moment - _EPOCH) // _MS
    if not _FIRST_MS <= value_ms <= _LAST_MS:
        raise ValueError(text)
    return value_ms


def write_time(value_ms: int) -> str:
    """The moment; one outside what can be written is the nearest that can, so that no list fails because of it."""
    moment = _EPOCH + timedelta(milliseconds=min(max(value_ms, _FIRST_MS), _LAST_MS))
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
