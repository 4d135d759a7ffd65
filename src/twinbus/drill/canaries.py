"""Canaries: messages that a drill sends and looks for, marked so that consumers can skip them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from azure.servicebus import ServiceBusMessage

from twinbus.amqp.codec.types import text_of
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.client.aio.sender import PairedServiceBusSender
from twinbus.client.sdk.failures import one_line
from twinbus.drill.measures import CanaryAccepted, CanaryRaised, Event
from twinbus.pairing.sending.receipt import NamespaceSide, receipt_of
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.dial import Dial
from twinbus.transport.links.annotations import sequence_of
from twinbus.transport.links.peek import last_sequence, pages, peek

MARK = "twinbus-drill"
"""The application property of every canary; its value is the name of the drill."""


@dataclass(frozen=True, slots=True)
class CanaryTemplate:
    """What all canaries of one drill have in common."""

    drill: str
    ttl_s: float
    session: str | None
    """A session of its own for entities with sessions, so that no other messages are touched."""

    def canary(self, number: int) -> ServiceBusMessage:
        return ServiceBusMessage(
            f"canary {number} of drill {self.drill}",
            message_id=f"{self.drill}-{number}",
            session_id=self.session,
            application_properties={MARK: self.drill},
            time_to_live=timedelta(seconds=self.ttl_s),
        )


class CanarySender:
    """Sends canaries one after the other, as an application with one sender does."""

    def __init__(
        self, sender: PairedServiceBusSender, template: CanaryTemplate, rate: float, note: Callable[[Event], None]
    ) -> None:
        self._sender = sender
        self._template = template
        self._pause_s = 1 / rate
        self._note = note
        self._is_over = asyncio.Event()
        self.last_error = ""

    def stop(self) -> None:
        """Send no further canary; `run` returns when the last send has ended."""
        self._is_over.set()

    async def run(self) -> None:
        number, due = 0, monotonic()
        while not self._is_over.is_set():
            number += 1
            await self._send(number)
            due = max(due + self._pause_s, monotonic())  # a slow send is not followed by a burst
            await self._pause(due - monotonic())

    async def _send(self, number: int) -> None:
        message, started = self._template.canary(number), monotonic()
        name = str(message.message_id)
        try:
            receipt = await self._sender.send_messages(message)
        except Exception as error:  # an application would get the same
            known = receipt_of(error)
            self.last_error = one_line(error)
            self._note(CanaryRaised(name, started, monotonic(), in_doubt=known is not None and known.in_doubt))
            return
        place = CanaryAccepted(
            name, started, monotonic(), "backlog" if receipt.side is NamespaceSide.BACKLOG else "primary"
        )
        self._note(place)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._is_over.wait()


class CanaryFinder:
    """Finds the canaries of one drill in one queue or subscription of the primary. Raises `ConnectionFailed`."""

    def __init__(
        self, dial: Dial, path: str, drill: str, session: str | None, attempt_s: float, *, rereads: bool
    ) -> None:
        """`path` is a queue, or a subscription as `topic/Subscriptions/name`.

        `rereads`: every look is at everything, because numbers do not grow there (the service has a range of them for
        each partition).
        """
        self._dial = dial
        self._path = path
        self._drill = drill
        self._session = session
        self._attempt_s = attempt_s
        self._rereads = rereads
        self._next = 1

    async def skip_what_is_there(self) -> None:
        """Look only at what comes from now on: a deep queue is not read from its beginning at every look."""
        if self._rereads:
            return
        async with NamespaceConnection(self._dial, attempt_s=self._attempt_s) as connection:
            first = await peek(connection, self._path, 1, 1)
            if first:
                self._next = 1 + await last_sequence(connection, self._path, sequence_of(first[0]))

    async def look(self) -> list[tuple[str, int]]:
        """Canaries that are new since the last look, each copy with its sequence number."""
        found: list[tuple[str, int]] = []
        if self._rereads:
            self._next = 1
        async with NamespaceConnection(self._dial, attempt_s=self._attempt_s) as connection:
            async for encoded_messages in pages(connection, self._path, self._next, self._session):
                named = [(name_of(encoded, self._drill), sequence_of(encoded)) for encoded in encoded_messages]
                found += [(name, sequence) for name, sequence in named if name is not None]
                self._next = named[-1][1] + 1
        return found

    async def at_head(self) -> int:
        """How many canaries lie in front of everybody else's messages."""
        count = 0
        async with NamespaceConnection(self._dial, attempt_s=self._attempt_s) as connection:
            async for encoded_messages in pages(connection, self._path):
                for encoded in encoded_messages:
                    if name_of(encoded, self._drill) is None:
                        return count
                    count += 1
        return count


async def canaries_in(dial: Dial, paths: list[str], drill: str, attempt_s: float) -> set[str]:
    """The canaries that lie in these queues. Raises `ConnectionFailed`."""
    found: set[str] = set()
    async with NamespaceConnection(dial, attempt_s=attempt_s) as connection:
        for path in paths:
            async for encoded_messages in pages(connection, path):
                found |= {name for encoded in encoded_messages if (name := name_of(encoded, drill)) is not None}
    return found


def name_of(encoded: bytes, drill: str) -> str | None:
    """The id of a canary of this drill; None for any other message."""
    layout = sections.walk(encoded)
    if sections.read_application_property(encoded, layout, MARK) != drill:
        return None
    return text_of(sections.read_property(encoded, layout, PropertyField.MESSAGE_ID))
