"""What one simulated pair is like: options, timing and habits, drawn once, so that pairs go different ways."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from twinbus.pairing.rules import Rules


def draw_rules(random: Random) -> Rules:
    """Options that a person could have written; the short ones more often, because more happens then."""
    backoff_min_s = random.choice((0.0, 0.05, 0.2))
    return Rules(
        failover_interval_s=random.choice((0.0, 0.0, 1.0, 5.0, 40.0)),
        ping_interval_s=random.choice((1.0, 5.0, 20.0)),
        pings_to_return=random.choice((1, 1, 2, 3)),
        probation_s=random.choice((1.0, 5.0, 60.0)),
        attempt_s=random.choice((0.1, 0.5, 2.0, 5.0)),
        attempts=random.choice((1, 2, 3)),
        backoff_min_s=backoff_min_s,
        backoff_max_s=max(backoff_min_s, random.choice((0.0, 0.2, 2.0))),
        hold_sends=random.random() < 0.5,
        hold_count_max=random.choice((1, 3, 1_000)),
        hold_bytes_max=random.choice((1_024, 64 * 1024 * 1024)),
        hold_time_max_s=random.choice((0.5, 5.0, 120.0)),
        error_rate=random.choice((None, None, 0.3, 0.7)),
        error_window_s=random.choice((5.0, 60.0)),
        error_sends_min=random.choice((1, 3, 6)),
        probe=random.choice(("ping", "link", "auto")),
    )


@dataclass(frozen=True, slots=True)
class Habits:
    """How the applications of one pair behave, and what the world does to them."""

    entities: int
    senders: int
    gap_s: float
    """About how long a sender waits between two calls."""
    crowd_share: float
    """How many calls begin while the same sender still waits for another one."""
    timeout_share: float
    """How many calls have a time-out of their own."""
    cancel_share: float
    typo_share: float
    spells: int
    operator_share: float
    """How often somebody forces a failover, marks an entity healthy, or has the queues checked again."""
    has_declared: bool
    closes: bool
    jumps: int
    batch_bytes: int
    """What a backlog queue takes at once."""
    queues: int

    @classmethod
    def draw(cls, random: Random) -> Habits:
        return cls(
            entities=random.choice((1, 1, 2, 3)),
            senders=random.choice((1, 3, 6)),
            gap_s=random.choice((0.05, 0.5, 3.0)),
            crowd_share=random.choice((0.0, 0.3, 0.7)),
            timeout_share=random.choice((0.0, 0.2, 0.7)),
            cancel_share=random.choice((0.0, 0.0, 0.1)),
            typo_share=random.choice((0.0, 0.0, 0.05)),
            spells=random.choice((1, 4, 8, 14)),
            operator_share=random.choice((0.0, 0.1)),
            has_declared=random.random() < 0.5,
            closes=random.random() < 0.2,
            jumps=random.choice((0, 0, 0, 1, 2)),
            batch_bytes=random.choice((2_600, 6_000, 262_144)),
            queues=random.choice((1, 2, 2, 3, 10)),
        )
