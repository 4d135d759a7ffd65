"""Lengths of time as people write them, 90s or 1h, for options that may be long."""

from __future__ import annotations

from twinbus.errors import OptionsError


def length_s(option: str, text: str) -> float:
    """Seconds. Raises `OptionsError` that names the option."""
    from twinbus.namespace.faults.durations import parse_duration

    try:
        return parse_duration(text) / 1000
    except OptionsError as error:
        raise OptionsError(f"{option}: {error}") from None
