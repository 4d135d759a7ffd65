"""Where forwarded messages must end up, said once more and as plainly as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from twinbus.broker.entities.settings import QueueSettings, QueueStatus

HOPS = 4
TRANSFERS = "/$transfer/$deadletterqueue"
TOPIC = "topic"
QUEUES = ("q0", "q1", "q2", "q3", "q4", "q5")
SUBSCRIPTIONS = (f"{TOPIC}/Subscriptions/s0", f"{TOPIC}/Subscriptions/s1")


@dataclass(slots=True)
class Map:
    """Who forwards to whom."""

    settings: dict[str, QueueSettings] = field(default_factory=dict)
    """Of queues and subscriptions that exist."""

    def ends(self, path: str, hops: int = 0) -> Counter[str]:
        """Where the copies of a message come to rest that has come to a path."""
        if path == TOPIC:
            return sum((self.ends(each, hops) for each in SUBSCRIPTIONS), Counter())
        target = self.settings[path].forward_to
        if target is None:
            return Counter([path])
        if hops == HOPS or not self._takes(target):
            return Counter([path + TRANSFERS])
        return self.ends(target, hops + 1)

    def _takes(self, target: str) -> bool:
        return target == TOPIC or (target in self.settings and self.settings[target].status is QueueStatus.ACTIVE)

    def is_simple(self, path: str) -> bool:
        """Whether messages that are sent there stay in line: one way, and no loop; behind a topic the way ends."""
        seen = [path]
        while path != TOPIC and path in self.settings and (target := self.settings[path].forward_to) is not None:
            if target in seen:
                return False
            seen.append(path := target)
        return path != TOPIC or all(self.settings[each].forward_to is None for each in SUBSCRIPTIONS)


def draw_settings(random: Random, path: str, targets: Sequence[str], *, dies: bool, detects: bool) -> QueueSettings:
    """Settings of a queue or subscription that may forward to some of these."""
    others: list[str | None] = [*targets] or [None]
    is_closed = path in QUEUES and random.random() < 0.15
    return QueueSettings(
        forward_to=random.choice(others) if random.random() < 0.7 else None,
        forward_dead_letters_to=random.choice(others) if dies and random.random() < 0.6 else None,
        default_ttl_ms=random.choice((1_000, 5_000)) if dies and random.random() < 0.6 else None,
        dead_letter_on_expiration=True,
        requires_duplicate_detection=detects and path in QUEUES,
        status=QueueStatus.SEND_DISABLED if is_closed else QueueStatus.ACTIVE,
    )
