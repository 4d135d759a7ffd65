"""What can be said about a drain; every task gets a copy, so there is nothing secret in it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from twinbus.errors import OptionsError
from twinbus.spark.access import Access
from twinbus.spark.drain.plan import Shard
from twinbus.syphon.options import SyphonOptions

PREFETCH = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOptions:
    primary: Access
    secondary: Access
    primary_name: str
    """What the backlog queues are called by."""
    queue_count: int = 10
    order: Literal["session"] | None = None
    """"session": messages of a session come home in the order of their queue; a queue then belongs to one task."""
    order_over: tuple[int, ...] | None = None
    """With `order`: the queues over which senders spread sessions, by index. The driver finds them out: a message in
    another queue than its own ends the drain."""
    ttl: Literal["remaining", "restart"] = "remaining"
    entities: frozenset[str] | None = None
    """Only messages for these; None: for all. Case does not matter. What is for others stays in the backlog."""
    enqueued_before: datetime | None = None
    """Only what was enqueued in the backlog before this time, by the secondary's clock."""
    rate: float | None = None
    """Messages a second at most, of all tasks together; None: no limit."""
    first: int | None = None
    """Move this many, then ask whether to go on, or end."""
    spread_s: float = 0.0
    """Tasks begin at a random moment within this time, not all at once."""
    round_s: float = 30.0
    """How long a task goes on at most. Then the driver looks again: at executors, pauses, and another pace."""
    signal: str | None = None
    """A file on this machine: while it is there, tasks end as if their time was over. None: tasks run elsewhere."""
    ledger: str | None = None
    """A directory that executors write their segments to and the driver can read; None: nothing is recorded."""
    ledger_ship_to: str | None = None
    """Where the driver copies what executors have finished of it; None: where TWINBUS_LEDGER_SHIP_TO says, or nowhere.
    Executors need neither packages nor credentials for it."""
    tasks: int | None = None
    """At most this many at a time; None: as many as there are cores."""
    prefetch: int = PREFETCH
    """Messages of one queue that a task holds at a time: the most that is repeated if it is killed."""
    patience_s: float = 120.0
    """How long a task goes on although nothing moves: a namespace is down, or others have messages under lock."""
    refused_s: float = 10.0
    """The same, when it is the credential that is refused."""
    attempt_s: float = 15.0
    lock_s: float = 60.0
    """The lock duration of the backlog queues."""
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    """What this run is called in the ledger."""

    def __post_init__(self) -> None:
        problems = [f"primary: {text}" for text in self.primary.problems()]
        problems += [f"secondary: {text}" for text in self.secondary.problems()]
        problems += [] if self.primary_name else ["primary_name must not be empty: backlog queues are called by it"]
        if self.ledger_ship_to is not None and self.ledger is None:
            problems.append("ledger_ship_to needs ledger: segments of that folder are copied")
        ranges = {
            "queue_count": (1, 100),
            "tasks": (1, 10_000),
            "patience_s": (0.1, 86_400),
            "refused_s": (0.1, 86_400),
            "spread_s": (0, 3_600),
            "round_s": (1, 86_400),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                problems.append(f"{name} must be from {low} to {high}, got {value}")
        try:
            self.syphon()
        except OptionsError as error:
            problems.append(str(error).replace("canary", "first"))
        if problems:
            raise OptionsError("; ".join(problems))

    def syphon(self, shard: Shard | None = None) -> SyphonOptions:
        """Of the syphon in a task; without a shard, of all together."""
        return SyphonOptions(
            until_empty=True,
            rate=self.rate if shard is None else shard.rate,
            canary=self.first if shard is None else shard.first,
            enqueued_before=self.enqueued_before,
            order=self.order,
            order_over=self.order_over,
            ttl=self.ttl,
            entities=self.entities,
            prefetch=self.prefetch,
            attempt_s=self.attempt_s,
            lock_s=self.lock_s,
            refused_s=self.refused_s,
        )
