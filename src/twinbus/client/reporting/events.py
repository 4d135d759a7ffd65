"""Events of a paired client: a name, a line for people, details for programs; every one is a log record too."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType

from twinbus.errors import OptionsError
from twinbus.plain_text import as_word

LOGGER = logging.getLogger("twinbus.pairing")
VALUE_LENGTH_MAX = 500
"""Characters of one value in a log line: a reason may quote what a server said at any length."""
ITEMS_MAX = 10


class PairEventName(StrEnum):
    """What can happen; the word to give to `on`."""

    SUSPECT = "suspect"
    """An entity's sends fail; the failover interval has begun."""
    TRUSTED_AGAIN = "trusted_again"
    """A suspect entity took a message, or was marked as healthy, before the interval was over."""
    FAILED_OVER = "failed_over"
    """An entity's messages go to the backlog from now on."""
    BACKLOG_QUEUE_LOST = "backlog_queue_lost"
    """A backlog queue failed and is left alone for the time of its probation."""
    BACKLOG_QUEUE_BACK = "backlog_queue_back"
    """A backlog queue that was lost takes messages again."""
    SECONDARY_UNREACHABLE = "secondary_unreachable"
    """Nobody can connect to the secondary; sends that need it wait for trials, as long as their callers do."""
    SECONDARY_BACK = "secondary_back"
    """The secondary can be connected to again."""
    SPOOLING = "spooling"
    """Neither namespace takes an entity's messages: they go to the spool from now on."""
    SPOOL_FULL = "spool_full"
    """The spool does not take them either: it is full, or its disk fails. Reported again after it took messages."""
    SPOOL_HOME = "spool_home"
    """Everything that was in the spool has gone on: home, or to the backlog."""
    SPOOL_UNUSABLE = "spool_unusable"
    """A folder of the spool, with messages of a process that ended, cannot be used: it is left as it is."""
    PING_SENT = "ping_sent"
    """The primary is asked whether an entity is back."""
    PING_FAILED = "ping_failed"
    """It is not back yet."""
    RECOVERED = "recovered"
    """An entity's messages go to the primary again."""
    HELD = "held"
    """A send is held until the entity recovers or fails over."""
    RELEASED = "released"
    """A send that was held waits no longer: it was sent, or given up."""
    IN_DOUBT = "in_doubt"
    """An attempt ended without an answer: the messages may be stored, and may be stored twice."""
    BUSY = "busy"
    """A namespace is busy: what it refused is not sent there again for a while; another backlog queue may take it."""
    TOO_LARGE_FOR_DETOUR = "too_large_for_detour"
    """A message fits the primary and would not fit a backlog queue. Reported once an entity."""
    RESERVED_PROPERTY = "reserved_property"
    """A message uses a property name that the detour needs for itself. Reported once an entity."""
    SECONDARY_IN_TROUBLE = "secondary_in_trouble"
    """The secondary could not take a backlog if it were needed now."""
    PAIRING_WARNING = "pairing_warning"
    """The pairing works, but something about it is probably misconfigured."""
    FLAPPING = "flapping"
    """An entity goes back and forth; each time more pings must succeed before it returns."""
    SYPHON_MISSING = "syphon_missing"
    """Messages wait in the backlog, and nobody seems to bring them home."""
    DESTINATION_DOWN = "destination_down"
    """The syphon cannot bring messages home to an entity; it passes them over and tries again."""
    DESTINATION_UP = "destination_up"
    """An entity takes messages of the syphon again."""
    QUEUE_DOWN = "queue_down"
    """The syphon cannot read a backlog queue, or reach the secondary; it tries again."""
    QUEUE_UP = "queue_up"
    """It can be read again."""
    BACKLOG_HOME = "backlog_home"
    """The outage is over, and every backlog queue was seen empty after a minute in which nothing came. Reported once an
    outage, by a client that has a syphon."""
    QUARANTINED = "quarantined"
    """A message can never come home and lies in a dead-letter queue of the backlog or of the spool. Reported once an
    entity."""
    LOCKS_LOST = "locks_lost"
    """The syphon was too slow for the locks of many messages at once: they come again, and it takes fewer at a time."""
    EXTRA_QUEUE = "extra_queue"
    """Messages lie in a backlog queue beyond the count of this client: a sender elsewhere has more. They come home."""
    NOT_LISTED = "not_listed"
    """Messages in the backlog are for an entity not in `syphon_entities`: they stay. Reported once an entity."""
    CLOCK_DIFFERS = "clock_differs"
    """The secondary's clock, or the lock duration of its backlog queues, is not what the syphon expects."""
    REFUSED = "refused"
    """No backlog queue lets the syphon in, and that for long: its credential is of no use. A fault follows."""
    BOARD_UNUSABLE = "board_unusable"
    """This process cannot report on the board; it tries again, and everything else works on."""
    BOARD_USABLE = "board_usable"
    """It can again."""
    RECEIVE_FAILED = "receive_failed"
    """A receiver of this client cannot receive from an entity or subscription of the primary."""
    RECEIVE_WORKS = "receive_works"
    """It can again."""
    MANAGE_FAILED = "manage_failed"
    """An entity of the primary cannot be managed, as an administrative call of this process has found."""
    MANAGE_WORKS = "manage_works"
    """It can again."""
    PRIMARY_UNREACHABLE = "primary_unreachable"
    """Nobody can connect to the primary, or it is silent: more than that one entity takes no messages."""
    PRIMARY_BACK = "primary_back"
    """The primary can be contacted again; whether its entities work is another question."""
    SIDE_CLOSED = "side_closed"
    """One of the two sides was closed, or can never be used again."""
    FAULTED = "faulted"
    """The pairing has ended for good; every call raises from now on."""
    CLOSED = "closed"
    """The client was closed. The last event there is."""


