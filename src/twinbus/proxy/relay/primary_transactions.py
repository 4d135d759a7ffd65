"""Transactions at the primary, on the connection that one application has there."""

from __future__ import annotations

import asyncio

from twinbus.amqp.codec.composites import to_described
from twinbus.amqp.codec.performatives import Declare, Discharge
from twinbus.amqp.message import sections
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.links.answered_sender import AnsweredSender


class PrimaryTransaction:
    """It is lost with the link on which it was declared: the primary has rolled it back then."""

    def __init__(self, coordinator: AnsweredSender, txn_id: bytes) -> None:
        self.coordinator = coordinator
        self.id = txn_id
        self.order = asyncio.Lock()
        """One thing of it after the other, in the order of the application."""

    @property
    def is_lost(self) -> bool:
        return not self.coordinator.is_open


class TransactionLinks:
    """The coordinator's link and those of senders, on one connection to the primary. All raise `ConnectionFailed`."""

    def __init__(self, connection: NamespaceConnection, attempt_s: float) -> None:
        self.connection = connection
        self._attempt_s = attempt_s
        self._coordinator: AnsweredSender | None = None
        self._senders: dict[tuple[str, str | None], AnsweredSender] = {}
        self._opening = asyncio.Lock()

    async def declare(self) -> PrimaryTransaction:
        async with self._opening:
            if self._coordinator is None or not self._coordinator.is_open:
                opening = self._new("the coordinator of transactions")
                opening.link = await self.connection.open_coordinator(opening)
                self._coordinator = opening
        coordinator = self._coordinator
        txn_id = await coordinator.send(_message(Declare()))
        return PrimaryTransaction(coordinator, txn_id or b"")

    async def send(
        self, transaction: PrimaryTransaction, path: str, via: str | None, payload: bytes, message_format: int
    ) -> None:
        async with self._opening:
            sender = self._senders.get((path, via))
            if sender is None or not sender.is_open:
                sender = self._new(path)
                sender.link = await self.connection.open_sender(path, sender, via=via)
                self._senders[path, via] = sender
        await sender.send(payload, message_format, transaction.id)

    async def discharge(self, transaction: PrimaryTransaction, *, fails: bool) -> None:
        await transaction.coordinator.send(_message(Discharge(transaction.id, fails)))

    def _new(self, address: str) -> AnsweredSender:
        return AnsweredSender(address, self.connection.flush, self._attempt_s)


def _message(wanted: Declare | Discharge) -> bytes:
    return sections.encode_message(value=to_described(wanted))
