"""Options that are numbers within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from twinbus.errors import OptionsError


def check_ranges(options: object, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Raise `OptionsError` with every field of the options that is not from its lowest to its highest value.

    A highest value of infinity means that there is none.
    """
    problems = [
        f"{name} must be {f'{low} or more' if high == inf else f'from {low} to {high}'}, got {getattr(options, name)}"
        for name, (low, high) in ranges.items()
        if not low <= getattr(options, name) <= high
    ]
    OptionsError.raise_for(problems)
