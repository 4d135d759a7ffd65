"""How a pair is doing at one moment: values to look at, to print, and to turn into JSON.

None means *unknown*, never *nothing*: what the credential may not read, or nobody looked at yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from math import isfinite
from typing import Any

from twinbus.client.reporting.order_status import OrderStatus
from twinbus.deprecated import warn_of
from twinbus.pairing.primary_abilities import Ability
from twinbus.plain_text import LINE_LENGTH_MAX, harmless, on_one_line
from twinbus.units import clock_time, offset_time, rough_duration, size_text


class EntityState(StrEnum):
    """Where an entity's messages go, and whether that is in question."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED_OVER = "failed over"


class Phase(StrEnum):
    """How far the pair as a whole is."""

    NEW = "not paired yet"
    PAIRED = "paired"
    FAULTED = "faulted"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityStatus:
    """One queue or topic of the primary."""

    entity: str
    state: EntityState = EntityState.HEALTHY
    since: datetime | None = None
    """When it came into this state; None: it was never in another one."""
    reason: str = ""
    """Why it is not healthy; empty if it is."""
    epoch: int = 0
    """How often the side on which its sends belong has changed."""
    stays: bool = False
    """Failed over by a person, until a person brings it back: no ping will."""
    waits_for_message: bool = False
    """Links to the primary open: the next message that is sent tries it, and brings the entity back if it is stored."""
    next_ping_at: datetime | None = None
    pings_sent: int = 0
    pings_failed: int = 0
    last_ping_failure: str | None = None
    failovers: int = 0
    flaps: int = 0
    """Failovers that came soon after a recovery."""
    sent_to_primary: int = 0
    """Messages that the primary accepted."""
    sent_to_backlog: int = 0
    """Messages that a backlog queue accepted."""
    sent_to_spool: int = 0
    """Messages that were stored in the spool, because neither namespace took them."""
    held_now: int = 0
    """Sends held until the entity recovers or fails over."""
    held_bytes: int = 0
    copies_in_doubt: int = 0
    """Messages of attempts that ended without an answer: each may be stored once more than the receipt says."""
    duplicate_detection: str = "unknown"
    """Whether the primary would drop such copies, as far as the credential may know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQueueStatus:
    """One backlog queue of the secondary."""

    path: str
    in_rotation: bool = True
    lost_until: datetime | None = None
    """When it may be tried again; None: it is in the rotation."""
    reason: str = ""
    """Why it is lost; empty if it is not."""
    sent: int = 0
    """Messages of this client that it accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondaryStatus:
    """The secondary, as it was found when somebody last looked; whether it can be connected to, as of now."""

    unreachable_since: datetime | None = None
    """Since when sends find nobody to connect to; None: it can be connected to, as far as this client knows."""
    unreachable_reason: str = ""
    next_trial_at: datetime | None = None
    """When the next trial may begin, while it is unreachable."""
    waiting_sends: int = 0
    """Sends of this client that wait for a trial."""
    checked_at: datetime | None = None
    warnings: tuple[str, ...] = ()
    """What was noticed about the pairing, one line each."""
    queue_settings: str = "unknown"
    """Whether backlog queues that existed have the settings they should: good, risky (see the warnings), or unknown,
    as where the credential may not list them."""
    looked_at: datetime | None = None
    """When somebody here last looked into the backlog; what follows is as of then. None: nobody has."""
    waiting_messages: int | None = None
    """Messages in all backlog queues of this primary, of every client, exactly."""
    waiting_at_least: int | None = None
    """Those of them that were seen: there may be more. None: nobody could look into any queue."""
    unread_queues: int | None = None
    """Backlog queues that could not be looked into, or that no syphon can empty."""
    oldest_age_s: float | None = None
    """Age of the oldest message that was seen."""
    capacity_hours: float | None = None
    """How long the backlog queues would last at the rate at which they are filling; infinite if they are not."""
    syphon_seen: bool | None = None
    """Whether somebody seems to bring the backlog home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentToBacklog:
    """What this client itself has put into the backlog, since it was last seen empty. Some of it may be home by now,
    and other clients may have put in more."""

    messages: int = 0
    size_bytes: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonStatus:
    """The syphon of this process; counts since it began."""

    state: str = "running"
    moved: int = 0
    """Messages that are stored at home and gone from the backlog."""
    moved_bytes: int = 0
    rate: float = 0.0
    """Messages a second, lately."""
    repeated: int = 0
    """Messages that were stored at home and come again, because their lock ended too soon."""
    in_doubt: int = 0
    """Messages that were sent home without an answer; they come again."""
    quarantined: int = 0
    """Messages that can never come home."""
    expired: int = 0
    """Messages whose time to live ended in the backlog."""
    released: int = 0
    """Messages that were given back, because their entity was down."""
    outside: int = 0
    """Messages for entities that are not among `syphon_entities`: they stay in the backlog."""
    held: int = 0
    """Messages that it has under lock."""
    left: int | None = None
    """About how many are still to come; None: nobody has counted."""
    seconds_left: float | None = None
    """What that takes at the present rate."""
    oldest_age_s: float | None = None
    """How long the oldest message it knows of has been in the backlog."""
    destinations_down: tuple[str, ...] = ()
    """Entities to which nothing can be brought home at the moment."""
    troubles: tuple[str, ...] = ()
    """Backlog queues that cannot be read, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStatus:
    """The spool of this process, on its local disk; counts of what left it are since it began."""

    folder: str
    messages: int = 0
    """Messages in it that wait for one of the namespaces."""
    size_bytes: int = 0
    """Of all messages in it, those in quarantine too."""
    size_bytes_max: int = 0
    quarantined: int = 0
    """Messages in it that were put aside: expired, or refused for good."""
    sent_home: int = 0
    """Messages that the primary has stored."""
    sent_to_backlog: int = 0
    """Messages that went on to backlog queues, because their entity was still down."""
    left_behind: int = 0
    """Messages in folders of processes that ended, which this one brings home."""
    reason: str = ""
    """Why nothing can be stored in it; empty if it can."""
    problems: tuple[str, ...] = ()
    """Folders of the spool that cannot be used, and why: what is in them stays there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbilityStatus:
    """Whether an entity or subscription of the primary can be received from, or managed, as calls of this process have
    found. Nobody asks on purpose: what was never tried is not listed."""

    path: str
    ability: Ability
    works: bool
    since: datetime
    """When it was first found to be so."""
    reason: str = ""
    """Why it does not work; empty if it does."""
    failures: int = 0
    """Attempts that failed, in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryStatus:
    """The primary as a whole."""

    unreachable_since: datetime | None = None
    """Since when nobody can connect to it, or it is silent; None: it can be contacted, as far as this process knows."""
    unreachable_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardStatus:
    """What this process does on the board."""

    path: str
    """The queue of the secondary."""
    instance: str = ""
    """What it is called there."""
    posts: int = 0
    """Reports that were stored."""
    posted_at: datetime | None = None
    """When the last one was."""
    reason: str = ""
    """Why nothing can be posted; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A pair at one moment. Printing it gives a table, `as_dict` what `json.dumps` takes."""

    at: datetime
    primary: str
    """The primary namespace's name."""
    secondary: str
    """The secondary namespace's name, or its address if it has none."""
    phase: Phase = Phase.PAIRED
    fault: str | None = None
    """Why the pair ended, if it did by a fault."""
    entities: tuple[EntityStatus, ...] = ()
    abilities: tuple[AbilityStatus, ...] = ()
    """What can be received from and managed; whether an entity can be sent to is in `entities`."""
    primary_status: PrimaryStatus = field(default_factory=PrimaryStatus)
    backlog_queues: tuple[BacklogQueueStatus, ...] = ()
    secondary_status: SecondaryStatus = field(default_factory=SecondaryStatus)
    sent_to_backlog: SentToBacklog = field(default_factory=SentToBacklog)
    syphon: SyphonStatus | None = None
    """None: this process does not bring the backlog home."""
    spool: SpoolStatus | None = None
    """None: this client has no spool."""
    board: BoardStatus | None = None
    """None: this process does not report on the board."""
    order: OrderStatus | None = None
    """What keeps sessions in the backlog, with `order="session"`; None without it."""
    events_dropped: int = 0
    """Callbacks that were not called because too many events were waiting."""
    probe: str = "link"
    """How entities that are failed over are asked whether they are back: ping or link."""
    probe_reason: str = ""
    """Why so."""

    @property
    def news_dropped(self) -> int:
        """The old name of `events_dropped`."""
        warn_of("twinbus.Status.news_dropped", "twinbus.Status.events_dropped")
        return self.events_dropped

    @property
    def is_healthy(self) -> bool:
        """Whether everything is as it should be: paired, no entity in question, secondary and its queues usable."""
        return (
            self.phase is Phase.PAIRED
            and self.secondary_status.unreachable_since is None
            and all(entity.state is EntityState.HEALTHY for entity in self.entities)
            and self.primary_status.unreachable_since is None
            and all(each.works for each in self.abilities)
            and all(queue.in_rotation for queue in self.backlog_queues)
            and (self.spool is None or not (self.spool.reason or self.spool.problems))
        )

    def entity(self, path: str) -> EntityStatus | None:
        """The entity of that name, whatever its case; None if this client knows none."""
        return next((entity for entity in self.entities if entity.entity.lower() == path.lower()), None)

    def as_dict(self) -> dict[str, Any]:
        """Plain values only; times in ISO 8601."""
        plain: dict[str, Any] = asdict(self, dict_factory=_plain_dict)
        return plain | {"news_dropped": self.events_dropped}  # the old key, see deprecated.py

    def __str__(self) -> str:
        """For people, e.g. at a prompt: whatever a server said, a line stays one line of text."""
        return "\n".join(harmless(line)[:LINE_LENGTH_MAX] for line in _lines(self))


