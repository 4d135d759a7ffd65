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
        self._sent = SentToBacklog()

    def add(self, sizes: Iterable[int], now: float) -> None:
        """The backlog has accepted messages of these sizes."""
        before, each, at = self._sent, list(sizes), datetime.fromtimestamp(now, UTC)
        self._sent = SentToBacklog(
            messages=before.messages + len(each),
            size_bytes=before.size_bytes + sum(each),
            first_at=before.first_at or at,
            last_at=at,
        )

    def seen_empty(self, looked_at: float) -> None:
        """A look that began then has found every backlog queue empty."""
        last_at = self._sent.last_at
        if last_at is not None and datetime.fromtimestamp(looked_at, UTC) > last_at:
            self._sent = SentToBacklog()

    def status(self) -> SentToBacklog:
        return self._sent
