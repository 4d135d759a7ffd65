"""Administration over HTTP: requests become commands, replies become documents.

Every request is authorized, passes the faults, is counted, and is only then handled.
"""

from __future__ import annotations

import asyncio
import logging
import re

from aiohttp import web

from twinbus.broker.admin.admin_server import AbortConnection, AdminServer
from twinbus.broker.admin.documents import DocumentContext
from twinbus.broker.admin.error_responses import REFUSE, error_response, http_error_of
from twinbus.broker.admin.handlers import AdminHandlers, AdminRequest
from twinbus.broker.admin.routes import parse_resource_path
from twinbus.errors import EntityNotFound, NamespaceError

logger = logging.getLogger("twinbus.namespace")

BODY_BYTES_MAX = 256 * 1024
"""Descriptions are much shorter, and reading a longer one would keep others waiting."""
ANSWER_WAIT_S = 60.0
API_VERSION = "2021-05"

_VERSION = re.compile(r"[\w.-]{1,20}", re.ASCII)


def make_admin_app(server: AdminServer) -> web.Application:
    """The administration of a namespace at every address. More specific routes can be added to it."""
    app = web.Application(client_max_size=BODY_BYTES_MAX)  # the HTTP server reads bodies and refuses larger ones
    admin = AdminApp(server)
    app[REFUSE] = server.authorization.refuse
    app.router.add_route("*", "/{path:.*}", admin.serve)
    return app


class AdminApp:
    def __init__(self, server: AdminServer) -> None:
        self._server = server
        self._handlers = AdminHandlers(server).by_resource

    async def serve(self, request: web.Request) -> web.Response:
        """Answer any request within a bounded time; never raises for what a client sends."""
        try:
            async with asyncio.timeout(ANSWER_WAIT_S):
                return self._server.authorization.refuse(request) or await self._answer(request)
        except AbortConnection:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()  # is not sent any more
        except NamespaceError as error:
            return error_response(*http_error_of(error), str(error))
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            text = f"{error.method[:20]} is not possible here, only {allowed}"
            return error_response(405, 40500, text, {"Allow": allowed})
        except TimeoutError:
            text = f"there was no answer within {ANSWER_WAIT_S:g} s; check the entity before you try again"
            return error_response(504, 50400, text)
        except Exception:
            logger.exception("an administrative request failed: %s %s", request.method, request.rel_url.raw_path)
            return error_response(500, 50000, "the namespace failed to answer; its log says why")

    async def _answer(self, request: web.Request) -> web.Response:
        path, now_ms = parse_resource_path(request.rel_url.raw_path), self._server.clock()
        await self._server.admit(path.entity, now_ms)
        handlers = self._handlers[path.resource]
        if request.method not in handlers and handlers:
            raise web.HTTPMethodNotAllowed(request.method, handlers)
        body = await request.read()
        self._server.count(path.entity, len(body))
        if not handlers:
            raise EntityNotFound(f"The messaging entity '{path.path}' could not be found.")
        version = request.query.get("api-version", "")
        known = version if _VERSION.fullmatch(version) else API_VERSION
        limit_kb = self._server.message_bytes_max // 1024
        context = DocumentContext(self._server.name, self._server.base_url(request), known, limit_kb)
        return await handlers[request.method](AdminRequest(request, path, body, context, now_ms))
