"""What a queue has to do when a change set of its own is committed."""

from __future__ import annotations

from twinbus.namespace.entities.receivers import Receiver
from twinbus.namespace.store.api import MessageRow


class Afterwards:
    """What follows once a change set is committed."""

    __slots__ = ("appearing", "delivered", "number", "returning")

    def __init__(self, number: int) -> None:
        self.number = number
        self.appearing: list[MessageRow] = []
        """New messages."""
        self.returning: list[MessageRow] = []
        """Messages that were lent and are free again."""
        self.delivered: list[tuple[Receiver, int]] = []
        """Who gets a message that is deleted by now, and its size."""
