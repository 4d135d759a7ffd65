"""Every number that can be watched of a paired client, and where in its status it is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from math import isfinite

from twinbus.client.status import EntityState, EntityStatus, Phase, SecondaryStatus, Status, SyphonStatus

LABELS = ("client", "primary", "secondary")
"""Every metric has them: the client's number in its process, and the names of both namespaces."""

Sample = tuple[tuple[str, ...], float]
_UNITS = {"_seconds": "s", "_bytes": "By"}


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. What is unknown at the moment has no sample, so that it cannot be taken for zero."""

    name: str
    """As Prometheus writes it, unit and `_total` included."""
    kind: Kind
    help: str
    labels: tuple[str, ...]
    """Beside those that every metric has."""
    read: Callable[[Status], Iterator[Sample]]

    @property
    def unit(self) -> str:
        return next((unit for suffix, unit in _UNITS.items() if self.name.endswith(suffix)), "")

    @property
    def dotted_name(self) -> str:
        """As OpenTelemetry writes it: unit and kind are not part of a name there."""
        name = self.name.removesuffix("_total")
        for suffix in _UNITS:
            name = name.removesuffix(suffix)
        return name.replace("twinbus_pair_", "twinbus.pair.", 1)


def _of_pair(name: str, help_text: str, value: Callable[[Status], float], kind: Kind = Kind.GAUGE) -> Metric:
    def read(status: Status) -> Iterator[Sample]:
        yield (), value(status)

    return Metric(name, kind, help_text, (), read)


def _of_entity(name: str, help_text: str, value: Callable[[EntityStatus], float | None], kind: Kind) -> Metric:
    def read(status: Status) -> Iterator[Sample]:
        for entity in status.entities:
            number = value(entity)
            if number is not None:
                yield (entity.entity,), number

    return Metric(name, kind, help_text, ("entity",), read)


def _of_secondary(name: str, help_text: str, value: Callable[[SecondaryStatus], float | None]) -> Metric:
    def read(status: Status) -> Iterator[Sample]:
        number = value(status.secondary_status)
        if number is not None and isfinite(number):
            yield (), number

    return Metric(name, Kind.GAUGE, help_text, (), read)


def _of_syphon(
    name: str, help_text: str, value: Callable[[SyphonStatus], float | None], kind: Kind = Kind.COUNTER
) -> Metric:
    def read(status: Status) -> Iterator[Sample]:
        number = None if status.syphon is None else value(status.syphon)
        if number is not None:
            yield (), number

    return Metric(name, kind, help_text, (), read)


def _states(status: Status) -> Iterator[Sample]:
    for entity in status.entities:
        for state in EntityState:
            yield (entity.entity, state.value), float(entity.state is state)


def _sent(status: Status) -> Iterator[Sample]:
    for entity in status.entities:
        yield (entity.entity, "primary"), entity.sent_to_primary
        yield (entity.entity, "backlog"), entity.sent_to_backlog


def _rotation(status: Status) -> Iterator[Sample]:
    for queue in status.backlog_queues:
        yield (queue.path,), float(queue.in_rotation)


def _queue_sent(status: Status) -> Iterator[Sample]:
    for queue in status.backlog_queues:
        yield (queue.path,), queue.sent


METRICS: tuple[Metric, ...] = (
    _of_pair(
        "twinbus_pair_ready",
        "1 while the pair is paired, 0 before, when it is closed, and after a fault.",
        lambda status: float(status.phase is Phase.PAIRED),
    ),
    Metric(
        "twinbus_pair_entity_state",
        Kind.GAUGE,
        "1 for the state an entity is in, 0 for the others.",
        ("entity", "state"),
        _states,
    ),
    _of_entity(
        "twinbus_pair_entity_since_timestamp_seconds",
        "When the entity came into its state, in seconds since 1970; missing if it never changed.",
        lambda entity: None if entity.since is None else entity.since.timestamp(),
        Kind.GAUGE,
    ),
    Metric(
        "twinbus_pair_messages_total",
        Kind.COUNTER,
        "Messages that were accepted, by the side that took them.",
        ("entity", "side"),
        _sent,
    ),
    _of_entity(
        "twinbus_pair_failovers_total",
        "How often an entity's messages were turned to the backlog.",
        lambda entity: entity.failovers,
        Kind.COUNTER,
    ),
    _of_entity(
        "twinbus_pair_flaps_total",
        "Failovers that came soon after a recovery.",
        lambda entity: entity.flaps,
        Kind.COUNTER,
    ),
    _of_entity(
        "twinbus_pair_pings_total",
        "Pings that were sent. Each is a billable message.",
        lambda entity: entity.pings_sent,
        Kind.COUNTER,
    ),
    _of_entity(
        "twinbus_pair_pings_failed_total",
        "Pings that found the entity still down.",
        lambda entity: entity.pings_failed,
        Kind.COUNTER,
    ),
    _of_entity(
        "twinbus_pair_in_doubt_total",
        "Attempts that ended without an answer: so many copies may be stored beside the accepted ones.",
        lambda entity: entity.copies_in_doubt,
        Kind.COUNTER,
    ),
    _of_entity(
        "twinbus_pair_held_sends",
        "Sends that wait for the outcome of a suspicion.",
        lambda entity: entity.held_now,
        Kind.GAUGE,
    ),
    _of_entity("twinbus_pair_held_size_bytes", "Bytes of those sends.", lambda entity: entity.held_bytes, Kind.GAUGE),
    Metric(
        "twinbus_pair_backlog_queue_in_rotation",
        Kind.GAUGE,
        "1 while a backlog queue is used, 0 while it is lost.",
        ("queue",),
        _rotation,
    ),
    Metric(
        "twinbus_pair_backlog_queue_messages_total",
        Kind.COUNTER,
        "Messages of this client that a backlog queue accepted.",
        ("queue",),
        _queue_sent,
    ),
    _of_secondary(
        "twinbus_pair_secondary_checked_timestamp_seconds",
        "When the secondary was last looked at, in seconds since 1970.",
        lambda secondary: None if secondary.checked_at is None else secondary.checked_at.timestamp(),
    ),
    _of_pair(
        "twinbus_pair_warnings",
        "How many warnings the last look at the pairing gave.",
        lambda status: len(status.secondary_status.warnings),
    ),
    _of_secondary(
        "twinbus_pair_backlog_messages",
        "Messages that wait in the backlog of this primary, of all clients; missing if unknown.",
        lambda secondary: secondary.waiting_messages,
    ),
    _of_secondary(
        "twinbus_pair_backlog_oldest_age_seconds",
        "Age of the oldest message in the backlog; missing if unknown.",
        lambda secondary: secondary.oldest_age_s,
    ),
    _of_secondary(
        "twinbus_pair_backlog_full_in_seconds",
        "How long the backlog queues last at the rate at which they fill; missing if unknown or not filling.",
        lambda secondary: None if secondary.capacity_hours is None else secondary.capacity_hours * 3600,
    ),
    _of_secondary(
        "twinbus_pair_syphon_seen",
        "1 if somebody seems to bring the backlog home, 0 if not; missing if unknown.",
        lambda secondary: None if secondary.syphon_seen is None else float(secondary.syphon_seen),
    ),
    _of_syphon(
        "twinbus_pair_syphon_messages_total",
        "Messages that this process has brought home; missing where it runs no syphon, as all of these.",
        lambda syphon: syphon.moved,
    ),
    _of_syphon(
        "twinbus_pair_syphon_moved_bytes_total",
        "Bytes of those messages.",
        lambda syphon: syphon.moved_bytes,
    ),
    _of_syphon(
        "twinbus_pair_syphon_quarantined_total",
        "Messages that can never come home.",
        lambda syphon: syphon.quarantined,
    ),
    _of_syphon(
        "twinbus_pair_syphon_expired_total",
        "Messages whose time to live ended in the backlog.",
        lambda syphon: syphon.expired,
    ),
    _of_syphon(
        "twinbus_pair_syphon_repeated_total",
        "Messages that come home once more, with the same id: sent without an answer, or too late for their lock.",
        lambda syphon: syphon.repeated + syphon.in_doubt,
    ),
    _of_syphon(
        "twinbus_pair_syphon_destinations_down",
        "Entities to which nothing can be brought home at the moment.",
        lambda syphon: len(syphon.destinations_down),
        Kind.GAUGE,
    ),
    _of_syphon(
        "twinbus_pair_syphon_oldest_age_seconds",
        "How long the oldest message the syphon knows of has been in the backlog; missing if it knows none.",
        lambda syphon: syphon.oldest_age_s,
        Kind.GAUGE,
    ),
    _of_pair(
        "twinbus_pair_news_dropped_total",
        "Callbacks that were not called because too many news were waiting.",
        lambda status: status.news_dropped,
        Kind.COUNTER,
    ),
)
