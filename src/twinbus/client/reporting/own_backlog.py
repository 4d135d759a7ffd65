"""What one client has itself put into the backlog: known without asking anybody, and all that a sender has to know.

What has come home since, it cannot know. A look that proves the backlog empty begins a new count.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from twinbus.client.reporting.status import SentToBacklog


class OwnBacklog:
    """Times are seconds since 1970."""

    def __init__(self) -> None:
        self._messages = 0
        self._bytes = 0
        self._first_at: float | None = None
        self._last_at: float | None = None

    def add(self, sizes: Iterable[int], now: float) -> None:
        """The backlog has accepted messages of these sizes."""
        each = list(sizes)
        self._messages += len(each)
        self._bytes += sum(each)
        self._first_at = now if self._first_at is None else self._first_at
        self._last_at = now

    def seen_empty(self, looked_at: float) -> None:
        """A look that began then has found every backlog queue empty."""
        if self._last_at is not None and looked_at > self._last_at:
            self._messages = self._bytes = 0
            self._first_at = self._last_at = None

    def status(self) -> SentToBacklog:
        return SentToBacklog(
            messages=self._messages,
            size_bytes=self._bytes,
            first_at=None if self._first_at is None else datetime.fromtimestamp(self._first_at, UTC),
            last_at=None if self._last_at is None else datetime.fromtimestamp(self._last_at, UTC),
        )
