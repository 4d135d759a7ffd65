"""HTTP on the shared port: aiohttp behind our own listener, with its limits.

A request without the right that it needs is refused by its head alone: its body is not read, and its connection stays
unauthenticated. Any other is read whole first, within limits of size and time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from twinbus.broker.limits import ServerLimits
from twinbus.broker.net.accepted_connection import TLS_ONLY, AcceptedConnection, ProtocolHandler, UnreadWatch
from twinbus.broker.net.held_transport import HeldTransport

logger = logging.getLogger("twinbus.http")
logger.addFilter(lambda record: not is_fault_of_peer(record))

SHUTDOWN_S = 2.0
RETRY_AFTER_S = 10
LINGER_S = 1.0
"""How long the rest of a request is awaited that was answered before it was whole, so that the answer gets through."""


def is_fault_of_peer(record: logging.LogRecord) -> bool:
    """Whether a log record only says that a peer sent nonsense or went away: that is not our problem."""
    error = record.exc_info[1] if record.exc_info else None
    return isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)


class ErrorResponse(Protocol):
    """Makes the response to a request that fails, in the form that clients of the application understand."""

    def __call__(
        self, status: int, sub_code: int, text: str, headers: dict[str, str] | None = None, /
    ) -> web.Response: ...


class HttpServer:
    """Serves an application. `open` it before the first connection, `close` it after the last."""

    def __init__(
        self,
        app: web.Application,
        limits: ServerLimits,
        refusal_of: Callable[[web.Request], web.Response | None],
        error_response: ErrorResponse,
    ) -> None:
        """`refusal_of` looks at the head of a request: the response to one without the right it needs."""
        self.limits = limits
        self._refusal_of = refusal_of
        self._error_response = error_response
        app.middlewares.insert(0, self._receive)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=logger,
            keepalive_timeout=limits.http_idle_s,
            lingering_time=LINGER_S,
            shutdown_timeout=SHUTDOWN_S,
        )
        self._connections: dict[asyncio.BaseProtocol, HttpConnection] = {}
        self._may_respond = asyncio.Event()
        self._may_respond.set()

    async def open(self) -> None:
        await self._runner.setup()

    async def close(self) -> None:
        """Finish what is under way, for a bounded time, and close."""
        self._may_respond.set()
        await self._runner.cleanup()

    def handler_of(self, accepted: AcceptedConnection) -> ProtocolHandler:
        assert self._runner.server is not None
        return HttpConnection(self, accepted, self._runner.server())

    def go_silent(self) -> None:
        """Answer no request until `speak_again`."""
        self._may_respond.clear()

    def speak_again(self) -> None:
        self._may_respond.set()

    def enter(self, handler: asyncio.BaseProtocol, connection: HttpConnection) -> None:
        self._connections[handler] = connection

    def leave(self, handler: asyncio.BaseProtocol) -> None:
        self._connections.pop(handler, None)

    @web.middleware
    async def _receive(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        await self._may_respond.wait()
        connection = self._connections.get(request.protocol)
        if connection is None or connection.accepted.is_excess:
            later = {"Retry-After": str(RETRY_AFTER_S)}
            return self._refuse(503, 50300, "The namespace has all the connections it takes.", later)
        if connection.accepted.must_use_tls:
            return self._refuse(403, 40300, f"{TLS_ONLY[0].upper()}{TLS_ONLY[1:]}.")
        try:
            refusal = self._refusal_of(request)
            if refusal is not None:
                if not connection.accepted.is_authenticated:
                    refusal.force_close()  # the next attempt is another connection, and waits for its turn
                return refusal
            connection.accepted.mark_authenticated()
            response = await self._read(request) or await handler(request)
        finally:
            connection.forget_request()
        await self._may_respond.wait()
        return response

    async def _read(self, request: web.Request) -> web.Response | None:
        """Read the body, which the application then finds already read; a response if that fails."""
        try:
            async with asyncio.timeout(self.limits.unauthenticated_s):
                await request.read()
            return None
        except TimeoutError:
            return self._refuse(408, 40800, "The request did not arrive whole in time.")
        except (ConnectionError, web.RequestPayloadError):
            return self._refuse(400, 40000, "The body of the request cannot be read.")
        except web.HTTPRequestEntityTooLarge:
            return self._refuse(413, 41300, f"The body of a request has at most {request.client_max_size} bytes.")

    def _refuse(self, status: int, sub_code: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
        """An error response after which the connection is closed."""
        refusal = self._error_response(status, sub_code, text, headers)
        refusal.force_close()
        return refusal


class HttpConnection(ProtocolHandler):
    """One HTTP connection: everything is passed on to aiohttp's handler."""

    def __init__(self, server: HttpServer, accepted: AcceptedConnection, handler: web.RequestHandler) -> None:
        self._server = server
        self.accepted = accepted
        self._handler = handler
        self._request_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._held_transport = HeldTransport(transport)
        self._unread = UnreadWatch(transport, self._server.limits.unread_s, lambda: -transport.get_write_buffer_size())
        self._server.enter(self._handler, self)
        self._handler.connection_made(self._held_transport)

    def data_received(self, data: bytes) -> None:
        self._request_bytes += len(data)
        self.accepted.account.charge(len(data))
        if self.accepted.account.is_over:
            self.accepted.abort()
            return
        self.accepted.free_memory()
        self._handler.data_received(data)

    def forget_request(self) -> None:
        """It was answered: its bytes are kept no longer."""
        self.accepted.account.release(self._request_bytes)
        self._request_bytes = 0

    def hold(self) -> None:
        self._held_transport.hold()

    def release(self) -> None:
        self._held_transport.release()

    def eof_received(self) -> None:
        self._handler.eof_received()

    def pause_writing(self) -> None:
        self._unread.begin()
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._unread.end()
        self._handler.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._unread.end()
        self._server.leave(self._handler)
        self._handler.connection_lost(error)
        self.accepted.closed()
