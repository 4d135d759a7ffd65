"""The one place that parses and prints durations, times, sizes and shares.

Each form has one function that prints it and, where people or files give it back to us, one that parses it.

| form | example | parse | print |
|---|---|---|---|
| duration in an option | `500ms`, `1.5h`, `2d` | `parse_duration` | `option_duration` |
| duration, exact | `1 min 30 s` | | `exact_duration` |
| duration, two largest units | `2 h 5 min` | | `rough_duration` |
| duration, largest unit | `1.5 h` | | `short_duration` |
| duration in a report | `25 h 3 min` | | `report_duration` |
| duration that was measured | `0.08 s` | | `measured_duration` |
| ISO 8601 duration | `PT1M30.5S` | `parse_iso_duration` | `iso_duration` |
| ISO 8601 time | `2031-03-09T14:05:06.789Z` | `parse_time` | `utc_time`, `utc_time_ms` |
| ISO 8601 time with its offset | `2031-03-09T14:05:06+00:00` | `parse_time` | `offset_time` |
| time for people | `2031-03-09 14:05:06` | | `clock_time` |
| time in a file name | `20310309T140506Z` | | `file_time` |
| size in an option | `2GB`, `64 KiB` | `parse_size` | `option_size` |
| size | `12.3 MB` | | `size_text` |
| share | `48.99%` | | `percent` |

Times without a zone are UTC. Milliseconds count from 1970.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from twinbus.errors import OptionsError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_FIRST_MS = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MS
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MS
"""The years 1 to 9999 in UTC. An offset can lead out of them."""

# --- durations ---

_DURATION = re.compile(r"(?P<number>\d{1,12}(?:\.\d{1,3})?)(?P<unit>ms|s|m|h|d)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WORDS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


def parse_duration(text: str, option: str | None = None) -> int:
    """Milliseconds in `500ms`, `30s`, `5m`, `2h` or `1d`. Raises `OptionsError`, which names the option if given."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        problem = f"a duration needs a number and a unit (ms, s, m, h or d), e.g. 500ms, 30s or 5m; got {text!r}"
        raise OptionsError(f"{option}: {problem}" if option else problem)
    return round(float(found["number"]) * _UNIT_MS[found["unit"]])


def parse_seconds(text: str, option: str) -> float:
    """The same in seconds."""
    return parse_duration(text, option) / 1000


def option_duration(length: timedelta) -> str:
    """`90s`, `1m`: as an option takes it."""
    for unit, word in ((timedelta(days=1), "d"), (timedelta(hours=1), "h"), (timedelta(minutes=1), "m")):
        if length and length % unit == timedelta(0):
            return f"{length // unit}{word}"
    seconds, rest = divmod(length, timedelta(seconds=1))
    return f"{length // timedelta(milliseconds=1)}ms" if rest else f"{seconds}s"


def exact_duration(length: timedelta | float) -> str:
    """Exact to the millisecond, with as many units as needed: `0 s`, `200 ms`, `1 min 30 s`, `-2 h`."""
    length = length if isinstance(length, timedelta) else timedelta(seconds=length)
    left = round(abs(length) / _MS)
    words = []
    for unit_ms, unit in _WORDS:
        count, left = divmod(left, unit_ms)
        if count:
            words.append(f"{count} {unit}")
    return ("-" if length < timedelta(0) and words else "") + (" ".join(words) or "0 s")


def rough_duration(seconds: float) -> str:
    """At most the two largest units, in whole seconds: `2 h 5 min`."""
    return " ".join(exact_duration(round(seconds)).split(" ")[:4])


def short_duration(length_ms: int) -> str:
    """The largest unit up to hours, with one decimal: `500 ms`, `1.5 s`, `15 min`."""
    for unit_ms, unit in _WORDS[1:]:
        if length_ms >= unit_ms:
            return f"{round(length_ms / unit_ms, 1):g} {unit}"
    return f"{length_ms} ms"


