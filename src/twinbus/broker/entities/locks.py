"""Locks of messages that were delivered in peek-lock mode.

Locks are in memory only: they end with the process, and a token from before a restart is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from twinbus.broker.entities.receivers import Receiver
from twinbus.broker.store.api import MessageRow

LOCK_COST_BYTES = 1_000
"""What a lock takes in memory besides the payload, here and at the link."""


class MessageLock:
    __slots__ = ("receiver", "row", "token", "transaction", "until_ms")

    def __init__(self, row: MessageRow, token: bytes, until_ms: int, receiver: Receiver | None) -> None:
        self.row = row
        self.token = token
        self.until_ms = until_ms
        self.receiver = receiver
        """The receiver that holds it; None for a deferred message."""
        self.transaction: int | None = None
        """The transaction that settles the message if it is committed; None: none."""


class MessageLocks:
    def __init__(self) -> None:
        self._by_token: dict[bytes, MessageLock] = {}
        self._locked: set[int] = set()
        self.held: set[int] = set()
        """Messages that cannot be delivered for now: they are about to be forwarded."""
        self._ends: list[tuple[int, bytes]] = []
        self.held_bytes = 0
        """Memory of all locked messages, also those of receivers that are gone."""

    def __len__(self) -> int:
        return len(self._by_token)

    def is_locked(self, sequence: int) -> bool:
        return sequence in self._locked

    def add(self, row: MessageRow, token: bytes, until_ms: int, receiver: Receiver | None = None) -> None:
        self._by_token[token] = MessageLock(row, token, until_ms, receiver)
        self._locked.add(row.sequence)
        self.held_bytes += LOCK_COST_BYTES + len(row.payload)
        heappush(self._ends, (until_ms, token))

    def hold(self, sequence: int) -> None:
        """Do not deliver the message for now: it is about to be forwarded."""
        self._locked.add(sequence)
        self.held.add(sequence)

    def release_hold(self, sequence: int) -> None:
        """The message was forwarded, or will not be."""
        self._locked.discard(sequence)
        self.held.discard(sequence)

    def find(self, token: bytes, now_ms: int) -> MessageLock | None:
        """The lock of a token, if it has not ended."""
        lock = self._by_token.get(token)
        return lock if lock is not None and lock.until_ms > now_ms else None

    def end(self, lock: MessageLock) -> None:
        del self._by_token[lock.token]
        self._locked.discard(lock.row.sequence)
        self.held_bytes -= LOCK_COST_BYTES + len(lock.row.payload)

    def renew(self, lock: MessageLock, until_ms: int) -> None:
        lock.until_ms = until_ms
        heappush(self._ends, (until_ms, lock.token))

    def next_end_ms(self) -> int | None:
        """When the next lock may end; may be too early."""
        if len(self._ends) > 2 * len(self._by_token) + 64:  # the ends of settled and renewed locks must not pile up
            self._ends = [(lock.until_ms, token) for token, lock in self._by_token.items()]
            heapify(self._ends)
        while self._ends and self._ends[0][1] not in self._by_token:
            heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def take_ended(self, now_ms: int, most: int) -> Iterator[MessageLock]:
        """Remove up to `most` locks that have ended."""
        while most > 0 and self._ends and self._ends[0][0] <= now_ms:
            lock = self._by_token.get(heappop(self._ends)[1])
            if lock is not None and lock.until_ms <= now_ms:
                self.end(lock)
                most -= 1
                yield lock
