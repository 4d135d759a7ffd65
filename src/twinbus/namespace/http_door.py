"""The door for HTTP: aiohttp behind our own port, with the same patience for everybody.

A request without the right that it takes is refused by its head alone: its body is not read, and its guest stays
unknown. Any other waits here until it has arrived whole, within bounds of size and time.
"""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from twinbus.namespace.admin.refusals import REFUSE, error_answer
from twinbus.namespace.guest import TLS_ONLY, Guest, UnreadWatch, Voice
from twinbus.namespace.held_transport import HeldTransport
from twinbus.namespace.limits import ServerLimits

logger = logging.getLogger("twinbus.http")
logger.addFilter(lambda record: not is_about_the_peer(record))

SHUTDOWN_S = 2.0
RETRY_AFTER_S = 10
LINGER_S = 1.0
"""How long the rest of a request is awaited that was answered before it was whole, so that the answer gets through."""


def is_about_the_peer(record: logging.LogRecord) -> bool:
    """Whether a line for the log only says that a peer sent nonsense or went away: it was told so, we need not be."""
    error = record.exc_info[1] if record.exc_info else None
    return isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)


def _refuse_nobody(_: web.Request) -> web.Response | None:
    return None


class HttpDoor:
    """Lets guests in to an application. `open` it before the first, `close` it after the last."""

    def __init__(self, app: web.Application, limits: ServerLimits) -> None:
        self.limits = limits
        self._refuse = app.get(REFUSE, _refuse_nobody)
        app.middlewares.insert(0, self._receive)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=logger,
            keepalive_timeout=limits.http_idle_s,
            lingering_time=LINGER_S,
            shutdown_timeout=SHUTDOWN_S,
        )
        self._voices: dict[asyncio.BaseProtocol, HttpVoice] = {}
        self._may_speak = asyncio.Event()
        self._may_speak.set()

    async def open(self) -> None:
        await self._runner.setup()

    async def close(self) -> None:
        """Finish what is under way, for a bounded time, and hang up."""
        self._may_speak.set()
        await self._runner.cleanup()

    def voice(self, guest: Guest) -> Voice:
        """Who talks HTTP to this guest."""
        assert self._runner.server is not None
        return HttpVoice(self, guest, self._runner.server())

    def go_silent(self) -> None:
        """Let requests come in and answer none of them until `speak_again`."""
        self._may_speak.clear()

    def speak_again(self) -> None:
        self._may_speak.set()

    def enter(self, handler: asyncio.BaseProtocol, voice: HttpVoice) -> None:
        """Requests of this handler come by this voice."""
        self._voices[handler] = voice

    def leave(self, handler: asyncio.BaseProtocol) -> None:
        self._voices.pop(handler, None)

    @web.middleware
    async def _receive(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        await self._may_speak.wait()
        voice = self._voices.get(request.protocol)
        if voice is None or voice.guest.is_turned_away:
            later = {"Retry-After": str(RETRY_AFTER_S)}
            refusal = error_answer(503, 50300, "The namespace has all the connections it takes.", later)
            refusal.force_close()
            return refusal
        if voice.guest.must_use_tls:
            refusal = error_answer(403, 40300, f"{TLS_ONLY[0].upper()}{TLS_ONLY[1:]}.")
            refusal.force_close()
            return refusal
        try:
            refusal_or_none = self._refuse(request)
            if refusal_or_none is not None:
                if not voice.guest.is_known:
                    refusal_or_none.force_close()  # who asks again comes again, and stands in line again
                return refusal_or_none
            voice.guest.admit()
            refusal_or_none = await self._read(request)
            answer = refusal_or_none or await handler(request)
        finally:
            voice.forget_request()
        await self._may_speak.wait()
        return answer

    async def _read(self, request: web.Request) -> web.Response | None:
        """Read the body, which the application then finds already read; an answer if there is no getting it."""
        try:
            async with asyncio.timeout(self.limits.unauthenticated_s):
                await request.read()
            return None
        except TimeoutError:
            refusal = error_answer(408, 40800, "The request did not arrive whole in time.")
        except (ConnectionError, web.RequestPayloadError):
            refusal = error_answer(400, 40000, "The body of the request cannot be read.")
        except web.HTTPRequestEntityTooLarge:
            most = request.client_max_size
            refusal = error_answer(413, 41300, f"The body of a request has at most {most} bytes.")
        refusal.force_close()
        return refusal


class HttpVoice(Voice):
    """Talks HTTP to one guest: passes everything on to aiohttp's handler, and notices when the guest is gone."""

    def __init__(self, door: HttpDoor, guest: Guest, handler: web.RequestHandler) -> None:
        self._door = door
        self.guest = guest
        self._handler = handler
        self._request_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._line = HeldTransport(transport)
        self._unread = UnreadWatch(transport, self._door.limits.unread_s, lambda: -transport.get_write_buffer_size())
        self._door.enter(self._handler, self)
        self._handler.connection_made(self._line)

    def data_received(self, data: bytes) -> None:
        self._request_bytes += len(data)
        self.guest.account.charge(len(data))
        if self.guest.account.is_over:
            self.guest.abort()
            return
        self.guest.make_room()
        self._handler.data_received(data)

    def forget_request(self) -> None:
        """It was answered: its bytes are kept no longer."""
        self.guest.account.release(self._request_bytes)
        self._request_bytes = 0

    def hush(self) -> None:
        self._line.hold()

    def speak(self) -> None:
        self._line.release()

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
        self._door.leave(self._handler)
        self._handler.connection_lost(error)
        self.guest.leave()
