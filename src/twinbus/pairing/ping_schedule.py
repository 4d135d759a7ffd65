"""When a failed-over entity is pinged next (P7)."""

from __future__ import annotations

from twinbus.pairing.rules import Rules

JITTER = 0.1
"""Pings come this share earlier or later, so that clients do not ping in step."""


def next_ping_at(now: float, chance: float, rules: Rules) -> float:
    """One ping interval from now, give or take the jitter; `chance` is from 0 to 1."""
    return now + rules.ping_interval_s * (1 + JITTER * (2 * chance - 1))
