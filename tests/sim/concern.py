"""What one kind of entity promises, kept beside the others in one simulated namespace (`kind_world.py`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from sim.clock import VirtualClock
from sim.disk import Disk
from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.core.commands import (
    AcceptSession,
    AdminCommand,
    CancelScheduled,
    Command,
    GetSessionState,
    OpenReceiver,
    SendMessages,
    SetSessionState,
)
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Reply
from twinbus.broker.message import PARTITION_KEY, SCHEDULED_TIME, Arrival, read_arrival
from twinbus.broker.operations import ReceiverLost

Asking = (
    AdminCommand | SendMessages | CancelScheduled | AcceptSession | OpenReceiver | SetSessionState | GetSessionState
)
"""The commands that want an answer."""


class Place:
    """What a concern needs of the world."""

    def __init__(self, random: Random, clock: VirtualClock, disk: Disk, seen: Counter[str]) -> None:
        self.random = random
        self.clock = clock
        self.disk = disk
        self.seen = seen
        self.numbers = count(1)
        self.ask: Callable[[Concern, Asking, Any], None]
        """Asks the namespace; what the concern wants to know of the question comes back with the answer."""
        self.order: Callable[[Command[object]], None]
        """Does what needs no answer."""


class Concern(ABC):
    """Every method is called when its sentence is true; those that a concern does not need say nothing."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    def begin(self) -> None:
        """Make the entities."""

    @abstractmethod
    def actions(self) -> dict[Callable[[], None], float]:
        """What may happen, and how often."""

    @abstractmethod
    def answered(self, command: Asking, note: Any, reply: Reply) -> None:
        """Hold an answer against what is known, and enter it."""

    def lost(self, command: Asking, note: Any) -> None:  # noqa: B027
        """The process is gone: this will never be answered."""

    def dismissed(self, reply: ReceiverLost) -> None:  # noqa: B027
        """A receiver has nothing more to expect."""

    def life_ended(self) -> None:  # noqa: B027
        """The process is gone, or has thrown its machine away: receivers and locks are gone."""

    def leave(self) -> None:  # noqa: B027
        """It is over: whoever is connected goes."""

    @abstractmethod
    def look(self, machine: NamespaceMachine) -> None:
        """Nothing is under way: see that everything is as it should be."""


def arrival(
    name: str,
    *,
    label: str | None = None,
    session: str | None = None,
    due_at_ms: int | None = None,
    key: str | None = None,
) -> Arrival:
    """A message with an id, and what else it may have."""
    annotations: dict[str, object] = {}
    if due_at_ms is not None:
        annotations[SCHEDULED_TIME] = Timestamp(due_at_ms)
    if key is not None:
        annotations[PARTITION_KEY] = key
    payload = sections.encode_message(
        annotations=annotations or None,
        properties={PropertyField.MESSAGE_ID: name, PropertyField.SUBJECT: label, PropertyField.GROUP_ID: session},
        data=bytes(20),
    )
    return read_arrival(payload, lambda: "unused")
