"""Every number that can be watched of a paired client, and where in its status it is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from twinbus import deprecated
from twinbus.client.reporting.metric_types import (
    Metric,
    Sample,
    of_board,
    of_entity,
    of_order,
    of_pair,
    of_secondary,
    of_spool,
    timestamp,
)
from twinbus.client.reporting.status import EntityState, Phase, Status
from twinbus.client.reporting.syphon_metrics import BACKLOG_METRICS, SYPHON_METRICS


def _states(status: Status) -> Iterator[Sample]:
    for entity in status.entities:
        for state in EntityState:
            yield (entity.entity, state.value), float(entity.state is state)


def _sent(status: Status) -> Iterator[Sample]:
    for entity in status.entities:
        yield (entity.entity, "primary"), entity.sent_to_primary
        yield (entity.entity, "backlog"), entity.sent_to_backlog
        if status.spool is not None:
            yield (entity.entity, "spool"), entity.sent_to_spool


def _rotation(status: Status) -> Iterator[Sample]:
    for queue in status.backlog_queues:
        yield (queue.path,), float(queue.in_rotation)


def _queue_sent(status: Status) -> Iterator[Sample]:
    for queue in status.backlog_queues:
        yield (queue.path,), queue.sent


def _abilities(status: Status) -> Iterator[Sample]:
    for each in status.abilities:
        yield (each.path, each.ability.value), float(each.works)


_METRICS: tuple[Metric, ...] = (
    of_pair(
        "twinbus_pair_ready",
        "1 while the pair is paired, 0 before, when it is closed, and after a fault.",
        lambda status: float(status.phase is Phase.PAIRED),
    ),
    Metric(
        "twinbus_pair_entity_state",
        "1 for the state an entity is in, 0 for the others.",
        ("entity", "state"),
        _states,
    ),
    of_entity(
        "twinbus_pair_entity_since_timestamp_seconds",
        "When the entity came into its state, in seconds since 1970; missing if it never changed.",
        lambda entity: timestamp(entity.since),
    ),
    Metric(
        "twinbus_pair_messages_total",
        "Messages that were accepted, by the side that took them.",
        ("entity", "side"),
        _sent,
    ),
    of_entity(
        "twinbus_pair_failovers_total",
        "How often an entity's messages were turned to the backlog.",
        lambda entity: entity.failovers,
    ),
    of_entity(
        "twinbus_pair_flaps_total",
        "Failovers that came soon after a recovery.",
        lambda entity: entity.flaps,
    ),
    of_entity(
        "twinbus_pair_pings_total",
        "Pings that were sent. Each is a billable message.",
        lambda entity: entity.pings_sent,
    ),
    of_entity(
        "twinbus_pair_pings_failed_total",
        "Pings that found the entity still down.",
        lambda entity: entity.pings_failed,
    ),
    of_entity(
        "twinbus_pair_in_doubt_total",
        "Messages of attempts that ended without an answer: each may be stored once more than the receipt says.",
        lambda entity: entity.copies_in_doubt,
    ),
    of_entity(
        "twinbus_pair_held_sends",
        "Sends held until the entity recovers or fails over.",
        lambda entity: entity.held_now,
    ),
    of_entity(
        "twinbus_pair_held_size_bytes",
        "Bytes of those sends.",
        lambda entity: entity.held_bytes,
    ),
    Metric(
        "twinbus_pair_backlog_queue_in_rotation",
        "1 while a backlog queue is used, 0 while it is lost.",
        ("queue",),
        _rotation,
    ),
    Metric(
        "twinbus_pair_backlog_queue_messages_total",
        "Messages of this client that a backlog queue accepted.",
        ("queue",),
        _queue_sent,
    ),
    of_secondary(
        "twinbus_pair_secondary_checked_timestamp_seconds",
        "When the secondary was last looked at, in seconds since 1970.",
        lambda secondary: timestamp(secondary.checked_at),
    ),
    of_pair(
        "twinbus_pair_warnings",
        "How many warnings the last look at the pairing gave.",
        lambda status: len(status.secondary_status.warnings),
    ),
    of_secondary(
        "twinbus_pair_secondary_reachable",
        "0 while nobody can connect to the secondary and sends wait for trials, else 1; missing before pairing.",
        lambda secondary: None if secondary.checked_at is None else float(secondary.unreachable_since is None),
    ),
    of_secondary(
        "twinbus_pair_secondary_waiting_sends",
        "Sends that wait for the secondary to be reachable.",
        lambda secondary: secondary.waiting_sends,
    ),
    of_pair(
        "twinbus_pair_sent_to_backlog_messages",
        "Messages that this client itself has put into the backlog since it was last seen empty; some may be home now.",
        lambda status: status.sent_to_backlog.messages,
    ),
    of_pair(
        "twinbus_pair_sent_to_backlog_bytes",
        "Bytes of those messages.",
        lambda status: status.sent_to_backlog.size_bytes,
    ),
    of_pair(
        "twinbus_pair_sent_to_backlog_since_timestamp_seconds",
        "When the first of those messages was sent, in seconds since 1970; missing if there is none.",
        lambda status: timestamp(status.sent_to_backlog.first_at),
    ),
    Metric(
        "twinbus_pair_ability_works",
        "1 if an entity or subscription of the primary can be received from or managed, 0 if not, as calls of this "
        "process found; missing if none was made.",
        ("path", "ability"),
        _abilities,
    ),
    of_pair(
        "twinbus_pair_primary_reachable",
        "0 while nobody can connect to the primary or it is silent, as far as this process knows, else 1; missing "
        "before pairing.",
        lambda status: None if status.phase is Phase.NEW else float(status.primary_status.unreachable_since is None),
    ),
    *BACKLOG_METRICS,
    of_secondary(
        "twinbus_pair_backlog_full_in_seconds",
        "How long the backlog queues last at the rate at which they fill; missing if unknown or not filling.",
        lambda secondary: None if secondary.capacity_hours is None else secondary.capacity_hours * 3600,
    ),
    of_secondary(
        "twinbus_pair_syphon_seen",
        "1 if somebody seems to bring the backlog home, 0 if not; missing if unknown.",
        lambda secondary: None if secondary.syphon_seen is None else float(secondary.syphon_seen),
    ),
    of_order(
        "twinbus_pair_order_fences",
        "Sessions that go on into the backlog behind their own messages; missing without `order`.",
        lambda order: order.fences,
    ),
    of_order(
        "twinbus_pair_order_messages_left",
        "About how many messages have to come home until no session has to; missing without `order`.",
        lambda order: order.messages_left,
    ),
    of_order(
        "twinbus_pair_order_queues_unseen",
        "Backlog queues that were not seen empty yet since pairing; missing without `order`.",
        lambda order: len(order.unseen_queues),
    ),
    *SYPHON_METRICS,
    of_spool(
        "twinbus_pair_spool_messages",
        "Messages in the spool of this process that wait for a namespace; missing without `spool`, as all of these.",
        lambda spool: spool.messages,
    ),
    of_spool("twinbus_pair_spool_bytes", "Bytes of all messages in it.", lambda spool: spool.size_bytes),
    of_spool("twinbus_pair_spool_max_bytes", "How many it may have.", lambda spool: spool.size_bytes_max),
    of_spool(
        "twinbus_pair_spool_quarantined",
        "Messages in it that were put aside: expired, or refused for good.",
        lambda spool: spool.quarantined,
    ),
    of_spool(
        "twinbus_pair_spool_left_behind",
        "Messages of processes that ended, which this one brings home.",
        lambda spool: spool.left_behind,
    ),
    of_spool("twinbus_pair_spool_home_total", "Messages that went home from the spool.", lambda spool: spool.sent_home),
    of_spool(
        "twinbus_pair_spool_to_backlog_total",
        "Messages that went on from the spool to backlog queues.",
        lambda spool: spool.sent_to_backlog,
    ),
    of_spool(
        "twinbus_pair_spool_usable",
        "1 while messages can be stored in the spool and every folder of it can be used, else 0.",
        lambda spool: float(not (spool.reason or spool.problems)),
    ),
    of_board(
        "twinbus_pair_board_posts_total",
        "Reports of this process that the board has stored; missing without `board`, as all of these.",
        lambda board: board.posts,
    ),
    of_board(
        "twinbus_pair_board_usable",
        "1 while this process can report on the board, else 0.",
        lambda board: float(not board.reason),
    ),
    of_board(
        "twinbus_pair_board_posted_timestamp_seconds",
        "When the last report was stored, in seconds since 1970; missing if none was.",
        lambda board: timestamp(board.posted_at),
    ),
    of_pair(
        "twinbus_pair_events_dropped_total",
        "Callbacks that were not called because too many events were waiting.",
        lambda status: status.events_dropped,
    ),
)

_BY_NAME = {metric.name: metric for metric in _METRICS}
METRICS: tuple[Metric, ...] = (
    *_METRICS,
    *[
        replace(_BY_NAME[new], name=old, help=f"Deprecated, removed in {deprecated.REMOVED_IN}: use {new}.")
        for old, new in deprecated.METRICS.items()
    ],
)
