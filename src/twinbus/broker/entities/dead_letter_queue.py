"""Queues of dead letters. They have no dead-letter queue of their own, and nothing in them expires."""

from __future__ import annotations

from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.settings import QueueSettings


class DeadLetterQueue(Queue):
    """The messages of a queue or subscription that could not be processed."""

    owner: Queue | None = None
    """The queue or subscription that it belongs to."""

    def touch(self, now_ms: int) -> None:
        """Use of the dead letters counts as use of their queue: it must not delete itself, and them, meanwhile."""
        super().touch(now_ms)
        if self.owner is not None:
            self.owner.touch(now_ms)

    def _destination_of(self, settings: QueueSettings) -> str | None:
        return settings.forward_dead_letters_to


class TransferDeadLetterQueue(DeadLetterQueue):
    """The messages that a queue or subscription could not forward."""

    def _destination_of(self, settings: QueueSettings) -> str | None:
        return None
