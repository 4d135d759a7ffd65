"""Verdict classes of messages."""

from __future__ import annotations

DELIVERED, DUPLICATED, WAITING, STORED = "delivered", "duplicated", "waiting", "stored_on_primary"
DEAD_LETTERED, EXPIRED, DISCARDED, IN_DOUBT = "dead_lettered", "expired", "discarded", "in_doubt"
FORWARDED = "forwarded"
LOST, UNKNOWN = "lost", "unknown"
NOT_SENT, SENT_ELSEWHERE = "not_sent", "sent_elsewhere"

ACCEPTED_CLASSES = (
    DELIVERED,
    STORED,
    WAITING,
    DEAD_LETTERED,
    EXPIRED,
    DISCARDED,
    FORWARDED,
    DUPLICATED,
    IN_DOUBT,
    UNKNOWN,
    LOST,
)
"""Of a message that was accepted."""
OTHER_CLASSES = (NOT_SENT, SENT_ELSEWHERE)
"""Not accepted: refused to the caller, or sent by a process without a ledger."""
