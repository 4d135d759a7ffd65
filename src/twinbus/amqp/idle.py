"""Idle timeouts of a connection, in both directions."""

from __future__ import annotations

_KEEP_ALIVE_MS_MIN = 50  # protects us from a peer that asks for more


class IdleWatch:
    """The times of the last bytes in each direction, and the deadlines that follow."""

    def __init__(self, idle_timeout_ms: int) -> None:
        self._idle_timeout_ms = idle_timeout_ms
        self._keep_alive_ms: int | None = None
        self._received_ms: int | None = None
        self._sent_ms = 0
        self.now_ms: int | None = None

    def set_time(self, now_ms: int) -> None:
        """The first call starts both clocks."""
        self.now_ms = now_ms
        if self._received_ms is None:
            self._received_ms = self._sent_ms = now_ms

    def received(self) -> None:
        self._received_ms = self.now_ms

    def sent(self) -> None:
        self._sent_ms = self.now_ms or 0

    def set_peer_timeout(self, timeout_ms: int | None) -> None:
        """The peer's idle timeout; half of it leaves time for a slow network."""
        self._keep_alive_ms = max(timeout_ms // 2, _KEEP_ALIVE_MS_MIN) if timeout_ms else None

    def peer_is_gone(self) -> bool:
        deadline = self._receive_deadline()
        return deadline is not None and self.now_ms is not None and self.now_ms > deadline

    def keep_alive_is_due(self) -> bool:
        return self._keep_alive_ms is not None and (self.now_ms or 0) >= self._sent_ms + self._keep_alive_ms

    def next_ms(self) -> int | None:
        """When one of both becomes true; None: never."""
        deadline = self._receive_deadline()
        due = [] if deadline is None else [deadline + 1]
        if self._keep_alive_ms is not None:
            due.append(self._sent_ms + self._keep_alive_ms)
        return min(due, default=None)

    def _receive_deadline(self) -> int | None:
        if self._received_ms is None or not self._idle_timeout_ms:
            return None
        return self._received_ms + self._idle_timeout_ms