LEVELS: Mapping[PairEventName, int] = MappingProxyType(
    dict.fromkeys(PairEventName, logging.WARNING)  # whoever was shown a trouble is shown its end
    | {
        PairEventName.FAILED_OVER: logging.ERROR,
        PairEventName.SECONDARY_UNREACHABLE: logging.ERROR,
        PairEventName.PRIMARY_UNREACHABLE: logging.ERROR,
        PairEventName.PING_SENT: logging.DEBUG,
        PairEventName.PING_FAILED: logging.INFO,
        PairEventName.HELD: logging.INFO,
        PairEventName.RELEASED: logging.INFO,
        PairEventName.SPOOLING: logging.ERROR,
        PairEventName.SPOOL_FULL: logging.ERROR,
        PairEventName.SPOOL_UNUSABLE: logging.ERROR,
        PairEventName.SECONDARY_IN_TROUBLE: logging.ERROR,
        PairEventName.REFUSED: logging.ERROR,
        PairEventName.FAULTED: logging.CRITICAL,
        PairEventName.CLOSED: logging.INFO,
    }
)


@dataclass(frozen=True, slots=True)
class PairEvent:
    """One thing that happened."""

    name: PairEventName
    text: str
    """One line for people: what, and why."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    entity: str | None = None
    """The queue or topic it is about; None: it is about the pair."""
    namespace: str | None = None
    """The namespace it is about."""
    details: Mapping[str, object] = field(default_factory=dict)
    """More, for programs; which keys there are depends on the name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", parse_event_name(self.name))
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    def __reduce__(self) -> tuple[type[PairEvent], tuple[object, ...]]:
        return PairEvent, (self.name, self.text, self.at, self.entity, self.namespace, dict(self.details))

    def __str__(self) -> str:
        """One line to grep in: `event=failed_over entity=orders namespace=contoso epoch=1 reason="unreachable"`."""
        words: dict[str, object] = {"event": self.name.value, "entity": self.entity, "namespace": self.namespace}
        words |= {key: value for key, value in self.details.items() if key not in words and key != "reason"}
        words["reason"] = self.text
        return " ".join(
            f"{key}={as_word(_as_text(value), VALUE_LENGTH_MAX)}" for key, value in words.items() if value is not None
        )

    def log(self) -> None:
        """Write it to the logger `twinbus.pairing`, fields attached; never raises, whatever the handlers do."""
        level = LEVELS[self.name]
        if not LOGGER.isEnabledFor(level):
            return
        fields = {
            "twinbus_event": self.name.value,
            "twinbus_entity": self.entity,
            "twinbus_namespace": self.namespace,
            "twinbus_details": dict(self.details),
        }
        try:
            LOGGER.log(level, "%s", self, extra=fields)
        except Exception:  # a send is under way, and a broken log handler is no reason to lose it
            return


def parse_event_name(text: str) -> PairEventName:
    """The name that is written so; raises `OptionsError` with those there are."""
    try:
        return PairEventName(text)
    except ValueError:
        raise OptionsError(f"no event is called {text!r}: there are {', '.join(PairEventName)}") from None


def _as_text(value: object) -> str:
    match value:
        case float():
            return f"{value:.3f}".rstrip("0").rstrip(".")
        case tuple() | list():  # ids of a batch, say: the first ones find the rest
            more = f" and {len(value) - ITEMS_MAX} more" if len(value) > ITEMS_MAX else ""
            return ",".join(map(str, value[:ITEMS_MAX])) + more
        case _:
            return str(value)
