"""Where messages are put that could not be processed, or could not be forwarded. Both are queues of their entity."""

from __future__ import annotations

from twinbus.namespace.entities.queue import Queue
from twinbus.namespace.entities.settings import QueueSettings


class Grave(Queue):
    owner: Queue | None = None
    """The queue or subscription that it belongs to."""

    def used(self, now_ms: int) -> None:
        """Who looks after dead letters uses their queue: it must not remove itself, and them, meanwhile."""
        super().used(now_ms)
        if self.owner is not None:
            self.owner.used(now_ms)


class DeadLetters(Grave):
    def _destination_of(self, settings: QueueSettings) -> str | None:
        return settings.forward_dead_letters_to


class TransferDeadLetters(Grave):
    def _destination_of(self, settings: QueueSettings) -> str | None:
        return None
