"""What happened to messages, as values: entities record it in a step, a ledger gets it once it is durable.

In every queue, subscription and dead-letter queue these add up: what was there, plus what was stored, copied or
dead-lettered into it, less what was delivered, dead-lettered, expired, forwarded, unscheduled and removed, is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from twinbus.broker.store.api import MessageRow


class MessageEventKind(StrEnum):
    """The words are those of the ledger's kinds."""

    STORED = "stored"
    """Sent, or forwarded, to this queue or topic, scheduled or not."""
    COPIED = "copied"
    """A topic gave it to this subscription."""
    UNCLAIMED = "unclaimed"
    """No subscription of this topic wanted it."""
    DUPLICATE = "duplicate"
    DELIVERED = "delivered"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"
    FORWARDED = "forwarded"
    UNSCHEDULED = "unscheduled"
    REMOVED = "removed"
    LONG_POLL = "long_poll"


class Cause(StrEnum):
    """Who or what made it happen, where that makes a difference."""

    COMPLETED = "completed"
    RECEIVED_AND_DELETED = "received-and-deleted"
    BY_RECEIVER = "by-receiver"
    BY_NAMESPACE = "by-namespace"
    NOT_FORWARDED = "not-forwarded"
    """Dead-lettered into the transfer dead letters."""


class MessageEvent:
    """The same thing, to any number of messages of one entity."""

    __slots__ = (
        "bytes",
        "cause",
        "count",
        "message_ids",
        "path",
        "reason",
        "sequences",
        "session_ids",
        "sizes",
        "until_ms",
        "what",
    )

    def __init__(self, what: MessageEventKind, path: str, cause: str, reason: str, until_ms: int = 0) -> None:
        self.what = what
        self.path = path
        self.cause = cause
        self.reason = reason
        self.until_ms = until_ms
        """When scheduled messages become due; 0: they are not scheduled."""
        self.message_ids: list[str] = []
        self.session_ids: list[str] = []
        self.sizes: list[int] = []
        self.sequences: list[int] = []
        """As long as the others, or empty: what is dropped has no number."""
        self.count = 0
        """Of those that are not named."""
        self.bytes = 0

    def add(self, message_id: str | None, session_id: str | None, size: int, sequence: int | None = None) -> None:
        self.message_ids.append(message_id or "")
        self.session_ids.append(session_id or "")
        self.sizes.append(size)
        if sequence is not None:
            self.sequences.append(sequence)

    def add_rows(self, rows: Sequence[MessageRow]) -> None:
        """Their payloads are not kept: they may be large, and the disk may be slow."""
        self.message_ids += [row.message_id or "" for row in rows]
        self.session_ids += [row.session_id or "" for row in rows]
        self.sizes += [len(row.payload) for row in rows]
        self.sequences += [row.sequence for row in rows]


class MessageEvents:
    """What happened in one step, put together by what it was and where."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[tuple[MessageEventKind, str, str, str, int], MessageEvent] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def of(
        self, what: MessageEventKind, path: str, cause: str = "", reason: str = "", until_ms: int = 0
    ) -> MessageEvent:
        """The event of this kind; messages to which it happens too are added to it."""
        key = (what, path, cause, reason, until_ms)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = MessageEvent(*key)
        return found

    def rows(
        self, what: MessageEventKind, path: str, rows: Sequence[MessageRow], cause: str = "", reason: str = ""
    ) -> None:
        if what is MessageEventKind.STORED and any(row.due_at_ms for row in rows):
            for row in rows:
                self.of(what, path, cause, reason, row.due_at_ms or 0).add_rows((row,))
        elif rows:
            self.of(what, path, cause, reason).add_rows(rows)

    def unnamed(self, what: MessageEventKind, path: str, count: int, size: int = 0) -> None:
        """It happened to this many messages, which are not known by name."""
        found = self.of(what, path)
        found.count += count
        found.bytes += size

    def all(self) -> list[MessageEvent]:
        return list(self._found.values())
