"""Administration over HTTP: requests become commands, replies become documents.

Every request is first authorised, then let in (or made to fail on purpose), counted, and only then looked at.
"""

from __future__ import annotations

import asyncio
import logging
import re

from aiohttp import web

from twinbus.errors import EntityNotFound, NamespaceError
from twinbus.namespace.admin.asking import AdminHouse, Ask, Handler, HangUp
from twinbus.namespace.admin.documents import Letterhead
from twinbus.namespace.admin.entity_clerk import EntityClerk
from twinbus.namespace.admin.refusals import REFUSE, error_answer, refusal_of
from twinbus.namespace.admin.routes import Resource, place_of
from twinbus.namespace.admin.subscription_clerk import SubscriptionClerk
from twinbus.namespace.meter import Metered
from twinbus.namespace.operations import Operation, Right

logger = logging.getLogger("twinbus.namespace")

BODY_BYTES_MAX = 256 * 1024
"""No description of an entity is nearly as long, and a longer one would take longer to read than others should wait."""
ANSWER_WAIT_S = 60.0
API_VERSION = "2021-05"

_VERSION = re.compile(r"[\w.-]{1,20}", re.ASCII)


def make_admin_app(house: AdminHouse) -> web.Application:
    """The administration of a namespace at every address. More specific routes can be added to it."""
    app = web.Application(client_max_size=BODY_BYTES_MAX)  # the door reads bodies and refuses larger ones
    desk = AdminDesk(house)
    app[REFUSE] = desk.refuse
    app.router.add_route("*", "/{path:.*}", desk.serve)
    return app


class AdminDesk:
    def __init__(self, house: AdminHouse) -> None:
        self._house = house
        self._handlers: dict[Resource, dict[str, Handler]] = {}
        for clerk in (EntityClerk(house), SubscriptionClerk(house)):
            self._handlers |= clerk.handlers()

    def refuse(self, request: web.Request) -> web.Response | None:
        """The answer to a request without the right that it takes; None: it has it."""
        place = place_of(request.rel_url.raw_path)
        try:
            self._house.authorize(request.headers, place.path, Right.MANAGE, self._house.clock())
        except NamespaceError as error:
            status, sub_code = refusal_of(error)
            return error_answer(status, sub_code, str(error))
        return None

    async def serve(self, request: web.Request) -> web.Response:
        """The answer to any request, within a bounded time; never raises for what a client sends."""
        try:
            async with asyncio.timeout(ANSWER_WAIT_S):
                return self.refuse(request) or await self._answer(request)
        except HangUp:
            return _hung_up(request)
        except NamespaceError as error:
            status, sub_code = refusal_of(error)
            return error_answer(status, sub_code, str(error))
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            text = f"{error.method[:20]} is not possible here, only {allowed}"
            return error_answer(405, 40500, text, {"Allow": allowed})
        except TimeoutError:
            return error_answer(
                504, 50400, f"there was no answer within {ANSWER_WAIT_S:g} s; look before you try again"
            )
        except Exception:
            logger.exception("an administrative request failed: %s %s", request.method, request.rel_url.raw_path)
            return error_answer(500, 50000, "the namespace failed to answer; its log says why")

    async def _answer(self, request: web.Request) -> web.Response:
        place, now_ms = place_of(request.rel_url.raw_path), self._house.clock()
        failure = await self._house.admit(Operation.ADMIN, place.entity, now_ms)
        if failure is not None:
            raise failure
        handlers = self._handlers[place.resource]
        if request.method not in handlers and handlers:
            raise web.HTTPMethodNotAllowed(request.method, handlers)
        body = await request.read()
        self._house.count(Metered.MANAGE, place.entity, len(body))
        if not handlers:
            raise EntityNotFound(f"The messaging entity '{place.path}' could not be found.")
        return await handlers[request.method](Ask(request, place, body, self._letterhead(request), now_ms))

    def _letterhead(self, request: web.Request) -> Letterhead:
        version = request.query.get("api-version", "")
        known = version if _VERSION.fullmatch(version) else API_VERSION
        return Letterhead(self._house.name, self._house.base_url(request), known)


def _hung_up(request: web.Request) -> web.Response:
    """Break the connection; the answer reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
