"""The client's end of AMQP over WebSocket: asks for the upgrade, then carries the bytes of another protocol."""

from __future__ import annotations

import asyncio

from twinbus.websocket.framed_transport import FramedTransport
from twinbus.websocket.handshake import UpgradeRefused, UpgradeRequest

FRAMES_AT_ONCE = 256


class WebSocketClient(asyncio.Protocol):
    def __init__(self, inner: asyncio.Protocol, host: str) -> None:
        """`inner` is connected when the server has accepted; `host` is what it is asked by, with its port."""
        self._inner = inner
        self._asked: UpgradeRequest | None = UpgradeRequest(host)
        self._framed: FramedTransport | None = None
        self._is_delivering = False
        self.upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server has accepted; fails with an `OSError`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        assert self._asked is not None
        self._transport = transport
        transport.write(self._asked.request)

    def data_received(self, data: bytes) -> None:
        if self._framed is not None:
            self._framed.framing.receive(data)
            self._deliver()
        elif self._asked is not None:
            self._take_answer(self._asked, data)

    def _take_answer(self, asked: UpgradeRequest, data: bytes) -> None:
        try:
            framing = asked.receive(data)
        except UpgradeRefused as error:
            self._asked = None
            self._fail(ConnectionRefusedError(str(error)))
            self._transport.abort()
            return
        if framing is None:
            return
        self._asked = None
        self._framed = FramedTransport(self._transport, framing, self._deliver)
        self._framed.connect(self._inner)
        if not self.upgraded.done():
            self.upgraded.set_result(None)
        self._deliver()

    def _deliver(self) -> None:
        framed = self._framed
        if framed is None or self._is_delivering:  # it was resumed from within a delivery, which goes on anyway
            return
        self._is_delivering = True
        try:
            while framed.is_reading() and framed.deliver(FRAMES_AT_ONCE):
                pass
        finally:
            self._is_delivering = False

    def pause_writing(self) -> None:
        if self._framed is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._framed is not None:
            self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(
            error if isinstance(error, OSError) else ConnectionResetError("closed while a WebSocket was asked for")
        )
        if self._framed is not None:
            self._inner.connection_lost(error)

    def _fail(self, error: OSError) -> None:
        if not self.upgraded.done():
            self.upgraded.set_exception(error)
            self.upgraded.exception()  # it is not always awaited
