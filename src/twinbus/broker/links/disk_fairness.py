"""Shares of the disk: many large sends do not delay one small one.

All messages go to one disk, in the order in which they were taken in. A connection that sends alone may have much
waiting there. As soon as several send, little is put in front of the disk, and connections that have sent much in the
last seconds wait until that is written: one that sends little never waits behind more than a few large sends.
"""

from __future__ import annotations

import math

ALONE_BYTES = 1024 * 1024
"""What may wait to be written while one connection sends: about 4,500 small messages."""
SHARED_BYTES = 128 * 1024
"""The same while several do."""
LITTLE_BYTES = 128 * 1024
"""A connection that has sent less than this in the last seconds does not wait."""
REST_S = 0.001
"""How long the event loop rests between two turns while several connections wait for the disk. A commit needs the
interpreter a dozen times, and beside a busy loop it takes three times as long."""
SHARED_S = 1.0
"""How long the disk counts as shared after the last send of another connection."""
MESSAGE_BYTES = 200
"""What storing a message costs beside its payload, roughly."""


HALF_LIFE_S = 1.0


class DecayingSum:
    """How much was used in the last seconds, of time or of anything else: half of it is forgotten every second."""

    __slots__ = ("_amount", "_at")

    def __init__(self) -> None:
        self._amount = self._at = 0.0

    def add(self, amount: float, now: float) -> None:
        self._amount = self.at(now) + amount
        self._at = now

    def at(self, now: float) -> float:
        return self._amount * math.pow(0.5, max(0.0, now - self._at) / HALF_LIFE_S)

    @property
    def rank(self) -> float:
        """The lower, the less was used. It does not change while nothing is added: all sums decay at the same pace.

        So later comers have to have used less and less to be served before one that waits.
        """
        return math.log2(self._amount) + self._at / HALF_LIFE_S if self._amount > 0 else -math.inf


class SenderShare:
    """What one connection has sent, in the last seconds and not written yet."""

    def __init__(self) -> None:
        self.recent = DecayingSum()
        self.unwritten_bytes = 0
        self.unwritten_messages = 0

    def remove(self, size: int, messages: int) -> None:
        """Less waits to be written: it is on disk, or was refused."""
        self.unwritten_bytes -= size
        self.unwritten_messages -= messages


class DiskShare:
    """Decides which senders wait for the disk."""

    def __init__(self) -> None:
        self._last: SenderShare | None = None
        self._last_at = self._other_at = -SHARED_S

    def add(self, sender: SenderShare, size: int, messages: int, now: float) -> None:
        """A connection has sent something that is to be stored; `now` in seconds."""
        sender.unwritten_bytes += size
        sender.unwritten_messages += messages
        sender.recent.add(size + MESSAGE_BYTES * messages, now)
        if sender is not self._last:
            self._last, self._other_at = sender, self._last_at
        self._last_at = now

    def must_wait(self, sender: SenderShare, unwritten_bytes: int, now: float) -> bool:
        """Whether a connection is not heard until more is written; `unwritten_bytes` is what waits, of all of them."""
        if self.is_shared(now):
            return unwritten_bytes > SHARED_BYTES and sender.recent.at(now) > LITTLE_BYTES
        return sender.unwritten_bytes > 0 and unwritten_bytes > ALONE_BYTES

    def is_shared(self, now: float) -> bool:
        """Whether several connections have sent lately."""
        return 0 <= now - self._other_at <= SHARED_S  # the clock may have been set back

    def is_busy(self, unwritten_bytes: int, now: float) -> bool:
        """Whether several send, and as much waits to be written as may wait then."""
        return unwritten_bytes > SHARED_BYTES and self.is_shared(now)

    def rest_s(self, unwritten_bytes: int, now: float) -> float:
        """How long to leave the processor to the writers before waiting connections are processed again."""
        return REST_S if unwritten_bytes and self.is_shared(now) else 0.0
