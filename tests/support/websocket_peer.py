"""A client that speaks AMQP over WebSocket: our engine, and a WebSocket library between it and the socket."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.events import Event as WebSocketEvent

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import Event
from twinbus.amqp.limits import ConnectionLimits
from twinbus.amqp.sasl import PLAIN, ClientSasl
from twinbus.connection_string import ROOT_KEY_NAME

WAIT_S = 40
PATH = "/$servicebus/websocket"


class WebSocketPeer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        self.reader = reader
        self.writer = writer
        self.websocket = WSConnection(ConnectionType.CLIENT)
        sasl = ClientSasl(PLAIN, ROOT_KEY_NAME, key)
        limits = ConnectionLimits(message_bytes_max=2_000_000)
        self.connection = Connection(
            role=Role.CLIENT, container_id="peer", sasl=sasl, idle_timeout_ms=240_000, limits=limits
        )
        self.connection.open()
        self.session = self.connection.begin()
        self.heard: list[WebSocketEvent] = []
        """What the server sent beside AMQP, in its order."""
        self._events: list[Event] = []

    async def upgrade(self, path: str = PATH, subprotocols: Sequence[str] = ("AMQPWSB10",)) -> WebSocketEvent:
        """Ask for a WebSocket; the answer."""
        asked = Request(host="localhost", target=path, subprotocols=list(subprotocols))
        self.writer.write(self.websocket.send(asked))
        async with asyncio.timeout(WAIT_S):
            while not self.heard:
                await self._hear()
        return self.heard.pop(0)

    def say(self, *events: BytesMessage | TextMessage | Ping | Pong | CloseConnection) -> None:
        self.writer.write(b"".join(map(self.websocket.send, events)))

    def flush(self, *, message_bytes: int = 1_000_000) -> None:
        """Send what the engine has to say, in messages of this size."""
        output = self.connection.take_output()
        pieces = range(0, len(output), message_bytes)
        self.say(*[BytesMessage(data=output[at : at + message_bytes]) for at in pieces])

    async def until(self, kind: type[Event], *, message_bytes: int = 1_000_000) -> Event:
        """Talk until there is an AMQP event of this kind; it and what came before it is forgotten."""
        async with asyncio.timeout(WAIT_S):
            while True:
                while self._events:
                    event = self._events.pop(0)
                    if isinstance(event, kind):
                        return event
                self.flush(message_bytes=message_bytes)
                await self._hear()

    async def until_said(self, kind: type[WebSocketEvent]) -> WebSocketEvent:
        """The next thing of this kind that the server says beside AMQP."""
        async with asyncio.timeout(WAIT_S):
            while True:
                while self.heard:
                    event = self.heard.pop(0)
                    if isinstance(event, kind):
                        return event
                await self._hear()

    async def rest(self) -> list[WebSocketEvent]:
        """What is still said beside AMQP, until the server hangs up."""
        async with asyncio.timeout(WAIT_S):
            try:
                while True:
                    await self._hear()
            except ConnectionError:
                return self.heard

    async def _hear(self) -> None:
        data = await self.reader.read(65536)
        if not data:
            raise ConnectionAbortedError("the server hung up")
        self.websocket.receive_data(data)
        for event in self.websocket.events():
            if isinstance(event, BytesMessage):
                self._events += self.connection.receive(bytes(event.data), 0)
            elif isinstance(event, AcceptConnection | RejectConnection | RejectData | Ping | Pong | CloseConnection):
                self.heard.append(event)


@asynccontextmanager
async def websocket_peer(
    port: int,
    key: str,
    *,
    tls: ssl.SSLContext | None = None,
    receive_bytes: int | None = None,
    sock: socket.socket | None = None,
) -> AsyncIterator[WebSocketPeer]:
    """Connected, and nothing said yet.

    `receive_bytes`: what its machine keeps for it at most. `sock`: it is connected already.
    """
    if sock is None:
        sock = socket.socket()
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    name = None if tls is None else "127.0.0.1"
    reader, writer = await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=name)
    try:
        yield WebSocketPeer(reader, writer, key)
    finally:
        writer.transport.abort()
