"""How much memory is held for a peer, and its limit.

Everything that stays in memory until the peer sends or reads more is charged to the account of its connection:
unfinished frames and deliveries, unread answers, sessions, links. Accounts of one group (peers that are not
authenticated yet; all others) share a pool, which has a limit as well.

Python objects count with their approximate size; single small fields do not count.
"""

from __future__ import annotations

from collections.abc import Callable

SESSION_COST = 2048
LINK_COST = 1536
FRAME_COST = 160
"""Of a waiting frame, in addition to its bytes."""
ELEMENT_COST = 96
"""Of a decoded value, in addition to its bytes: an empty list is one byte on the wire."""
QUEUED_MAX = 4 * 1024 * 1024
"""A peer that leaves more than this unread is not read from: many such peers must not use up the pool."""


class AccountPool:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._members: set[Account] = set()

    @property
    def is_over(self) -> bool:
        return self.held > self.limit

    def largest(self) -> Account | None:
        """The account that holds most: it, not the latest one, is to blame if the pool is over its limit."""
        return max(self._members, key=lambda each: each.held, default=None)

    def add(self, account: Account) -> None:
        self._members.add(account)
        self.held += account.held

    def remove(self, account: Account) -> None:
        self._members.discard(account)
        self.held -= account.held


class Account:
    """Memory held for one peer. Nothing is refused here: callers look at `is_over` when it is convenient."""

    def __init__(self, limit: int, pool: AccountPool | None = None, *, close: Callable[[], None] | None = None) -> None:
        """`close` ends the connection, to make room in the pool."""
        self.limit = limit
        self.held = 0
        self.queued = 0
        """The part that is freed when the peer reads it: answers and deliveries."""
        self.close = close or (lambda: None)
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
        """Whether the peer must read some output before it is read from again."""
        return self.queued > min(self.limit // 2, QUEUED_MAX)

    def charge(self, size: int) -> None:
        self.held += size
        if self._pool is not None:
            self._pool.held += size

    def release(self, size: int) -> None:
        self.charge(-size)

    def queue(self, size: int) -> None:
        """Charge for output that waits to be read; a negative size: it was read."""
        self.queued += size
        self.charge(size)

    def move(self, limit: int, pool: AccountPool) -> None:
        """Change limit and pool: the peer is authenticated now."""
        self.leave()
        self.limit = limit
        self._pool = pool
        pool.add(self)

    def leave(self) -> None:
        """Leave the pool: the peer is gone."""
        if self._pool is not None:
            self._pool.remove(self)
            self._pool = None
