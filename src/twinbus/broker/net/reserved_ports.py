"""Ports that stay free while nobody listens on them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

FIRST, LAST = 10_240, 65_535
ENOUGH = 1_000
"""To choose from: fewer are soon all taken."""
SYSTEM_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_RANGE = 32_768, LAST


def lasting_port() -> int:
    """A port, chosen by chance, that the system gives to nobody who connects or asks for any port.

    So a namespace that is killed finds it free when it comes back. 0 where there are none.
    """
    low, high = _system_range()
    outside = [*range(FIRST, min(low, LAST + 1)), *range(max(high + 1, FIRST), LAST + 1)]
    return random.choice(outside) if len(outside) >= ENOUGH else 0  # noqa: S311  # not a secret


def ports_to_try(asked: int, tries: int) -> Iterator[int]:
    """The port that is asked for; if that is 0, several, and at last those of the system's own choice."""
    if asked:
        yield asked
        return
    for _ in range(tries):
        yield lasting_port()
    for _ in range(tries):
        yield 0


def _system_range() -> tuple[int, int]:
    try:
        low, high = map(int, SYSTEM_RANGE.read_text().split())
    except (OSError, ValueError):  # not Linux, or a sandbox that hides it
        return USUAL_RANGE
    return low, high