def _plain_dict(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in pairs}


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return offset_time(value)
        case StrEnum():
            return value.value
        case tuple():
            return [_plain(each) for each in value]
        case float() if not isfinite(value):
            return None  # JSON has no word for it
        case _:
            return value


# --- as a table ---

CELL_LENGTH_MAX = 300
ENTITY_COLUMNS = ("held", "in doubt", "failovers", "next ping", "reason")


def _lines(status: Status) -> Iterator[str]:
    why = f" ({status.fault})" if status.fault else ""
    yield f"{status.primary} -> {status.secondary}: {status.phase.value}{why}, {clock_time(status.at)} UTC"
    yield ""
    if status.entities:
        has_spool = status.spool is not None
        yield from _table(
            ("entity", "state", "for", "primary", "backlog", *(["spool"] if has_spool else []), *ENTITY_COLUMNS),
            [_entity_row(entity, status.at, has_spool=has_spool) for entity in status.entities],
        )
    else:
        yield "nothing was sent yet"
    yield from _primary_lines(status)
    if status.backlog_queues:
        yield ""
        rows = [_queue_row(queue, status.at) for queue in status.backlog_queues]
        yield from _table(("backlog queue", "state", "sent", "reason"), rows)
    yield ""
    if status.secondary_status.unreachable_since is not None:
        yield _unreachable_line(status.secondary_status, status.at)
    yield _secondary_line(status.secondary_status, status.at)
    if status.secondary_status.checked_at is not None:
        yield f"backlog: queue settings {status.secondary_status.queue_settings}"
    if status.sent_to_backlog.messages:
        yield _sent_line(status.sent_to_backlog, status.at)
    if status.probe_reason:
        yield f"probe: {status.probe} ({status.probe_reason})"
    if status.syphon is not None:
        yield from _syphon_lines(status.syphon)
    if status.spool is not None:
        yield from _spool_lines(status.spool)
    if status.board is not None:
        yield _board_line(status.board, status.at)
    if status.order is not None:
        yield from _order_lines(status.order)
    for warning in status.secondary_status.warnings:
        yield f"warning: {warning}"