def report_duration(length_ms: float) -> str:
    """Hours and minutes, minutes and seconds, or milliseconds: `25 h 3 min`, `5 min`, `12 s`, `250 ms`."""
    if length_ms < 1000:
        return f"{length_ms:g} ms"
    minutes, seconds = divmod(round(length_ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (seconds if not hours else 0, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def measured_duration(seconds: float) -> str:
    """Two decimals below 100 s: `0.08 s`, `123 s`."""
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"


INFINITE = "P10675199DT2H48M5.4775807S"
"""The longest duration that Service Bus has; it stands for "forever"."""
INFINITE_MS = 10_675_199 * 86_400_000
"""A duration counts as infinite from here on: clients round the one above."""

_ISO_DURATION = re.compile(
    r"(?P<sign>-?)P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,12}(?:\.\d{1,12})?)S)?)?",
    re.ASCII,
)


def parse_iso_duration(text: str) -> int:
    """Milliseconds in `PT1M30.5S`. Raises `ValueError` unless it has days, hours, minutes and seconds only."""
    found = _ISO_DURATION.fullmatch(text)
    if found is None or text.endswith(("P", "T")):
        raise ValueError(text)
    part = found.groupdict(default="0")
    minutes = (int(part["days"]) * 24 + int(part["hours"])) * 60 + int(part["minutes"])
    value = minutes * 60_000 + round(float(part["seconds"]) * 1000)
    return -value if part["sign"] == "-" else value


def iso_duration(value_ms: int) -> str:
    """`PT1M30.5S` for 90500."""
    if value_ms < 0:
        return "-" + iso_duration(-value_ms)
    days, rest = divmod(value_ms, 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    seconds = f"{rest // 1000}.{rest % 1000:03}".rstrip("0").rstrip(".")
    date = f"{days}D" if days else ""
    clock = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number)
    if rest or not (date or clock):
        clock += f"{seconds}S"
    return f"P{date}T{clock}" if clock else f"P{date}"


def parse_iso_duration_or_infinite(text: str) -> int | None:
    """None if the duration counts as infinite."""
    value = parse_iso_duration(text)
    return None if value >= INFINITE_MS else value


def iso_duration_or_infinite(value_ms: int | None) -> str:
    return INFINITE if value_ms is None else iso_duration(value_ms)


# --- times ---


def parse_time(text: str) -> datetime:
    """An ISO 8601 time; UTC if it has no zone. Raises `ValueError`."""
    at = datetime.fromisoformat(text)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def has_zone(text: str) -> bool:
    """Whether an ISO 8601 time says in which zone it is. Raises `ValueError`."""
    return datetime.fromisoformat(text).tzinfo is not None


def parse_portal_time(text: str) -> datetime:
    """A time in UTC as Azure's portal exports it, e.g. `3/9/2025, 6:00:00.000 AM`. Raises `ValueError`."""
    return datetime.strptime(text.strip(), "%m/%d/%Y, %I:%M:%S.%f %p").replace(tzinfo=UTC)


def parse_time_ms(text: str) -> int:
    """An ISO 8601 time in milliseconds. Raises `ValueError` also if its zone leads out of the years 1 to 9999."""
    value_ms = (parse_time(text) - EPOCH) // _MS
    if not _FIRST_MS <= value_ms <= _LAST_MS:
        raise ValueError(text)
    return value_ms


def parse_future_time(text: str, now: datetime, option: str) -> datetime:
    """A time, or a duration from now. Raises `OptionsError`, which names the option."""
    try:
        return now + timedelta(milliseconds=parse_duration(text))
    except (OptionsError, OverflowError):
        return _time_of_option(text, option, "2031-03-09T14:05Z, or a duration from now")


def parse_past_time(text: str, now: datetime, option: str) -> datetime:
    """A time, or a duration before now. Raises `OptionsError`, which names the option."""
    try:
        return now - timedelta(milliseconds=parse_duration(text))
    except (OptionsError, OverflowError):
        return _time_of_option(text, option, "2025-03-09T14:05Z, or a duration before now")


def _time_of_option(text: str, option: str, example: str) -> datetime:
    try:
        return parse_time(text)
    except ValueError:
        raise OptionsError(f"{option} takes a time, e.g. {example}, e.g. 10m; got {text!r}") from None


def time_of(value_ms: float) -> datetime:
    """The moment in UTC. Raises `ValueError`, `OverflowError` or `OSError` if no calendar has it."""
    return datetime.fromtimestamp(value_ms / 1000, UTC)


def utc_time(at: datetime) -> str:
    """`2031-03-09T14:05:06.789Z`"""
    at = at.astimezone(UTC) if at.tzinfo is not None else at
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def utc_time_ms(value_ms: int) -> str:
    """The same of milliseconds. A moment that no calendar has becomes the nearest that one has."""
    at = EPOCH + timedelta(milliseconds=min(max(value_ms, _FIRST_MS), _LAST_MS))
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def utc_time_or_ms(value_ms: int) -> str:
    """The same, but a moment that no calendar has is printed as its number: `99999999999999999 ms`."""
    return utc_time_ms(value_ms) if _FIRST_MS <= value_ms <= _LAST_MS else f"{value_ms} ms"


def offset_time(at: datetime, timespec: Literal["auto", "seconds", "milliseconds"] = "auto") -> str:
    """`2031-03-09T14:05:06+00:00`"""
    return at.isoformat(timespec=timespec)


def clock_time(at: datetime, *, seconds: bool = True) -> str:
    """`2031-03-09 14:05:06`"""
    return at.replace(tzinfo=None).isoformat(" ", timespec="seconds" if seconds else "minutes")


def clock_time_or_ms(value_ms: int, *, seconds: bool = True) -> str:
    """The same of milliseconds; a moment that no calendar has is printed as its number."""
    try:
        return clock_time(time_of(value_ms), seconds=seconds)
    except (ValueError, OverflowError, OSError):
        return f"{value_ms} ms"


def file_time(at: datetime, *, milliseconds: bool = False) -> str:
    """`20310309T140506Z`, or `20310309T140506.789Z`: names sort by time."""
    fraction = f".{at.microsecond // 1000:03d}" if milliseconds else ""
    return f"{at.year:04}{at:%m%dT%H%M%S}{fraction}Z"  # %Y has no leading zeros everywhere


# --- sizes and shares ---

_SIZE = re.compile(r"(?P<number>\d{1,15}(?:\.\d{1,3})?)\s*(?P<unit>[KMG]I?B|)", re.ASCII | re.IGNORECASE)
_SIZE_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": KIB, "MIB": MIB, "GIB": GIB}
_SIZES = ("B", "KB", "MB", "GB", "TB")


def parse_size(text: str, option: str) -> int:
    """Bytes in `5000`, `2GB` or `64 KiB`. Raises `OptionsError`, which names the option."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise OptionsError(
            f"{option} takes a number of bytes, or one with KB, MB, GB, KiB, MiB or GiB, e.g. 2GB; got {text!r}"
        )
    return round(float(found["number"]) * _SIZE_UNITS[found["unit"].upper()])


def option_size(number: int) -> str:
    """`64MiB`: as an option takes it."""
    steps = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
    return next((f"{number // step}{unit}" for step, unit in steps if number and number % step == 0), str(number))


def size_text(number: int | None) -> str:
    """`12.3 MB`, in steps of 1024 and at most four digits; `?` for None."""
    if number is None:
        return "?"
    value = float(number)
    for unit in _SIZES:
        if value < 1000 or unit == _SIZES[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def megabytes(number: float, places: int = 1) -> str:
    """Millions of bytes without the unit: `1,234.5`."""
    return f"{number / 1e6:,.{places}f}"


def percent(share: float) -> str:
    """`48.99%`. More decimals only where two would claim all or nothing: `99.9996%`."""
    text = ""
    for places in range(2, 9):
        text = f"{share:.{places}%}"
        is_whole = float(text.rstrip("%")) in (0, 100)
        if not is_whole or share in (0, 1):
            break
    return text
