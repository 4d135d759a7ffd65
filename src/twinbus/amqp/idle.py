"""Silence on a connection: how long the peer may be silent, and how long we may."""

from __future__ import annotations

_KEEP_ALIVE_MS_MIN = 50  # a peer that asks for more frames than that is not helped, we are not hurt


class IdleWatch:
    """Times of the last bytes in each direction, and what follows from them."""

    def __init__(self, silence_ms_max: int) -> None:
        self._silence_ms_max = silence_ms_max
        self._keep_alive_ms: int | None = None
        self._heard_ms: int | None = None
        self._sent_ms = 0
        self.now_ms: int | None = None

    def look(self, now_ms: int) -> None:
        """Time has passed. The first look starts both clocks."""
        self.now_ms = now_ms
        if self._heard_ms is None:
            self._heard_ms = self._sent_ms = now_ms

    def hear(self) -> None:
        """Bytes came in now."""
        self._heard_ms = self.now_ms

    def send(self) -> None:
        """Bytes went out at the time of the last look."""
        self._sent_ms = self.now_ms or 0

    def promise(self, peer_idle_ms: int | None) -> None:
        """The peer wants to hear something within `peer_idle_ms`; half of it leaves room for a slow network."""
        self._keep_alive_ms = max(peer_idle_ms // 2, _KEEP_ALIVE_MS_MIN) if peer_idle_ms else None

    def peer_is_gone(self) -> bool:
        """The peer was silent for longer than it may be."""
        deadline = self._silence_deadline()
        return deadline is not None and self.now_ms is not None and self.now_ms > deadline

    def keep_alive_is_due(self) -> bool:
        """We were silent for as long as we may be."""
        return self._keep_alive_ms is not None and (self.now_ms or 0) >= self._sent_ms + self._keep_alive_ms

    def next_ms(self) -> int | None:
        """When one of both becomes true, None for never."""
        deadline = self._silence_deadline()
        due = [] if deadline is None else [deadline + 1]
        if self._keep_alive_ms is not None:
            due.append(self._sent_ms + self._keep_alive_ms)
        return min(due, default=None)

    def _silence_deadline(self) -> int | None:
        if self._heard_ms is None or not self._silence_ms_max:
            return None
        return self._heard_ms + self._silence_ms_max
