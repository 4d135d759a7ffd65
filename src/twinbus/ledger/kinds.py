"""What can be recorded: every kind of event, its writers, and the billable operation it stands for."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

By = Literal["client", "syphon", "namespace", "ledger"]
Operation = Literal["send", "receive", "settle", "renew", "peek", "manage"]


class Kind(StrEnum):
    """The kinds this version writes. Readers pass on unknown kinds: a new kind does not change the schema."""

    ACCEPTED = "accepted"
    BACKLOGGED = "backlogged"
    SPOOLED = "spooled"
    IN_DOUBT = "in_doubt"
    NOT_SENT = "not_sent"
    HELD = "held"
    THROTTLED = "throttled"
    ATTEMPT_FAILED = "attempt_failed"
    CANCELLED = "cancelled"
    RECEIVED = "received"

    SUSPECTED = "suspected"
    FAILED_OVER = "failed_over"
    PING = "ping"
    PROBED = "probed"
    RECOVERED = "recovered"
    QUEUE_LEFT_OUT = "queue_left_out"
    QUEUE_BACK = "queue_back"
    SECONDARY_UNREACHABLE = "secondary_unreachable"
    SECONDARY_BACK = "secondary_back"

    PAIRED = "paired"
    FAULTED = "faulted"
    QUEUE_CHECKED = "queue_checked"
    QUEUE_CREATED = "queue_created"
    PEEKED = "peeked"
    BOARD_POSTED = "board_posted"
    BOARD_PEEKED = "board_peeked"
    BOARD_CLEARED = "board_cleared"

    LONG_POLL = "long_poll"
    RECEIVED_FROM_BACKLOG = "received_from_backlog"
    SENT_HOME = "sent_home"
    COMPLETED = "completed"
    RELEASED = "released"
    LOCK_RENEWED = "lock_renewed"
    LOCK_LOST = "lock_lost"
    DESTINATION_SKIPPED = "destination_skipped"
    DESTINATION_BACK = "destination_back"
    REDRIVEN = "redriven"
    DISCARDED = "discarded"
    LEFT_SPOOL = "left_spool"
    MOVED_TO_BACKLOG = "moved_to_backlog"
    SPOOL_IN_DOUBT = "spool_in_doubt"
    SPOOL_DEAD_LETTERED = "spool_dead_lettered"
    SPOOL_EXPIRED = "spool_expired"
    PAUSED = "paused"
    RESUMED = "resumed"

    STORED = "stored"
    DELIVERED = "delivered"
    DUPLICATE = "duplicate"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"
    INVENTORY = "inventory"
    COPIED = "copied"
    UNCLAIMED = "unclaimed"
    FORWARDED = "forwarded"
    UNSCHEDULED = "unscheduled"
    REMOVED = "removed"

    OPENED = "opened"
    CLOSED = "closed"
    GAP = "gap"
    REJECTED = "rejected"


COMPLETED, RECEIVED_AND_DELETED = "completed", "received-and-deleted"
"""Outcomes of a delivery: it was settled, or did not need to be."""
DELIVERY_BYTES = 140
"""About what a service adds to a message when it delivers it: its number there, its times, its lock. The sizes in
`received` and `delivered` do not include it."""
PING_REFUSED, PING_NOT_SENT = "refused", "not-sent"
"""Outcomes of a ping that the service did not take: it was refused, or there was no link to send it on."""
TOLD_BY_RECEIVER = "told-by-receiver"
"""The outcome of a dead letter that the receiver recorded; the namespace may have recorded it too."""


class Facts(NamedTuple):
    by: tuple[By, ...]
    text: str
    fields: tuple[str, ...] = ()
    """What every event of this kind has, whoever records it; other fields may be there too."""
    operation: Operation | None = None
    """What one message (or, without messages, one of `count`) costs at the service; None: nothing."""


FACTS: dict[Kind, Facts] = {
    Kind.ACCEPTED: Facts(
        ("client",),
        "The primary has acknowledged the messages. Those that are scheduled are due at `until_ms`.",
        ("entity", "namespace", "message_ids", "sizes", "attempts"),
        "send",
    ),
    Kind.BACKLOGGED: Facts(
        ("client",),
        "A backlog queue (`queue`) has acknowledged the messages. Those that are scheduled are due at `until_ms`.",
        ("entity", "namespace", "queue", "message_ids", "sizes", "attempts"),
        "send",
    ),
    Kind.SPOOLED: Facts(
        ("client",),
        "The spool, on the local disk of the sender, has the messages: neither namespace took them. Those that are "
        "scheduled are due at `until_ms`. It costs nothing.",
        ("entity", "namespace", "message_ids", "sizes", "attempts"),
    ),
    Kind.IN_DOUBT: Facts(
        ("client", "syphon"),
        "The messages had left when the answer failed to come: `namespace` may have them.",
        ("entity", "namespace", "message_ids", "reason"),
        "send",
    ),
    Kind.NOT_SENT: Facts(
        ("client",),
        "The caller was given an error; no side acknowledged the messages.",
        ("entity", "namespace", "message_ids", "sizes"),
    ),
    Kind.HELD: Facts(
        ("client",),
        "A send waits in the client until it is clear which side gets its messages.",
        ("entity", "namespace", "reason"),
    ),
    Kind.THROTTLED: Facts(
        ("client", "syphon", "namespace"),
        "The service was busy; the caller must not try again before `until_ms`.",
        ("namespace", "reason", "until_ms"),
    ),
    Kind.ATTEMPT_FAILED: Facts(
        ("client", "syphon"), "One attempt was refused or got nowhere; others may follow.", ("namespace", "reason")
    ),
    Kind.CANCELLED: Facts(
        ("client",),
        "Scheduled messages were cancelled on the primary. Their ids are recorded if this client scheduled them, and "
        "not too many others since; otherwise only their numbers.",
        ("entity", "namespace", "sequence_numbers"),
        "manage",
    ),
    Kind.RECEIVED: Facts(
        ("client",),
        "A receiver of the client is done with messages; `outcome` is `completed` or `received-and-deleted`.",
        ("entity", "namespace", "message_ids", "sizes", "sequence_numbers", "outcome"),
        "receive",
    ),
    Kind.SUSPECTED: Facts(
        ("client",),
        "The first counting failure of a healthy entity; its interval runs.",
        ("entity", "namespace", "reason"),
    ),
    Kind.FAILED_OVER: Facts(
        ("client",), "Sends for the entity go to the backlog from now on.", ("entity", "namespace", "reason", "epoch")
    ),
    Kind.PING: Facts(
        ("client",),
        "The entity was pinged, with `bytes`. `outcome` is `ok`, `in-doubt`, `refused`, or `not-sent` without a "
        "link; by the full rule only the first two cost an operation.",
        ("entity", "namespace", "count", "outcome", "epoch"),
        "send",
    ),
    Kind.PROBED: Facts(
        ("client",),
        "A link to the entity was tried, to see whether it is back; `outcome` is `ok` or `failed`.",
        ("entity", "namespace", "outcome", "epoch"),
    ),
    Kind.RECOVERED: Facts(
        ("client",), "Sends for the entity go to the primary again.", ("entity", "namespace", "reason", "epoch")
    ),
    Kind.QUEUE_LEFT_OUT: Facts(
        ("client",),
        "A backlog queue failed and is not chosen before `until_ms`.",
        ("namespace", "queue", "reason", "until_ms"),
    ),
    Kind.QUEUE_BACK: Facts(("client",), "A backlog queue is among the chosen again.", ("namespace", "queue", "reason")),
    Kind.SECONDARY_UNREACHABLE: Facts(
        ("client",), "The secondary cannot be reached: sends that need it wait for trials.", ("namespace", "reason")
    ),
    Kind.SECONDARY_BACK: Facts(("client",), "The secondary can be reached again.", ("namespace", "reason")),
    Kind.PAIRED: Facts(
        ("client",), "Pairing is ready; `count` backlog queues were found or created.", ("namespace", "count")
    ),
    Kind.FAULTED: Facts(("client",), "The pair has ended with a fault; `reason` says why.", ("namespace", "reason")),
    Kind.QUEUE_CHECKED: Facts(
        ("client", "syphon"),
        "Queues were listed, or their settings or counts were read, in `namespace`: `count` requests.",
        ("namespace", "count"),
        "manage",
    ),
    Kind.QUEUE_CREATED: Facts(
        ("client",), "A backlog queue, or the board, was created.", ("namespace", "queue", "count"), "manage"
    ),
    Kind.PEEKED: Facts(
        ("client", "syphon"),
        "Backlog queues were peeked: `count` messages, or one for a peek that found none.",
        ("namespace", "count"),
        "peek",
    ),
    Kind.BOARD_POSTED: Facts(
        ("client", "syphon"),
        "A report was stored on the board, with `bytes`.",
        ("namespace", "count"),
        "send",
    ),
    Kind.BOARD_PEEKED: Facts(
        ("client", "syphon"),
        "The board was peeked: `count` reports, or one for a peek that found none.",
        ("namespace", "count"),
        "peek",
    ),
    Kind.BOARD_CLEARED: Facts(
        ("client", "syphon"),
        "One message of the board was asked for, so that the service removes reports that are over.",
        ("namespace", "count"),
        "receive",
    ),
    Kind.LONG_POLL: Facts(
        ("syphon", "namespace"),
        "A receiver granted credit for another long poll while the queue was empty.",
        ("namespace", "count"),
        "receive",
    ),
    Kind.RECEIVED_FROM_BACKLOG: Facts(
        ("syphon",),
        "The syphon holds the messages under lock.",
        ("namespace", "queue", "message_ids", "sizes"),
        "receive",
    ),
    Kind.SENT_HOME: Facts(
        ("syphon",),
        "The primary has acknowledged messages that came from the backlog.",
        ("entity", "namespace", "message_ids", "sizes"),
        "send",
    ),
    Kind.COMPLETED: Facts(
        ("syphon",),
        "The backlog queue no longer has the messages.",
        ("entity", "namespace", "queue", "message_ids", "sizes"),
        "settle",
    ),
    Kind.RELEASED: Facts(
        ("syphon",),
        "The messages were released to the backlog queue.",
        ("namespace", "queue", "message_ids", "sizes"),
        "settle",
    ),
    Kind.LOCK_RENEWED: Facts(
        ("syphon",), "Locks were renewed, `count` of them.", ("namespace", "queue", "count"), "renew"
    ),
    Kind.LOCK_LOST: Facts(
        ("syphon",),
        "Locks ended before the messages were completed: they are delivered again.",
        ("namespace", "queue", "message_ids", "sizes", "reason"),
    ),
    Kind.DESTINATION_SKIPPED: Facts(
        ("syphon",),
        "The entity accepts nothing; it is tried again at `until_ms`.",
        ("entity", "namespace", "reason", "until_ms"),
    ),
    Kind.DESTINATION_BACK: Facts(("syphon",), "The entity accepts messages again.", ("entity", "namespace")),
    Kind.REDRIVEN: Facts(
        ("syphon",),
        "Quarantined messages were sent home after all, and are gone from quarantine.",
        ("namespace", "queue", "message_ids", "sizes"),
        "settle",
    ),
    Kind.DISCARDED: Facts(
        ("syphon",),
        "Quarantined messages were discarded on request.",
        ("namespace", "queue", "message_ids", "sizes"),
        "settle",
    ),
    Kind.LEFT_SPOOL: Facts(
        ("syphon",),
        "The spool no longer has the messages: the primary or a backlog queue has stored them before.",
        ("entity", "namespace", "message_ids", "sizes"),
    ),
    Kind.MOVED_TO_BACKLOG: Facts(
        ("syphon",),
        "A backlog queue (`queue`) has acknowledged messages that came from a spool: their entity was still down.",
        ("entity", "namespace", "queue", "message_ids", "sizes"),
        "send",
    ),
    Kind.SPOOL_IN_DOUBT: Facts(
        ("client",),
        "The disk of the spool gave no answer in time: it may have the messages.",
        ("entity", "namespace", "message_ids", "reason"),
    ),
    Kind.SPOOL_DEAD_LETTERED: Facts(
        ("syphon",),
        "The messages are among the dead letters of the spool: they were refused for good.",
        ("namespace", "message_ids", "sizes", "reason"),
    ),
    Kind.SPOOL_EXPIRED: Facts(
        ("syphon",),
        "The time to live of the messages ended in the spool: they are among its dead letters.",
        ("namespace", "message_ids", "sizes"),
    ),
    Kind.PAUSED: Facts(("syphon",), "The syphon was paused.", ("namespace", "reason")),
    Kind.RESUMED: Facts(("syphon",), "The syphon goes on.", ("namespace",)),
    Kind.STORED: Facts(
        ("namespace",),
        "The namespace has the messages on disk: sent, scheduled or forwarded to `entity`.",
        ("namespace", "message_ids", "sizes", "sequence_numbers"),
    ),
    Kind.DELIVERED: Facts(
        ("namespace",),
        "A receiver is done with the messages; `outcome` is `completed` or `received-and-deleted`.",
        ("namespace", "message_ids", "sizes", "sequence_numbers", "outcome"),
        "receive",
    ),
    Kind.DUPLICATE: Facts(
        ("namespace",),
        "Duplicate detection dropped the messages: their ids were known.",
        ("namespace", "message_ids", "sizes"),
    ),
    Kind.DEAD_LETTERED: Facts(
        ("namespace", "syphon", "client"),
        "The messages are among the dead letters of `entity`; if `outcome` is `not-forwarded`, those of transfers. "
        "`told-by-receiver`: recorded by the receiver that put them there; the namespace may record it too.",
        ("namespace", "message_ids", "sizes"),
        "settle",
    ),
    Kind.EXPIRED: Facts(
        ("namespace", "syphon"), "The time to live of the messages ended first.", ("namespace", "message_ids", "sizes")
    ),
    Kind.INVENTORY: Facts(
        ("namespace",),
        "When the namespace started, `entity` had `count` messages; earlier records are settled.",
        ("namespace", "count", "bytes"),
    ),
    Kind.COPIED: Facts(
        ("namespace",),
        "A subscription (`entity`) received copies of its topic's messages, with their numbers there.",
        ("entity", "namespace", "message_ids", "sizes", "sequence_numbers"),
    ),
    Kind.UNCLAIMED: Facts(
        ("namespace",),
        "No subscription matched the messages: their topic dropped them.",
        ("entity", "namespace", "message_ids", "sizes"),
    ),
    Kind.FORWARDED: Facts(
        ("namespace",),
        "The messages were forwarded from `entity`.",
        ("entity", "namespace", "message_ids", "sizes"),
    ),
    Kind.UNSCHEDULED: Facts(
        ("namespace",),
        "Scheduled messages were cancelled: the namespace has dropped them.",
        ("entity", "namespace", "message_ids", "sizes"),
    ),
    Kind.REMOVED: Facts(
        ("namespace",),
        "`entity` was deleted, and the `count` messages that were in it; no count: it was empty.",
        ("namespace",),
    ),
    Kind.OPENED: Facts(
        ("ledger",),
        "The first record of a process; records wait in its memory for up to `duration_us`, and for up to `sync_us` "
        "until they are safe from a power cut.",
        ("duration_us",),
    ),
    Kind.CLOSED: Facts(("ledger",), "The last record of a process that closed its ledger: nothing can follow."),
    Kind.GAP: Facts(
        ("ledger",),
        "Records `missing_first` to `missing_last` were never written; `reason` says why.",
        ("missing_first", "missing_last", "since_ms", "until_ms", "reason"),
    ),
    Kind.REJECTED: Facts(
        ("ledger",), "An event that could not be written as JSON was recorded as this instead.", ("reason",)
    ),
}
