"""How old what is shown of a pair may be, and so when to look again (X7). No clock and no I/O."""

from __future__ import annotations

FRESH_S = 30.0
"""What is older is shown as stale."""
SHOWN_WITHIN_S = 2.0
"""From the end of a look until it is on the screen."""
PAUSE_S_MIN, PAUSE_SHARE_MIN = 0.5, 0.5
"""Slow looks leave some time to others, even if what they show gets stale in between."""


def pause_s(every_s: float, took_s: float, busy_share: float = 1.0) -> float:
    """How long to wait after a look that took this long.

    Looks begin `every_s` apart, and at least `busy_share` times their length; but so early that the next one, if it
    takes as long, ends before this one is stale.
    """
    wanted_s = max(every_s, busy_share * took_s) - took_s
    least_s = max(PAUSE_S_MIN, PAUSE_SHARE_MIN * took_s)
    return max(least_s, min(wanted_s, FRESH_S - SHOWN_WITHIN_S - 2 * took_s))


def is_stale(at: float | None, now: float) -> bool:
    """Whether what was seen then is too old by now; None: it was never seen, and is shown as unknown."""
    return at is not None and now - at > FRESH_S
