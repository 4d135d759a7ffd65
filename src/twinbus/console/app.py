"""Requests and answers of the console.

GET  /                     the page; without a session one that asks for the token
GET  /console.css ...      what the page is made of
POST /session              the token (in `Authorization`) for a cookie
GET  /api/session          the proof that requests need which change anything
GET  /api/stream           the state, and what changes of it: server-sent events
GET  /api/messages, /api/message, /api/count    the message browser
POST /api/do               an action, with --allow-changes
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Mapping
from importlib import resources
from time import monotonic, time
from typing import Any

from aiohttp import web

from twinbus import __version__
from twinbus.console.access import SESSION_S, AccessRefusal, ConsoleAccess, ConsoleSession
from twinbus.console.actions import ConsoleActions
from twinbus.console.delta import Sections, delta
from twinbus.console.state import ConsoleState
from twinbus.errors import OptionsError, TwinbusError
from twinbus.plain_text import on_one_line, without_keys

logger = logging.getLogger("twinbus.console")

REQUEST_BYTES_MAX = 64 * 1024
STREAMS_MAX = 50
STALLED_S = 20.0
"""A page that does not take what is new in this time is hung up on. If it lives, it comes again."""
UNREAD_BYTES_MAX = 32 * 1024 * 1024
"""Of all pages together: one that is told more meanwhile is hung up on, unless nobody else is told anything."""
BEAT_S = 3.0
"""A page that has heard nothing for a few of these says that it is disconnected."""
NEWS_PAUSE_S = 0.5
"""Between two messages to one page: what happens meanwhile goes together."""
PUBLIC = {
    "/console.css": "text/css",
    "/enter.js": "text/javascript",
    "/token.js": "text/javascript",
    "/icon.svg": "image/svg+xml",
}
OWN = {
    **{f"/{name}.js": "text/javascript" for name in ("page", "tables", "plots", "browser", "format", "dialogs")},
}
STATUS_OF = {
    AccessRefusal.FOREIGN_HOST: 421,
    AccessRefusal.FOREIGN_ORIGIN: 403,
    AccessRefusal.NO_SESSION: 401,
    AccessRefusal.NO_PROOF: 403,
    AccessRefusal.WRONG_TOKEN: 401,
    AccessRefusal.TOO_MANY_TOKENS: 429,
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ConsoleApp:
    """The application, and the decision about the head of each request (`refusal_of`)."""

    def __init__(
        self,
        access: ConsoleAccess,
        state: ConsoleState,
        actions: ConsoleActions,
        *,
        about: Mapping[str, Any],
        allows_changes: bool,
        is_tls: bool,
        cookie_name: Callable[[], str],
    ) -> None:
        self._access, self._state, self._actions = access, state, actions
        self._about = {**about, "version": __version__, "allows_changes": allows_changes}
        self._allows_changes, self._is_tls, self._cookie_name = allows_changes, is_tls, cookie_name
        self._streams: set[asyncio.Task[Any]] = set()
        self._unread_bytes = 0
        self._files = {name: _file(name) for name in ("/console.html", "/enter.html", *PUBLIC, *OWN)}
        self.web = web.Application(client_max_size=REQUEST_BYTES_MAX)
        self.web.on_response_prepare.append(_add_headers)
        self.web.router.add_get("/", self._page)
        for path, kind in OWN.items():
            self.web.router.add_get(path, self._file_handler(path, kind))
        self.web.router.add_get("/api/session", self._session)
        self.web.router.add_get("/api/stream", self._stream)
        self.web.router.add_get("/api/messages", self._answering(actions.find))
        self.web.router.add_get("/api/message", self._answering(actions.show))
        self.web.router.add_get("/api/count", self._answering(actions.count))
        self.web.router.add_post("/api/do", self._do)

    def close_streams(self) -> None:
        """End those that would go on for ever."""
        for task in self._streams:
            task.cancel()

    # --- who is let in ---

    def refusal_of(self, request: web.Request) -> web.Response | None:
        """The answer to a request that may not, or need not, be carried out; None: it may."""
        method, path = request.method, request.path
        refusal = self._access.check_source(method, path, request.headers)
        if refusal is not None:
            return refused(refusal)
        if method == "GET" and path in PUBLIC:
            return web.Response(body=self._files[path], content_type=PUBLIC[path])
        if method == "POST" and path == "/session":
            return self._let_in(request)
        session = self._session_of(request)
        if session is None:
            is_page = method == "GET" and path == "/"
            entrance = web.Response(body=self._files["/enter.html"], content_type="text/html", charset="utf-8")
            return entrance if is_page else refused(AccessRefusal.NO_SESSION)
        refusal = self._access.check_proof(session, method, request.headers)
        return None if refusal is None else refused(refusal)

    def _session_of(self, request: web.Request) -> ConsoleSession | None:
        return self._access.session_of(request.cookies.get(self._cookie_name()), time())

    def _let_in(self, request: web.Request) -> web.Response:
        given, address = request.headers.get("Authorization"), request.remote or ""
        refusal = self._access.check_token(given, address, monotonic())
        if refusal is not None:
            return refused(refusal)
        answer = web.Response(status=204)
        cookie = self._access.new_cookie(secrets.token_hex(16), time())
        answer.set_cookie(
            self._cookie_name(),
            cookie,
            max_age=SESSION_S,
            path="/",
            secure=self._is_tls,
            httponly=True,
            samesite="Strict",
        )
        return answer

    # --- the page ---

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(body=self._files["/console.html"], content_type="text/html", charset="utf-8")

    def _file_handler(self, path: str, kind: str) -> Callable[[web.Request], Any]:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(body=self._files[path], content_type=kind, charset="utf-8")

        return answer

    async def _session(self, request: web.Request) -> web.Response:
        session = self._session_of(request)
        assert session is not None, "checked with the head"
        return web.json_response({"proof": session.proof, **self._about})

    # --- the stream ---

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        task, session = asyncio.current_task(), self._session_of(request)
        assert session is not None, "checked with the head"
        if len(self._streams) >= STREAMS_MAX or task is None:
            return failure("too many pages are open", 503)
        self._streams.add(task)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        try:
            await answer.prepare(request)
            await self._tell(answer, session.until)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()  # what it has not read is not kept
        except ConnectionError:
            pass  # the page was closed
        finally:
            self._streams.discard(task)
        return answer

    async def _tell(self, answer: web.StreamResponse, until: float) -> None:
        """Write what is new, as fast as the page takes it, while its session lasts."""
        told: Sections = {}
        await self._write(answer, _event("about", {**self._about, "now": time()}))
        while time() < until:
            version, now = self._state.version, self._state.sections
            changes = delta(told, now)
            told = now
            event = _event(
                "changes" if changes else "beat", {"now": time(), **({"changes": changes} if changes else {})}
            )
            await self._write(answer, event)
            await asyncio.sleep(NEWS_PAUSE_S)
            await self._state.wait_for_change(version, BEAT_S)

    async def _write(self, answer: web.StreamResponse, event: bytes) -> None:
        """Raises `TimeoutError` if the page does not read, or if too many do not."""
        if self._unread_bytes and self._unread_bytes + len(event) > UNREAD_BYTES_MAX:
            raise TimeoutError
        self._unread_bytes += len(event)
        try:
            async with asyncio.timeout(STALLED_S):
                await answer.write(event)
        finally:
            self._unread_bytes -= len(event)

    # --- questions and actions ---

    def _answering(self, ask: Callable[[Mapping[str, Any]], Any]) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            arguments: dict[str, Any] = dict(request.query)
            if "numbers" in arguments:
                arguments["numbers"] = [word for word in arguments["numbers"].split(",") if word]
            return await _answer(lambda: ask(arguments))

        return answer

    async def _do(self, request: web.Request) -> web.Response:
        if not self._allows_changes:
            return failure("this console only shows: start it with --allow-changes", 403)
        try:
            said = await request.json()
        except ValueError:
            return failure("an action is a JSON object", 400)
        name, arguments = (said.get("action"), said.get("arguments", {})) if isinstance(said, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return failure('an action is an object with "action" and "arguments"', 400)
        answer = await _answer(lambda: self._actions.do(name, arguments))
        text = json.loads(answer.body or b"{}").get("text" if answer.status == 200 else "error", "")  # type: ignore[arg-type]
        self._state.add_event("done" if answer.status == 200 else "note", f"{name} from a console: {text}")
        return answer


async def _answer(act: Callable[[], Any]) -> web.Response:
    try:
        return web.json_response(await act())
    except OptionsError as error:
        return failure(str(error), 400)
    except (TwinbusError, OSError, TimeoutError) as error:
        return failure(str(error) or type(error).__name__, 502)
    except Exception as error:  # a mistake of ours must not end the connection without a word
        logger.exception("a request of a console page failed")
        return failure(f"unexpected {type(error).__name__}", 500)


def refused(refusal: AccessRefusal) -> web.Response:
    return failure(refusal.value, STATUS_OF[refusal])


def failure(text: str, status: int) -> web.Response:
    return web.json_response({"error": on_one_line(without_keys(text))}, status=status)


def error_response(status: int, _sub_code: int, text: str, headers: dict[str, str] | None = None, /) -> web.Response:
    answer = failure(text, status)
    answer.headers.update(headers or {})
    return answer


async def _add_headers(_: web.Request, answer: web.StreamResponse) -> None:
    answer.headers.update(HEADERS)


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def _file(path: str) -> bytes:
    return (resources.files("twinbus.console") / "static" / path.lstrip("/")).read_bytes()
