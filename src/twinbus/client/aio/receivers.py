"""Receivers of a paired client: the SDK's own, on the primary, without pings; what they settle is recorded.

An embedded namespace delivers no pings; the real service does, for the second that they live.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import monotonic
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError

from twinbus.client.core.ping_message import is_ping
from twinbus.client.reporting.ledger_events import ClientRecorder, Completions
from twinbus.client.sdk.failures import describe
from twinbus.client.sdk.internals.connections import close_thoroughly
from twinbus.client.sdk.internals.handlers import AioHookedReceiver
from twinbus.pairing.primary_abilities import Ability
from twinbus.pairing.sending.failure import Failure


class PairedServiceBusReceiver(AioHookedReceiver):
    """A `ServiceBusReceiver` that shows no pings; with a ledger, what it is done with is recorded."""

    _completions: Completions | None = None
    _on_result: Callable[[Failure | None], None] | None = None
    """Where to say whether receiving works."""

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        until = None if max_wait_time is None else monotonic() + max_wait_time
        while True:
            with self._reporting_result():
                found = await super().receive_messages(max_message_count, max_wait_time)
            kept = [message for message in found if not await self._took_out(message)]
            if kept or not found:
                return self._taken(kept)
            if until is not None:
                max_wait_time = until - monotonic()
                if max_wait_time <= 0:
                    return []

    async def receive_deferred_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> list[ServiceBusReceivedMessage]:
        with self._reporting_result():
            found = await super().receive_deferred_messages(sequence_numbers, timeout=timeout, **kwargs)
        return self._taken(found)

    async def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        await super().complete_message(message)
        if self._completions is not None:
            self._completions.completed(message)

    async def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        await super().dead_letter_message(message, reason, error_description)
        if self._completions is not None:
            self._completions.dead_lettered(message, reason)

    async def peek_messages(
        self, max_message_count: int = 1, *, sequence_number: int = 0, timeout: float | None = None, **kwargs: Any
    ) -> list[ServiceBusReceivedMessage]:
        with self._reporting_result():
            found = await super().peek_messages(
                max_message_count, sequence_number=sequence_number, timeout=timeout, **kwargs
            )
        return [message for message in found if not is_ping(message)]

    async def choose_next(self, take: Callable[[], Awaitable[ServiceBusReceivedMessage]]) -> ServiceBusReceivedMessage:
        while True:
            with self._reporting_result():
                message = await take()
            if not await self._took_out(message):
                self._taken([message])
                return message

    @contextlib.contextmanager
    def _reporting_result(self) -> Iterator[None]:
        """Tell whether what is done inside works; only errors of the SDK say something of the service."""
        try:
            yield
        except AzureError as error:
            if self._on_result is not None:
                self._on_result(describe(error, sending=False))
            raise
        if self._on_result is not None:
            self._on_result(None)

    async def _took_out(self, message: ServiceBusReceivedMessage) -> bool:
        if not is_ping(message):
            return False
        if not self.deletes:
            with contextlib.suppress(ServiceBusError):  # it lives for a second and ends without us too
                await super().complete_message(message)
        return True

    def _taken(self, messages: list[ServiceBusReceivedMessage]) -> list[ServiceBusReceivedMessage]:
        """The messages; where receiving deletes them, that is recorded."""
        if self._completions is not None and self.deletes:
            self._completions.deleted(messages)
        return messages


def without_pings(
    receiver: ServiceBusReceiver,
    recorder: ClientRecorder | None = None,
    tried: Callable[[str, Ability, Failure | None], None] | None = None,
) -> PairedServiceBusReceiver:
    """The same receiver, which passes over pings from now on and records completions in the ledger, if there is one.

    `tried` is told of every attempt to receive.
    """
    # The SDK names the class itself where it makes a receiver; ours only adds behaviour, so it can be put on later.
    receiver.__class__ = PairedServiceBusReceiver
    assert isinstance(receiver, PairedServiceBusReceiver)
    close_thoroughly(receiver)
    receiver._completions = None if recorder is None else Completions(recorder, receiver.entity_path)
    receiver._on_result = None if tried is None else partial(tried, receiver.entity_path, Ability.RECEIVE)
    return receiver
