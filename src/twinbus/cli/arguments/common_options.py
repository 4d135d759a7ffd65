"""Options that most commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from twinbus.errors import OptionsError
from twinbus.units import parse_duration

AsJson = Annotated[bool, typer.Option("--json", help="The result as JSON.")]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="How long one attempt may take, e.g. 500ms or 5s.")
]


def timeout_s(text: str, option: str = "--timeout") -> float:
    """The seconds of one attempt, or of another option with the same range. Raises `OptionsError`."""
    length_ms = parse_duration(text, option)
    if not 100 <= length_ms <= 120_000:
        raise OptionsError(f"{option} must be from 100ms to 2m, got {text}")
    return length_ms / 1000


def every_within(text: str, limits: tuple[float, float]) -> float:
    """The seconds of `--every`. Raises `OptionsError`."""
    every_s = timeout_s(text, "--every")
    if not limits[0] <= every_s <= limits[1]:
        raise OptionsError(f"--every must be from {limits[0]:g}s to {limits[1]:g}s, got {text}")
    return every_s
