"""What a look at a pair from outside has shown.

None means unknown, never nothing: what the credential may not read, or what a namespace does not tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from typing import Any

from twinbus.client.inspection.inspection_cost import LookCost

LONG_POLL_S = 15 * 60.0
UNTOUCHED_S = LONG_POLL_S + 60.0
"""A message that nobody has had in hand for that long: whoever syphons would have."""
GROWTH_AGE_S_MIN = 60.0
"""Younger backlogs say little about how fast they grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideReport:
    """One of the two namespaces."""

    name: str
    address: str
    is_reachable: bool
    problem: str | None = None
    """What it said instead of letting us in, or why it said nothing."""
    refuses_key: bool = False
    """It answers, and refuses the key whatever is asked for: so nothing is known of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbilityReport:
    """Whether one thing can be done with an entity."""

    works: bool | None
    """None: unknown, because it could not be asked."""
    why: str | None = None
    """Why it does not work, or is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityReport:
    """One queue or topic of the primary."""

    entity: str
    kind: str
    sending: AbilityReport
    receiving: AbilityReport
    """Of a topic: from all of its subscriptions."""
    managing: AbilityReport
    waiting: int | None = None
    """Messages for it in the backlog, exactly; None: not all messages there were looked at."""
    waiting_at_least: int = 0
    """Messages for it that were seen there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """One backlog queue."""

    path: str
    exists: bool | None
    problem: str | None = None
    """Why it can be neither sent to nor read with this credential; None: it can."""
    refuses_key: bool = False
    """That is because the key is refused: so nothing is known of the queue itself."""
    takes_messages: bool | None = None
    """Whether a link to send was opened; None: the credential may not send, as that of a syphon."""
    is_readable: bool = False
    """Whether it could be peeked into."""
    shut: str | None = None
    """Why no syphon can empty it, and what would help: then what is sent to it does not come home. None: one can, as
    far as anybody here knows."""
    differs: tuple[str, ...] = ()
    """Settings that are not those of a new backlog queue."""
    active: int | None = None
    """Messages that wait in it, exactly."""
    at_least: int = 0
    """A lower bound of that, from the messages that were seen."""
    dead_letters: int | None = None
    """Messages in quarantine, exactly."""
    dead_letters_at_least: int = 0
    """A lower bound of that, from those that were seen."""
    size_bytes: int | None = None
    size_bytes_max: int | None = None
    oldest_age_s: float | None = None
    """None if it is empty, too."""
    oldest_was_delivered: bool = False
    accessed_at: float | None = None

    @property
    def syphon_seen(self) -> bool | None:
        """Whether somebody seems to bring its messages home; an empty queue tells nothing."""
        if self.oldest_was_delivered:
            return True
        return False if (self.oldest_age_s or 0.0) > UNTOUCHED_S else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    at: float
    """Seconds since 1970."""
    primary: SideReport
    secondary: SideReport
    queues: tuple[QueueReport, ...]
    extra: tuple[QueueReport, ...] = ()
    """Backlog queues of this primary beyond the count: nobody here sends to them, and what lies there counts."""
    doubt: str | None = None
    """Why nobody can say that there are no more than these; None: there are not."""
    unlisted: str | None = None
    """Why counts and settings are unknown; None: they are known."""
    entities: tuple[EntityReport, ...] = ()
    """Queues and topics of the primary, if they were asked about."""
    entities_unlisted: str | None = None
    """Why nobody can say that these are all; None: they are, or are those that were named."""
    earlier: Inspection | None = None
    """A look before this one, to compare with."""
    cost: LookCost = field(default_factory=LookCost)

    @property
    def shut(self) -> list[QueueReport]:
        """The queues that no syphon can empty."""
        return [queue for queue in self.queues_there if queue.shut is not None]

    @property
    def waiting_messages(self) -> int | None:
        """Exactly, or None: if nobody can say how many queues there are, or messages may have gone elsewhere, too."""
        is_unknown = self.doubt is not None or bool(self.shut)
        return None if is_unknown else self._sum([queue.active for queue in self.queues_there])

    @property
    def waiting_at_least(self) -> int | None:
        """Messages that were seen, of those that wait; None: nobody could look anywhere."""
        known = [queue for queue in self.queues_there if queue.active is not None or queue.is_readable]
        return sum([queue.at_least if queue.active is None else queue.active for queue in known]) if known else None

    @property
    def unread_queues(self) -> int:
        """Queues of which nobody knows what lies in them, or that no syphon can empty."""
        unread = [queue for queue in self.queues_there if queue.active is None and not queue.is_readable]
        return len({queue.path for queue in (*unread, *self.shut)})

    @property
    def queues_there(self) -> list[QueueReport]:
        """All but those that are known not to exist."""
        return [queue for queue in (*self.queues, *self.extra) if queue.exists is not False]

    def _sum(self, numbers: Sequence[int | None]) -> int | None:
        """None if one of them is unknown, or if there is nothing to add up and nobody says that it is so."""
        known = [number for number in numbers if number is not None]
        return sum(known) if len(known) == len(numbers) and self.secondary.is_reachable else None

    @property
    def dead_letters(self) -> int | None:
        return self._sum([queue.dead_letters for queue in self.queues_there])

    @property
    def size_bytes(self) -> int | None:
        return self._sum([queue.size_bytes for queue in self.queues_there])

    @property
    def oldest_age_s(self) -> float | None:
        """Of the oldest message that was seen; what lies in `unread_queues` may be older."""
        return max((queue.oldest_age_s for queue in self.queues_there if queue.oldest_age_s is not None), default=None)

    @property
    def syphon_seen(self) -> bool | None:
        """True if one queue shows it, or the backlog shrinks; False if messages lie untouched; None: unknown."""
        before, now = (None if self.earlier is None else self.earlier.waiting_messages), self.waiting_messages
        if before is not None and now is not None and now < before:
            return True
        seen = {queue.syphon_seen for queue in self.queues_there}
        return True if True in seen else False if False in seen else None

    @property
    def bytes_per_s(self) -> float | None:
        """How fast the backlog grows: since the earlier look, or else since its oldest message came."""
        size, age = self.size_bytes, self.oldest_age_s
        if size is None:
            return None
        if self.earlier is not None and self.earlier.size_bytes is not None and self.at > self.earlier.at:
            return (size - self.earlier.size_bytes) / (self.at - self.earlier.at)
        if size == 0:
            return 0.0
        return size / age if age is not None and age >= GROWTH_AGE_S_MIN else None

    @property
    def capacity_hours(self) -> float | None:
        """How long there is room at the rate at which the backlog grows; infinite while it does not."""
        used = [queue for queue in self.queues if queue.exists is not False]  # what is beyond the count gives no room
        room, rate = self._sum([queue.size_bytes_max for queue in used]), self.bytes_per_s
        filled = self._sum([queue.size_bytes for queue in used])
        if room is None or rate is None or filled is None:
            return None
        return inf if rate <= 0 else max(0.0, room - filled) / rate / 3600

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; room without end is None there, with `is_filling` false."""
        hours = self.capacity_hours
        return {
            "at": self.at,
            "primary": asdict(self.primary),
            "secondary": asdict(self.secondary),
            "queues": [asdict(queue) | {"syphon_seen": queue.syphon_seen} for queue in self.queues],
            "extra_queues": [asdict(queue) | {"syphon_seen": queue.syphon_seen} for queue in self.extra],
            "entities": [asdict(entity) for entity in self.entities],
            "entities_unlisted": self.entities_unlisted,
            "doubt": self.doubt,
            "unlisted": self.unlisted,
            "waiting_messages": self.waiting_messages,
            "waiting_at_least": self.waiting_at_least,
            "unread_queues": self.unread_queues,
            "dead_letters": self.dead_letters,
            "size_bytes": self.size_bytes,
            "oldest_age_s": self.oldest_age_s,
            "syphon_seen": self.syphon_seen,
            "capacity_hours": hours if hours is not None and isfinite(hours) else None,
            "is_filling": None if hours is None else isfinite(hours),
        }