def _entity_row(entity: EntityStatus, now: datetime, *, has_spool: bool) -> Sequence[str]:
    return (
        entity.entity,
        entity.state.value + _what_it_waits_for(entity),
        "" if entity.since is None else rough_duration((now - entity.since).total_seconds()),
        str(entity.sent_to_primary),
        str(entity.sent_to_backlog),
        *([str(entity.sent_to_spool)] if has_spool else []),
        str(entity.held_now),
        str(entity.copies_in_doubt),
        str(entity.failovers),
        _until(entity.next_ping_at, now),
        entity.reason,
    )


def _primary_lines(status: Status) -> Iterator[str]:
    since = status.primary_status.unreachable_since
    if since is not None:
        for_how_long = rough_duration((status.at - since).total_seconds())
        why = " ".join(status.primary_status.unreachable_reason.split())
        yield f"primary: cannot be contacted for {for_how_long} ({why})"
    for each in status.abilities:
        if not each.works:
            for_how_long, why = rough_duration((status.at - each.since).total_seconds()), " ".join(each.reason.split())
            yield f"primary: cannot {each.ability.value} {each.path} for {for_how_long} ({why})"


def _what_it_waits_for(entity: EntityStatus) -> str:
    if entity.stays:
        return " (stays)"
    return " (waits for a message to prove the primary)" if entity.waits_for_message else ""


def _queue_row(queue: BacklogQueueStatus, now: datetime) -> Sequence[str]:
    state = "in rotation" if queue.in_rotation else "lost, tried again " + (_until(queue.lost_until, now) or "later")
    return (queue.path, state, str(queue.sent), queue.reason)


