"""What is wrong at the moment between the clients and one namespace, or with some of its queues."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Trouble(Enum):
    # on the way
    REFUSED = "connections are refused"
    SILENT = "the server does not answer"
    REQUESTS_LOST = "requests are lost"
    ANSWERS_LOST = "what is sent is stored and not acknowledged"
    RESET = "connections are cut in the middle"
    SLOW = "everything takes long"
    # when connecting
    BUSY = "the server says it is busy"
    UNAUTHORISED = "no key is good enough"
    CONDITION = "the server answers with some error"
    # inside
    CRASH = "the process dies, and is started again"
    DISK = "the disk refuses"
    DISABLED = "a queue is disabled"
    FULL = "a queue is full"
    DELETED = "a queue is deleted, and made again"


NEEDS_A_QUEUE = (Trouble.DISABLED, Trouble.FULL, Trouble.DELETED)


@dataclass(frozen=True, slots=True, eq=False)
class Spell:
    """One trouble for a while."""

    trouble: Trouble
    path: str | None
    """The queue it is about; None: the whole namespace."""
    share: float = 1.0
    """How many of the attempts it meets."""
    condition: str = "amqp:internal-error"


class Conditions:
    """Of one namespace."""

    def __init__(self) -> None:
        self._spells: list[Spell] = []

    def begin(self, spell: Spell) -> None:
        self._spells.append(spell)

    def end(self, spell: Spell) -> None:
        if spell in self._spells:
            self._spells.remove(spell)

    def clear_up(self) -> None:
        self._spells.clear()

    def over(self, path: str) -> list[Spell]:
        """What may happen to an attempt on this queue."""
        return [spell for spell in self._spells if spell.path is None or spell.path == path]
