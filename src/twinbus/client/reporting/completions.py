"""What a receiver of a paired client is done with, for the ledger.

A namespace in Azure keeps no ledger: that a message was delivered is known only to whoever received it. Recorded is
what ends the stay of a message in its entity: it was completed, taken with receive-and-delete, or put among the dead
letters. What is abandoned or deferred is still there.
"""

from __future__ import annotations

from collections.abc import Sequence

from azure.servicebus import ServiceBusReceivedMessage

from twinbus.client.reporting.ledger_events import ClientRecorder
from twinbus.client.sdk.messages import read_facts
from twinbus.ledger.kinds import COMPLETED, RECEIVED_AND_DELETED, TOLD_BY_RECEIVER, Kind

MESSAGES_PER_EVENT_MAX = 2_000
"""A line of the ledger has a largest size, and ids may be long."""


class Completions:
    """Tells the ledger after the service has said so. Never fails: the application has what it asked for by then."""

    def __init__(self, recorder: ClientRecorder, path: str) -> None:
        self._tell = recorder.settled
        self._path = path.strip("/")

    def completed(self, message: ServiceBusReceivedMessage) -> None:
        self._tell(Kind.RECEIVED, self._path, (read_facts(message),), COMPLETED)

    def deleted(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """They were taken with receive-and-delete."""
        for first in range(0, len(messages), MESSAGES_PER_EVENT_MAX):
            some = messages[first : first + MESSAGES_PER_EVENT_MAX]
            self._tell(Kind.RECEIVED, self._path, tuple(map(read_facts, some)), RECEIVED_AND_DELETED)

    def dead_lettered(self, message: ServiceBusReceivedMessage, reason: str | None) -> None:
        why = "" if reason is None else str(reason)
        self._tell(Kind.DEAD_LETTERED, self._path, (read_facts(message),), TOLD_BY_RECEIVER, why)
