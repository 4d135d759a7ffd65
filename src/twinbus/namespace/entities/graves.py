"""Where messages are put that could not be processed, or could not be forwarded. Both are queues of their entity."""

from __future__ import annotations

from twinbus.namespace.entities.queue import Queue
from twinbus.namespace.entities.settings import QueueSettings


class DeadLetters(Queue):
    def _destination_of(self, settings: QueueSettings) -> str | None:
        return settings.forward_dead_letters_to


class TransferDeadLetters(Queue):
    def _destination_of(self, settings: QueueSettings) -> str | None:
        return None
