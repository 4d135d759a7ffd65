"""What is kept for a peer, in bytes, and how much that may be.

Whatever stays in memory because of something that a peer said, until it says or takes something else, is charged to the
account of its connection: unfinished frames and deliveries, answers that it does not take, sessions, links. Accounts
with the same standing (peers that have not shown who they are; all others) share a pool, which has a limit as well.

Python's objects count with about what they take; single small fields do not count.
"""

from __future__ import annotations

from collections.abc import Callable

SESSION_COST = 2048
LINK_COST = 1536
FRAME_COST = 160
"""A frame that waits, besides its bytes."""
ELEMENT_COST = 96
"""A decoded value, besides its bytes: an empty list is one byte on the wire."""
QUEUED_MAX = 4 * 1024 * 1024
"""With more than this waiting for it, a peer is not listened to: many such peers must not fill what all may take."""


class Pool:
    """The accounts of many peers."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._members: set[Account] = set()

    @property
    def is_over(self) -> bool:
        return self.held > self.limit

    def largest(self) -> Account | None:
        """The account that holds most: who is over the pool's limit is not the one who came last."""
        return max(self._members, key=lambda each: each.held, default=None)

    def add(self, account: Account) -> None:
        self._members.add(account)
        self.held += account.held

    def remove(self, account: Account) -> None:
        self._members.discard(account)
        self.held -= account.held


class Account:
    """What is kept for one peer. Nothing is refused here: whoever charges looks at `is_over` when it is convenient."""

    def __init__(self, limit: int, pool: Pool | None = None, *, close: Callable[[], None] | None = None) -> None:
        """`close` ends the connection; called by whoever has to make room in the pool."""
        self.limit = limit
        self.held = 0
        self.queued = 0
        """The part of it that goes when the peer takes it: answers and deliveries."""
        self.close = close or _nothing
        self._pool = pool
        if pool is not None:
            pool.add(self)

    @property
    def is_over(self) -> bool:
        return self.held > self.limit

    @property
    def room(self) -> int:
        return max(0, self.limit - self.held)

    @property
    def is_choked(self) -> bool:
        """Whether so much waits for the peer that it is not listened to until it has taken some of it."""
        return self.queued > min(self.limit // 2, QUEUED_MAX)

    def charge(self, size: int) -> None:
        self.held += size
        if self._pool is not None:
            self._pool.held += size

    def release(self, size: int) -> None:
        self.charge(-size)

    def queue(self, size: int) -> None:
        """Charge for something that the peer has to take; a negative size: it has."""
        self.queued += size
        self.charge(size)

    def move(self, limit: int, pool: Pool) -> None:
        """Another limit and another pool from now on: it is known who the peer is."""
        self.leave()
        self.limit = limit
        self._pool = pool
        pool.add(self)

    def leave(self) -> None:
        """The peer is gone, and soon all that was kept for it."""
        if self._pool is not None:
            self._pool.remove(self)
            self._pool = None


def _nothing() -> None:
    pass
