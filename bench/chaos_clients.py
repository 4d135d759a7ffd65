"""Applications for `chaos_proxy`: a sender and a receiver that come back after every loss, and note what is in doubt.

A message is *in doubt* when its sender, or its receiver, does not know what became of it: it had left and there is no
answer, or it was accepted and that is not confirmed. Each doubt may be one copy more, and nothing else may.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bench.namespaces import ServedProxy
from bench.processes import LOOPBACK
from twinbus.amqp.codec.outcomes import ACCEPTED, Rejected
from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.serial import ranges
from twinbus.client.native.links import NativeLinks
from twinbus.client.native.send_window import PendingTransfer, SendWindow
from twinbus.client.sdk.failures import LinkFailed
from twinbus.pairing.sending.failure import Failure
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.dial import Dial
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.link_handler import LinkHandler

WINDOW = 500
"""Messages of one sender that wait for an answer, and what one receiver may get ahead."""
ATTEMPT_S = 30.0
RETRY_S = 0.05

OnDoubt = Callable[[str, str], None]
"""Gets the queue and the id."""


class Application:
    """Connections to the proxy that can be cut as kill -9 of the application would."""

    def __init__(self, proxy: ServedProxy) -> None:
        self._port = proxy.port
        self._sockets: list[asyncio.WriteTransport] = []
        self.dial: Dial = replace(proxy.namespace.dial(), connect=self._connect)

    async def _connect(self, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        transport, _ = await asyncio.get_running_loop().create_connection(make_protocol, LOOPBACK, self._port)
        self._sockets.append(transport)

    async def run(self) -> None:
        """Until it is cancelled."""
        raise NotImplementedError

    def cut(self) -> None:
        for transport in self._sockets:
            transport.abort()
        self._sockets.clear()


class _Sent(PendingTransfer):
    __slots__ = ("message_id", "sender")

    def __init__(self, sender: Sender, message_id: str, size: int) -> None:
        super().__init__(size, asyncio.get_running_loop().time())
        self.sender = sender
        self.message_id = message_id

    def stored(self, _at: float) -> None:
        self.sender.was_stored(self.message_id)

    def failed(self, failure: Failure, _at: float) -> None:
        self.sender.has_failed(self.message_id, failure)


class Sender(Application):
    """Sends what it is given, many at a time, each until it is accepted."""

    def __init__(self, proxy: ServedProxy, queue: str, on_stored: OnDoubt, on_doubt: OnDoubt) -> None:
        super().__init__(proxy)
        self.queue = queue
        self.under_way: set[str] = set()
        self.forgotten: set[str] = set()
        """In doubt when the application ended: nobody sends them again, and nobody was promised anything."""
        self._on_stored, self._on_doubt = on_stored, on_doubt
        self._todo: deque[str] = deque()
        self._links = NativeLinks(self.dial, "chaos", ATTEMPT_S)
        self._changed = asyncio.Event()
        self._is_killed = False

    def give(self, ids: list[str]) -> None:
        self._todo.extend(ids)
        self._changed.set()

    @property
    def waiting(self) -> int:
        """Not sent yet."""
        return len(self._todo)

    @property
    def is_done(self) -> bool:
        return not self._todo and not self.under_way

    async def end_and_begin_anew(self) -> None:
        """As if the application was killed: what is not answered is not sent again."""
        self._is_killed = True
        self.cut()
        while self.under_way:
            await asyncio.sleep(0)
        self._is_killed = False

    async def run(self) -> None:
        try:
            while True:
                try:
                    window = await self._links.get(self.queue, ATTEMPT_S)
                except LinkFailed:
                    await asyncio.sleep(RETRY_S)
                else:
                    await self._send_on(window)
        finally:
            self._links.end()
            await self._links.close()

    async def _send_on(self, window: SendWindow) -> None:
        while not window.is_retired:
            while self._todo and window.count < WINDOW and not window.is_retired:
                message_id = self._todo.popleft()
                payload = encode(message_id)
                self.under_way.add(message_id)
                window.send(payload, 0, _Sent(self, message_id, len(payload)))
            self._links.flush_soon()
            self._changed.clear()
            await self._changed.wait()

    def was_stored(self, message_id: str) -> None:
        self.under_way.discard(message_id)
        self._on_stored(self.queue, message_id)
        self._changed.set()

    def has_failed(self, message_id: str, failure: Failure) -> None:
        self.under_way.discard(message_id)
        if self._is_killed:
            self.forgotten.add(message_id)
        else:
            if failure.in_doubt:
                self._on_doubt(self.queue, message_id)
            self._todo.append(message_id)
        self._changed.set()


class Receiver(Application):
    """Takes everything out of a queue under lock, and completes it."""

    def __init__(
        self, proxy: ServedProxy, queue: str, on_arrival: Callable[[str, str, bytes], None], on_doubt: OnDoubt
    ) -> None:
        super().__init__(proxy)
        self._queue = queue
        self._on_arrival, self._on_doubt = on_arrival, on_doubt

    async def run(self) -> None:
        while True:
            with suppress(ConnectionFailed):
                async with NamespaceConnection(self.dial, attempt_s=ATTEMPT_S, name="chaos") as connection:
                    while True:  # a primary that goes away ends the link, and not the connection
                        await self._receive(connection)
            await asyncio.sleep(RETRY_S)

    async def _receive(self, connection: NamespaceConnection) -> None:
        handler = _Received(self._queue, connection, self._on_arrival, self._on_doubt)
        link = await connection.open_receiver(self._queue, handler)
        link.keep_credit = WINDOW
        connection.flush()
        await handler.has_ended.wait()


class _Received(LinkHandler):
    """One link of a receiver."""

    def __init__(self, queue: str, connection: NamespaceConnection, on_arrival: Any, on_doubt: OnDoubt) -> None:
        super().__init__()
        self._queue, self._connection = queue, connection
        self._on_arrival, self._on_doubt = on_arrival, on_doubt
        self._unconfirmed: dict[int, str] = {}
        self.has_ended = asyncio.Event()

    def on_transfers(self, transfers: list[TransferArrived]) -> None:
        for transfer in transfers:
            message_id, body = decode(transfer.payload)
            self._unconfirmed[transfer.delivery_id] = message_id
            self._on_arrival(self._queue, message_id, body)
        link = transfers[0].link
        assert isinstance(link, ReceivingLink)
        for first, last in ranges([transfer.delivery_id for transfer in transfers]):
            link.settle(first, last, ACCEPTED, settled=False)
        self._connection.flush()

    def on_disposition(self, event: DispositionArrived) -> None:
        for delivery_id, _ in event.deliveries:
            message_id = self._unconfirmed.pop(delivery_id, None)
            if message_id is not None and isinstance(event.outcome, Rejected):
                self._on_doubt(self._queue, message_id)  # its lock was lost

    def on_detached(self, failure: Failure) -> None:
        super().on_detached(failure)
        for message_id in self._unconfirmed.values():
            self._on_doubt(self._queue, message_id)
        self._unconfirmed.clear()
        self.has_ended.set()


def encode(message_id: str) -> bytes:
    """A durable message whose body is its id."""
    properties = {PropertyField.MESSAGE_ID: message_id}
    header = sections.Header(durable=True)
    return sections.encode_message(header=header, properties=properties, data=message_id.encode())


def decode(message: bytes) -> tuple[str, bytes]:
    """Id and body."""
    layout = sections.walk(message)
    message_id = sections.read_property(message, layout, PropertyField.MESSAGE_ID)
    return str(message_id), b"".join(sections.data_sections(message, layout))