def _until(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return ""
    left_s = (moment - now).total_seconds()
    return "now" if left_s < 1 else f"in {rough_duration(left_s)}"


def _unreachable_line(secondary: SecondaryStatus, now: datetime) -> str:
    assert secondary.unreachable_since is not None
    facts = [f"unreachable for {rough_duration((now - secondary.unreachable_since).total_seconds())}"]
    facts += [f"next trial {_until(secondary.next_trial_at, now)}"] if secondary.next_trial_at is not None else []
    facts += [f"{secondary.waiting_sends} sends wait"] if secondary.waiting_sends else []
    return f"secondary: {', '.join(facts)} ({' '.join(secondary.unreachable_reason.split())})"


def _secondary_line(secondary: SecondaryStatus, now: datetime) -> str:
    if secondary.checked_at is None:
        return "backlog: not looked at yet"
    if secondary.looked_at is None:
        return f"backlog: can be used as of {_ago(secondary.checked_at, now)}, not looked into yet"
    syphon = {None: "unknown", True: "seen", False: "not seen"}[secondary.syphon_seen]
    at_least = secondary.waiting_at_least if secondary.waiting_messages is None else None
    facts = {
        "waiting": f"at least {at_least}" if at_least else _known(secondary.waiting_messages, str),
        "oldest": _known(secondary.oldest_age_s),
        "full in": _known(secondary.capacity_hours, lambda hours: rough_duration(hours * 3600)),
        "syphon": syphon,
        "looked at": _ago(secondary.looked_at, now),
    }
    return "backlog: " + ", ".join(f"{name} {value}" for name, value in facts.items())


def _sent_line(sent: SentToBacklog, now: datetime) -> str:
    first = "" if sent.first_at is None else f", the first {_ago(sent.first_at, now)}"
    last = "" if sent.last_at is None else f", the last {_ago(sent.last_at, now)}"
    return f"backlog: this client put {sent.messages} messages there{first}{last}; some may be home by now"


def _ago(moment: datetime, now: datetime) -> str:
    return f"{rough_duration(max(0.0, (now - moment).total_seconds()))} ago"


def _syphon_lines(syphon: SyphonStatus) -> Iterator[str]:
    facts = [f"{syphon.moved} messages are home", f"{syphon.rate:.0f}/s"]
    facts += [f"{syphon.quarantined} in quarantine"] if syphon.quarantined else []
    facts += [f"{syphon.outside} for entities that are not listed stay"] if syphon.outside else []
    facts += [f"{', '.join(syphon.destinations_down)} down"] if syphon.destinations_down else []
    yield f"syphon: {syphon.state}, {', '.join(facts)}"
    for trouble in syphon.troubles:
        yield f"syphon: {' '.join(trouble.split())}"


def _spool_lines(spool: SpoolStatus) -> Iterator[str]:
    room = f"{size_text(spool.size_bytes)} of {size_text(spool.size_bytes_max)}"
    facts = [f"{spool.messages} messages wait", room, f"{spool.sent_home} went home"]
    facts += [f"{spool.sent_to_backlog} went to the backlog"] if spool.sent_to_backlog else []
    facts += [f"{spool.left_behind} more of processes that ended"] if spool.left_behind else []
    facts += [f"{spool.quarantined} in quarantine"] if spool.quarantined else []
    yield f"spool: {', '.join(facts)} ({spool.folder})"
    if spool.reason:
        yield f"spool: takes nothing: {' '.join(spool.reason.split())}"
    for problem in spool.problems:
        yield f"spool: {' '.join(problem.split())}"


def _board_line(board: BoardStatus, now: datetime) -> str:
    if board.reason:
        return f"board: nothing can be posted: {' '.join(board.reason.split())}"
    last = "" if board.posted_at is None else f", the last {_ago(board.posted_at, now)}"
    return f"board: {board.posts} reports on {board.path}{last}"


def _order_lines(order: OrderStatus) -> Iterator[str]:
    if not order.fences and not order.unseen_queues:
        yield "order: nothing goes through the backlog"
    if order.fences:
        yield f"order: sessions that go through the backlog {order.fences}, messages not home {order.messages_left}"
    for fence in order.largest:
        session = "no session" if fence.session_id is None else f"session {fence.session_id!r}"
        yield f"order: {fence.entity}, {session}: about {fence.messages_left} to come from {fence.backlog_queue}"
    for path in order.unseen_queues:
        yield f"order: {path} was not seen empty yet: all of its sessions go through the backlog"


def _known(value: float | None, in_words: Callable[[float], str] = rough_duration) -> str:
    if value is None:
        return "unknown"
    return in_words(value) if isfinite(value) else "never"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    lines = [header, *([on_one_line(cell, CELL_LENGTH_MAX) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
