"""Lengths of time as people write them, 90s or 1h, for options that may be long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twinbus.errors import OptionsError


def length_s(option: str, text: str) -> float:
    """Seconds. Raises `OptionsError` that names the option."""
    from twinbus.namespace.faults.durations import parse_duration

    try:
        return parse_duration(text) / 1000
    except OptionsError as error:
        raise OptionsError(f"{option}: {error}") from None


def moment_to_come(option: str, text: str, now: datetime) -> datetime:
    """A time in ISO 8601, UTC unless it says otherwise; or a length of time from now. Raises `OptionsError`."""
    try:
        return now + timedelta(seconds=length_s(option, text))
    except (OptionsError, OverflowError):
        pass
    try:
        said = datetime.fromisoformat(text)
    except ValueError:
        raise OptionsError(
            f"{option} takes a time, as 2031-03-09T14:05Z, or how long from now, as 10m, got {text!r}"
        ) from None
    return said if said.tzinfo is not None else said.replace(tzinfo=UTC)
