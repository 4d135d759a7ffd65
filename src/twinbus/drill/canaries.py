"""Canaries: messages that are sent to see what becomes of them, marked so that consumers can pass them over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from azure.servicebus import ServiceBusMessage

from twinbus.client.aio_sender import PairedServiceBusSender
from twinbus.client.failures import one_line
from twinbus.drill.measures import Accepted, Event, Raised
from twinbus.pairing.receipt import Side, receipt_of

MARK = "twinbus-drill"
"""The application property of every canary; its value is the name of the drill."""


@dataclass(frozen=True, slots=True)
class Brood:
    """What all canaries of one drill have in common."""

    drill: str
    ttl_s: float
    session: str | None
    """Entities with sessions want one; it is the drill's own, so that nobody else's messages are touched."""

    def canary(self, number: int) -> ServiceBusMessage:
        return ServiceBusMessage(
            f"canary {number} of drill {self.drill}",
            message_id=f"{self.drill}-{number}",
            session_id=self.session,
            application_properties={MARK: self.drill},
            time_to_live=timedelta(seconds=self.ttl_s),
        )


class Flight:
    """Sends canaries one after the other, as an application would that has one thing to say at a time."""

    def __init__(
        self, sender: PairedServiceBusSender, brood: Brood, rate: float, note: Callable[[Event], None]
    ) -> None:
        self._sender = sender
        self._brood = brood
        self._pause_s = 1 / rate
        self._note = note
        self._is_over = asyncio.Event()
        self.last_error = ""

    def stop(self) -> None:
        """No canary begins any more; `run` returns when the last one has landed."""
        self._is_over.set()

    async def run(self) -> None:
        number, due = 0, monotonic()
        while not self._is_over.is_set():
            number += 1
            await self._send(number)
            due = max(due + self._pause_s, monotonic())  # after a send that took long there is no crowd of others
            await self._pause(due - monotonic())

    async def _send(self, number: int) -> None:
        message, started = self._brood.canary(number), monotonic()
        name = str(message.message_id)
        try:
            receipt = await self._sender.send_messages(message)
        except Exception as error:  # whatever it is, an application would have had it
            known = receipt_of(error)
            self.last_error = one_line(error)
            self._note(Raised(name, started, monotonic(), in_doubt=known is not None and known.in_doubt))
            return
        place = Accepted(name, started, monotonic(), "backlog" if receipt.side is Side.BACKLOG else "primary")
        self._note(place)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._is_over.wait()
