"""What a month with pairing will cost, and how large the backlog has to be, from how an application is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import ceil, log2
from typing import Any

from twinbus.board.board_peek import FIRST_PAGE
from twinbus.board.queue import LIFE_S
from twinbus.board.quorum import FRESH_S, LOOK_EVERY_S, TIME_GOOD_S
from twinbus.board.schedule import BUSY_EVERY_S, CALM_EVERY_S, CLEAR_EVERY_S, EARLIER
from twinbus.cost.bill import Alternative, Bill, Use, alternatives, bill
from twinbus.cost.prices import Prices
from twinbus.cost.stages import NOT_FROM_PAIRING, STEP_BYTES, Stage
from twinbus.errors import OptionsError
from twinbus.ledger.kinds import DELIVERY_BYTES

HOURS_A_MONTH = 720
"""Thirty days, as the documents count."""
POLL_MIN = SEARCH_MIN = 15
WATCH_S, WATCHED_MAX = 25, 50
"""While messages wait, a syphon peeks into each queue this often, at this many messages at most."""
BACKLOG_QUEUE_BYTES = 5120 << 20
ALIAS_BYTES = 200
"""About what the detour adds to a message: its destination, session, time to live and schedule."""
PING_BYTES = 156
"""Of every ping: it is empty, and its ids have one length."""
LOOK_REQUESTS = 2
"""A look lists the secondary's queues and their numbers; more than 100 queues take further pages."""
REPORT_BYTES = 1_000
"""About what a report on the board has, of a process with few entities."""
POST_SHARE = 1 - EARLIER / 2
"""Reports come a little before their time."""
POSTS_PER_OUTAGE = 4
"""Of each process, beside those that come by themselves: suspect, failed over, back, and the backlog empty."""
POSTS_WHILE_SUSPECT = 2
"""Of these, the ones that a process with `share_failover` reads of each other one: suspect, and failed over."""
SPREAD = 2.0
"""Senders choose their queue by chance: twice the even share is a safe size."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How an application is used. Times are in seconds."""

    entities: int = 1
    rate: float = 10.0
    """Messages a second, of all entities together."""
    size_bytes: int = 1024
    outages: float = 1.0
    """In a month, each of all entities."""
    outage_s: float = 3600.0
    clients: int = 1
    queues: int = 10
    syphons: int = 1
    ping_s: float = 60.0
    failover_s: float = 60.0
    look_s: float = 3600.0
    """Time between two looks of a process at the backlog."""
    board: bool = False
    """Whether all these processes report on the board."""
    board_looks: int = 0
    """In a month, by whoever reads it: each reads what the time to live has kept."""
    shared_findings: bool = False
    """Whether clients act on findings of other hosts: they read the board while an entity is suspect."""

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        OptionsError.raise_for(problems)

    @property
    def messages(self) -> float:
        """In a month."""
        return self.rate * HOURS_A_MONTH * 3600

    @property
    def failed_over_s(self) -> float:
        """The part of an outage in which sends go to the backlog; before the failover interval is over, they fail."""
        return max(0.0, self.outage_s - self.failover_s)

    @property
    def detours(self) -> float:
        """Messages in a month that go through the backlog."""
        return self.rate * self.failed_over_s * self.outages

    @property
    def pings(self) -> float:
        """In a month: every client pings every entity of its own."""
        return self.entities * self.clients * (self.failed_over_s // self.ping_s) * self.outages

    @property
    def looks(self) -> float:
        """In a month: every process looks at the backlog now and then."""
        return (self.clients + self.syphons) * (HOURS_A_MONTH * 3600 // self.look_s)

    @property
    def watched(self) -> float:
        """Messages in a month that syphons peek at, because they look into each queue while any is failed over."""
        return self._rounds * min(self.queues * WATCHED_MAX, self.rate * self.failed_over_s)

    @property
    def watches(self) -> float:
        """What these looks cost in peeks: one for each message, and one more for each queue, to see that it is all."""
        return self.watched + self._rounds * self.queues

    @property
    def _rounds(self) -> float:
        """Of peeks into all queues, in a month."""
        return self.syphons * self.outages * (self.failed_over_s // WATCH_S)

    @property
    def searches(self) -> float:
        """In a month: a syphon lists the queues every 15 minutes, for senders elsewhere may have made more of them."""
        return self.syphons * HOURS_A_MONTH * 60 / SEARCH_MIN

    @property
    def posts(self) -> float:
        """Reports on the board in a month: one in a minute, three while anything is wrong, and one at each change."""
        if not self.board:
            return 0.0
        wrong_s = self.failed_over_s * self.outages
        calm_s = HOURS_A_MONTH * 3600 - wrong_s
        by_time = calm_s / (CALM_EVERY_S * POST_SHARE) + wrong_s / (BUSY_EVERY_S * POST_SHARE)
        return (self.clients + self.syphons) * (by_time + POSTS_PER_OUTAGE * self.outages)

    @property
    def board_clearings(self) -> float:
        """Peeks in a month by which processes with a syphon see whether the service keeps reports that are over."""
        return self.syphons * HOURS_A_MONTH * 3600 / CLEAR_EVERY_S if self.board else 0.0

    @property
    def board_reads(self) -> float:
        """Reports in a month that are peeked at by looks: all of the last minutes."""
        kept = self.posts * LIFE_S / (HOURS_A_MONTH * 3600)
        return self.board_looks * (kept + 2) if self.board else 0.0

    @property
    def shared_reads(self) -> float:
        """Peeks in a month by which clients learn what others have failed over, and how late it is there."""
        if not (self.board and self.shared_findings):
            return 0.0
        processes, suspect_s = self.clients + self.syphons, min(self.failover_s, self.outage_s)
        first = _first_look(processes / (CALM_EVERY_S * POST_SHARE))
        new = processes * (POSTS_WHILE_SUSPECT + suspect_s / (BUSY_EVERY_S * POST_SHARE))
        in_outages = self.outages * (first + suspect_s / LOOK_EVERY_S + new)
        return self.clients * (first * HOURS_A_MONTH * 3600 / TIME_GOOD_S + in_outages)

    @property
    def idle_polls(self) -> float:
        """In a month: a long poll of 15 minutes for each queue and host."""
        return self.queues * self.syphons * HOURS_A_MONTH * 60 / POLL_MIN


def _first_look(per_second: float) -> float:
    """Peeks that it takes to find the reports that are fresh and to read them, if so many are posted."""
    kept = per_second * LIFE_S
    if kept < FIRST_PAGE:
        return kept + 1
    return FIRST_PAGE + 3 * log2(kept) + per_second * FRESH_S + 1


def _problems(usage: Usage) -> Iterator[str]:
    at_least = {"entities": 1, "size_bytes": 1, "clients": 1, "queues": 1, "syphons": 0, "rate": 0, "outages": 0}
    at_least |= {"outage_s": 0, "failover_s": 0, "board_looks": 0}
    for name, least in at_least.items():
        if not least <= getattr(usage, name) < float("inf"):
            yield f"{name} is at least {least}, got {getattr(usage, name)}"
    if not 1 <= usage.look_s < float("inf"):
        yield f"look_s is at least 1, got {usage.look_s}"
    if not 1 <= usage.ping_s <= 1800:
        yield f"ping_s is from 1 to 1800, got {usage.ping_s}"
    if usage.shared_findings and not usage.board:
        yield "shared_findings needs board: findings are shared there"
    if usage.outages * usage.outage_s > HOURS_A_MONTH * 3600:
        yield "the outages take longer than a month"


def uses(usage: Usage) -> dict[Stage, Use]:
    """What a month uses, stage by stage."""
    detours, size = usage.detours, usage.size_bytes
    direct, detoured_size = usage.messages - detours, size + ALIAS_BYTES
    return {
        Stage.SEND: _moved(direct, size),
        Stage.SEND_BACKLOG: _moved(detours, detoured_size),
        Stage.RECEIVE_BACKLOG: _moved(detours, detoured_size + DELIVERY_BYTES),
        Stage.SETTLE_BACKLOG: Use(detours, 0, detours),
        Stage.SEND_HOME: _moved(detours, size),
        Stage.RECEIVE: _moved(usage.messages, size + DELIVERY_BYTES),
        Stage.SETTLE: Use(usage.messages, 0, usage.messages),
        Stage.PING: Use(usage.pings, usage.pings, usage.pings, usage.pings * PING_BYTES),
        Stage.IDLE: Use(0, usage.idle_polls, usage.idle_polls),
        # One peek for each queue, if it is empty or its first message alone is looked at; more while messages wait.
        Stage.LOOK: Use(
            0, 0, usage.looks * usage.queues + usage.watches, usage.watched * (detoured_size + DELIVERY_BYTES)
        ),
        **_board_uses(usage),
        # One listing by each client and syphon when it starts, the queues that are made once, looks, and searches.
        Stage.MANAGE: Use(0, 0, usage.clients + usage.syphons + usage.queues + _requests(usage)),
    }


def _board_uses(usage: Usage) -> dict[Stage, Use]:
    if not usage.board:
        return {}
    posts, peeks = usage.posts, usage.board_clearings + usage.board_reads + usage.shared_reads
    return {
        Stage.BOARD: Use(0, posts, posts, posts * REPORT_BYTES),
        Stage.BOARD_READ: Use(0, 0, peeks, peeks * (REPORT_BYTES + DELIVERY_BYTES)),
    }


def _requests(usage: Usage) -> float:
    """Of the administration, in a month of work."""
    return usage.looks * LOOK_REQUESTS + usage.searches


def _moved(messages: float, size: int) -> Use:
    return Use(messages, messages, messages * ceil(size / STEP_BYTES), messages * size)


@dataclass(frozen=True, slots=True)
class Capacity:
    """How large the backlog has to be for one outage."""

    messages: float
    bytes: float
    queues_needed: int
    queues: int
    hours: float | None
    """How long an outage the queues asked for can take; None: for ever."""

    @property
    def is_enough(self) -> bool:
        return self.queues >= self.queues_needed


def capacity(usage: Usage) -> Capacity:
    """Sized for the longest of the outages; a queue is planned for twice its even share."""
    per_outage = usage.rate * usage.failed_over_s
    per_second = usage.rate * (usage.size_bytes + ALIAS_BYTES)
    needed = max(1, ceil(per_outage * (usage.size_bytes + ALIAS_BYTES) * SPREAD / BACKLOG_QUEUE_BYTES))
    hours = usage.queues * BACKLOG_QUEUE_BYTES / (per_second * SPREAD) / 3600 if per_second else None
    return Capacity(per_outage, per_outage * (usage.size_bytes + ALIAS_BYTES), needed, usage.queues, hours)


@dataclass(frozen=True, slots=True)
class Forecast:
    usage: Usage
    bill: Bill
    capacity: Capacity
    alternatives: list[Alternative]
    prices: Prices

    def as_dict(self) -> dict[str, Any]:
        return {
            "usage": asdict(self.usage),
            "bill": self.bill.as_dict(),
            "backlog": asdict(self.capacity) | {"is_enough": self.capacity.is_enough},
            "alternatives": [asdict(each) for each in self.alternatives],
            "prices": {"as_of": self.prices.as_of, "source": self.prices.source},
        }


def forecast(usage: Usage, prices: Prices | None = None) -> Forecast:
    """What a month costs, what the backlog needs, and what else there is to buy."""
    prices = prices or Prices()
    used = uses(usage)
    base_usd = prices.standard_usd_a_month + prices.connections_usd(2 * (usage.clients + usage.syphons))
    of_month = bill("a month", used, prices, base_usd=base_usd)
    alone = sum(used[stage].full for stage in NOT_FROM_PAIRING)
    out_hours = usage.outages * usage.outage_s / 3600
    others = alternatives(alone, usage.messages * usage.size_bytes, out_hours, prices)
    return Forecast(usage, of_month, capacity(usage), others, prices)
