"""The stages of a message's way, and what each step is charged as, by two rules.

*documents*: one charge for a send and one for a receive, whatever the size; four for a message that takes the detour.
*full*: as the service meters it: a charge for each started 64 KB, and further ones for settling, renewing, peeking and
managing; none for a ping that the service has not taken.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from twinbus.ledger.kinds import (
    FACTS,
    PING_NOT_SENT,
    PING_REFUSED,
    RECEIVED_AND_DELETED,
    TOLD_BY_RECEIVER,
    Kind,
    Operation,
)

STEP_BYTES = 64 * 1024


class Stage(StrEnum):
    """Where money goes, in the order of a message's way."""

    SEND = "send to primary"
    SEND_BACKLOG = "send to backlog"
    RECEIVE_BACKLOG = "receive from backlog"
    SETTLE_BACKLOG = "settle in backlog"
    SEND_HOME = "send home to primary"
    RECEIVE = "receive from primary"
    SETTLE = "settle on primary"
    PING = "pings"
    IDLE = "idle long polls"
    RENEW = "lock renewals"
    LOOK = "looks into the backlog"
    BOARD = "reports on the board"
    BOARD_READ = "looks at the board"
    MANAGE = "management"


NOT_FROM_PAIRING = (Stage.SEND, Stage.RECEIVE, Stage.SETTLE)
"""What the application would pay without pairing too."""
DEPARTING = (Stage.RECEIVE_BACKLOG, Stage.RECEIVE, Stage.LOOK, Stage.BOARD_READ)
"""Where bytes leave a namespace."""


class Charge(NamedTuple):
    """One step of this kind is charged once per message (or per `count`): per 64 KB where `by_size`."""

    kind: Kind
    stage: Stage
    by_size: bool
    in_documents: bool
    carries: bool = True
    """Whether the bytes of the message move."""


_STAGES: dict[Kind, Stage] = {
    Kind.ACCEPTED: Stage.SEND,
    Kind.BACKLOGGED: Stage.SEND_BACKLOG,
    Kind.MOVED_TO_BACKLOG: Stage.SEND_BACKLOG,
    Kind.IN_DOUBT: Stage.SEND,
    Kind.REDRIVEN: Stage.SETTLE_BACKLOG,
    Kind.CANCELLED: Stage.MANAGE,
    Kind.RECEIVED: Stage.RECEIVE,
    Kind.PING: Stage.PING,
    Kind.QUEUE_CHECKED: Stage.MANAGE,
    Kind.QUEUE_CREATED: Stage.MANAGE,
    Kind.PEEKED: Stage.LOOK,
    Kind.BOARD_POSTED: Stage.BOARD,
    Kind.BOARD_PEEKED: Stage.BOARD_READ,
    Kind.BOARD_CLEARED: Stage.BOARD,
    Kind.LONG_POLL: Stage.IDLE,
    Kind.RECEIVED_FROM_BACKLOG: Stage.RECEIVE_BACKLOG,
    Kind.SENT_HOME: Stage.SEND_HOME,
    Kind.COMPLETED: Stage.SETTLE_BACKLOG,
    Kind.RELEASED: Stage.SETTLE_BACKLOG,
    Kind.DISCARDED: Stage.SETTLE_BACKLOG,
    Kind.LOCK_RENEWED: Stage.RENEW,
    Kind.DELIVERED: Stage.RECEIVE,
    Kind.DEAD_LETTERED: Stage.SETTLE,
}
"""In the backlog, a dead letter is settled there and a doubtful send went there: see `stage_in_backlog`."""

IN_BACKLOG: dict[Stage, Stage] = {Stage.SETTLE: Stage.SETTLE_BACKLOG, Stage.SEND: Stage.SEND_BACKLOG}
"""The stage instead, if the step names a backlog queue."""

MOVES: tuple[Operation, ...] = ("send", "receive")
CARRIES: tuple[Operation, ...] = (*MOVES, "peek")


def _charge(kind: Kind, stage: Stage) -> Charge:
    operation = FACTS[kind].operation
    carries = operation in CARRIES
    has_body = carries and kind not in (Kind.PING, Kind.LONG_POLL, Kind.BOARD_CLEARED)
    return Charge(kind, stage, by_size=has_body, in_documents=operation in MOVES, carries=carries)


CHARGES: tuple[Charge, ...] = (
    *(_charge(kind, stage) for kind, stage in _STAGES.items()),
    # A receiver that is done with a message has received and settled it: two operations, one record.
    *(
        Charge(kind, Stage.SETTLE, by_size=False, in_documents=False, carries=False)
        for kind in (Kind.DELIVERED, Kind.RECEIVED)
    ),
)
NOT_ASKED_FOR = ("by-namespace", "not-forwarded")
"""Outcomes of what a namespace does by itself: not charged."""
NOT_TAKEN = (PING_REFUSED, PING_NOT_SENT)
"""Outcomes of pings that the service has not taken."""
NOT_SETTLED = (RECEIVED_AND_DELETED, TOLD_BY_RECEIVER, *NOT_ASKED_FOR, *NOT_TAKEN)
"""Outcomes without a charge for a settlement, or, by the full rule, for a ping."""
AS_SENT = (Kind.RECEIVED, Kind.DELIVERED)
"""Kinds whose sizes do not include the `DELIVERY_BYTES` of each message."""
