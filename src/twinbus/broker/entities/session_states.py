"""The number and size of the session states of one entity.

The size of a state that is replaced is known to the store only: a million names would take too much memory. So a state
counts in full while it is being written; then the store reports the difference.
"""

from __future__ import annotations

from collections import deque

from twinbus.errors import QuotaExceeded

STATE_BYTES_MAX = 256 * 1024
STATES_MAX = 1_000_000
"""Per entity, as in the service."""


class SessionStateUsage:
    def __init__(self, count: int, size_bytes: int) -> None:
        """`count` and `size_bytes` are what is stored."""
        self._count = count
        self._size_bytes = size_bytes
        self._unwritten: deque[tuple[int, int]] = deque()
        """The change set of each state that is being written, and its size."""
        self._unwritten_bytes = 0

    @property
    def count(self) -> int:
        """The number of states, at most."""
        return self._count + len(self._unwritten)

    @property
    def size_bytes(self) -> int:
        """The size of all states, at most, session names included."""
        return self._size_bytes + self._unwritten_bytes

    def check(self, path: str, state: bytes, size_bytes: int, limit_bytes: int) -> None:
        """Raise `QuotaExceeded` unless there is space for a state of `size_bytes`."""
        if len(state) > STATE_BYTES_MAX:
            raise QuotaExceeded(f"the state of a session has at most {STATE_BYTES_MAX} bytes, got {len(state)}")
        if self.count >= STATES_MAX:
            raise QuotaExceeded(
                f"'{path}' keeps the states of {self.count} sessions, at most {STATES_MAX} are allowed; "
                "clear those that are not needed any more (set them to null)"
            )
        if self.size_bytes + size_bytes > limit_bytes:
            raise QuotaExceeded(
                f"the states of the sessions of '{path}' have {self.size_bytes} bytes of at most {limit_bytes}, and "
                f"{size_bytes} more were set; clear those that are not needed any more (set them to null), or raise "
                "its maximum size"
            )

    def write(self, number: int, size_bytes: int) -> None:
        """A state is written with this change set."""
        self._unwritten.append((number, size_bytes))
        self._unwritten_bytes += size_bytes

    def written(self, number: int, count: int, size_bytes: int) -> None:
        """Everything up to this change set is stored; the stored states grew by this much since the last call."""
        while self._unwritten and self._unwritten[0][0] <= number:
            self._unwritten_bytes -= self._unwritten.popleft()[1]
        self._count += count
        self._size_bytes += size_bytes
