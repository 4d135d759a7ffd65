"""Shares as people read them."""

from __future__ import annotations

PLACES, PLACES_MAX = 2, 8


def percent(share: float) -> str:
    """As 48.99%. More places only where two would claim that it is all or nothing: 99.9996%."""
    text = ""
    for places in range(PLACES, PLACES_MAX + 1):
        text = f"{share:.{places}%}"
        is_whole = float(text.rstrip("%")) in (0, 100)
        if not is_whole or share in (0, 1):
            break
    return text
