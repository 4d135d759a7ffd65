"""What can be recorded: every kind of event, who records it, and which billable operation it stands for."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

By = Literal["client", "syphon", "namespace", "ledger"]
Operation = Literal["send", "receive", "settle", "renew", "manage"]


class Kind(StrEnum):
    """The kinds this version writes. A reader passes on kinds it does not know: new ones are no new schema."""

    ACCEPTED = "accepted"
    BACKLOGGED = "backlogged"
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
    RECOVERED = "recovered"
    QUEUE_LEFT_OUT = "queue_left_out"
    QUEUE_BACK = "queue_back"

    PAIRED = "paired"
    FAULTED = "faulted"
    QUEUE_CHECKED = "queue_checked"
    QUEUE_CREATED = "queue_created"

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
"""Outcomes of a delivery: it was settled, or needed no settling."""
TOLD_BY_RECEIVER = "told-by-receiver"
"""The outcome of a dead letter, if whoever made it one tells of it: the namespace may have told, too."""


class Facts(NamedTuple):
    """What a kind means."""

    by: tuple[By, ...]
    text: str
    operation: Operation | None = None
    """What one message (or, without messages, one of `count`) costs at the service; None: nothing."""


FACTS: dict[Kind, Facts] = {
    Kind.ACCEPTED: Facts(("client",), "The primary has acknowledged the messages.", "send"),
    Kind.BACKLOGGED: Facts(("client",), "A backlog queue (`queue`) has acknowledged the messages.", "send"),
    Kind.IN_DOUBT: Facts(
        ("client", "syphon"), "The messages had left when the answer failed to come: `namespace` may have them.", "send"
    ),
    Kind.NOT_SENT: Facts(("client",), "The caller was given an error; no side acknowledged the messages."),
    Kind.HELD: Facts(("client",), "The messages wait in the client until it is clear which side gets them."),
    Kind.THROTTLED: Facts(
        ("client", "syphon", "namespace"),
        "The service was busy; whoever was told so tries nothing again before `until_ms`.",
    ),
    Kind.ATTEMPT_FAILED: Facts(("client", "syphon"), "One attempt was refused or got nowhere; others may follow."),
    Kind.CANCELLED: Facts(("client",), "Scheduled messages were cancelled on the primary.", "manage"),
    Kind.RECEIVED: Facts(
        ("client",),
        "A receiver of the client is done with messages: `completed`, or `received-and-deleted`, as `outcome` says.",
        "receive",
    ),
    Kind.SUSPECTED: Facts(("client",), "The first counting failure of a healthy entity; its interval runs."),
    Kind.FAILED_OVER: Facts(("client",), "Sends for the entity go to the backlog from now on."),
    Kind.PING: Facts(("client",), "The entity was pinged; `outcome` says with what result.", "send"),
    Kind.RECOVERED: Facts(("client",), "Sends for the entity go to the primary again."),
    Kind.QUEUE_LEFT_OUT: Facts(("client",), "A backlog queue failed and is not chosen before `until_ms`."),
    Kind.QUEUE_BACK: Facts(("client",), "A backlog queue is among the chosen again."),
    Kind.PAIRED: Facts(("client",), "Pairing is ready; `count` backlog queues were found or created."),
    Kind.FAULTED: Facts(("client",), "The pair has ended with a fault, for the given reason."),
    Kind.QUEUE_CHECKED: Facts(("client",), "Backlog queues were looked for: `count` requests.", "manage"),
    Kind.QUEUE_CREATED: Facts(("client",), "A backlog queue was created.", "manage"),
    Kind.LONG_POLL: Facts(
        ("syphon", "namespace"), "A receiver gave credit for one more wait, and nothing was there.", "receive"
    ),
    Kind.RECEIVED_FROM_BACKLOG: Facts(("syphon",), "The syphon holds the messages under lock.", "receive"),
    Kind.SENT_HOME: Facts(("syphon",), "The primary has acknowledged messages that came from the backlog.", "send"),
    Kind.COMPLETED: Facts(("syphon",), "The backlog queue no longer has the messages.", "settle"),
    Kind.RELEASED: Facts(("syphon",), "The messages were given back to the backlog queue.", "settle"),
    Kind.LOCK_RENEWED: Facts(("syphon",), "Locks were renewed: `count` requests.", "renew"),
    Kind.LOCK_LOST: Facts(("syphon",), "Locks ended before the messages were completed: they come again."),
    Kind.DESTINATION_SKIPPED: Facts(("syphon",), "The entity takes nothing; it is tried again at `until_ms`."),
    Kind.DESTINATION_BACK: Facts(("syphon",), "The entity takes messages again."),
    Kind.REDRIVEN: Facts(
        ("syphon",), "Quarantined messages were sent home after all, and are gone from quarantine.", "settle"
    ),
    Kind.DISCARDED: Facts(
        ("syphon",), "Quarantined messages were thrown away because somebody asked for it.", "settle"
    ),
    Kind.PAUSED: Facts(("syphon",), "The syphon was paused."),
    Kind.RESUMED: Facts(("syphon",), "The syphon goes on."),
    Kind.STORED: Facts(
        ("namespace",), "The namespace has the messages on disk: sent, scheduled or forwarded to `entity`."
    ),
    Kind.DELIVERED: Facts(
        ("namespace",),
        "A receiver is done with the messages: `completed`, or `received-and-deleted`, as `outcome` says.",
        "receive",
    ),
    Kind.DUPLICATE: Facts(("namespace",), "Duplicate detection dropped the messages: their ids were known."),
    Kind.DEAD_LETTERED: Facts(
        ("namespace", "syphon", "client"),
        "The messages are among the dead letters of `entity`; if `outcome` is `not-forwarded`, those of transfers. "
        "`told-by-receiver`: a receiver of the client has put them there, and the namespace may tell of it too.",
        "settle",
    ),
    Kind.EXPIRED: Facts(("namespace", "syphon"), "The time to live of the messages ended first."),
    Kind.INVENTORY: Facts(
        ("namespace",), "As the namespace began to work, `entity` had `count` messages; what went before is settled."
    ),
    Kind.COPIED: Facts(
        ("namespace",), "A subscription (`entity`) has got copies of its topic's messages, with their numbers there."
    ),
    Kind.UNCLAIMED: Facts(("namespace",), "No subscription wanted the messages: their topic has dropped them."),
    Kind.FORWARDED: Facts(("namespace",), "The messages went on from `entity` to where it forwards."),
    Kind.UNSCHEDULED: Facts(("namespace",), "Scheduled messages were cancelled: the namespace has dropped them."),
    Kind.REMOVED: Facts(("namespace",), "`entity` was deleted, and the `count` messages that were in it."),
    Kind.OPENED: Facts(
        ("ledger",),
        "The first record of a process; records wait in its memory for up to `duration_us`, and for up to `sync_us` "
        "until they are safe from a power cut.",
    ),
    Kind.CLOSED: Facts(("ledger",), "The last record of a process that ended in good order: nothing can follow."),
    Kind.GAP: Facts(("ledger",), "Records `missing_first` to `missing_last` were never written, for the given reason."),
    Kind.REJECTED: Facts(("ledger",), "An event that could not be written as JSON was recorded as this instead."),
}
