"""The numbers by which the pairing core decides, in seconds; made from the options that people write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    failover_interval_s: float = 60.0
    ping_interval_s: float = 60.0
    pings_to_return: int = 1
    probation_s: float = 60.0
    """How long a backlog queue that failed is left alone."""
    attempt_s: float = 5.0
    """How long one attempt may take."""
    attempts: int = 3
    backoff_min_s: float = 0.2
    backoff_max_s: float = 2.0
    busy_wait_s: float = 10.0
    """Nothing is sent again earlier to a server that said it is busy."""
    hold_sends: bool = False
    hold_count_max: int = 1_000
    hold_bytes_max: int = 64 * 1024 * 1024
    hold_time_max_s: float = 120.0
    error_rate: float | None = None
    """Share of failed sends within the window at which an entity is failed over; None: only silence counts."""
    error_window_s: float = 60.0
    error_sends_min: int = 20
    probe: Literal["auto", "ping", "link"] = "auto"
    keeps_order: bool = False
    """Whether messages of a session come home in the order in which they were sent."""
    has_spool: bool = False
    """Whether messages that neither namespace takes are stored on the local disk."""
