"""Administration over HTTP: requests become commands, replies become documents.

Every request is first authorised, then let in (or made to fail on purpose), counted, and only then looked at. A queue
is made by one command once its whole description was found good, so nothing is ever half-made.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from aiohttp import web

from twinbus.errors import ArgumentError, EntityNotFound, NamespaceError, OptionsError
from twinbus.namespace.admin import documents
from twinbus.namespace.admin.documents import Letterhead, NamespaceInfo
from twinbus.namespace.admin.refusals import error_answer, refusal_of
from twinbus.namespace.admin.routes import Place, Resource, page_of, place_of
from twinbus.namespace.admin.validation import Circumstances, read_queue_settings
from twinbus.namespace.commands import CreateQueue, DeleteQueue, GetQueue, ListQueues, UpdateQueue
from twinbus.namespace.entities.settings import check_queue_path
from twinbus.namespace.home import new_key
from twinbus.namespace.meter import Metered
from twinbus.namespace.operations import Operation, Right
from twinbus.namespace.replies import Done, QueueFound, QueuesFound, Refused, Reply

logger = logging.getLogger("twinbus.namespace")

BODY_BYTES_MAX = 1024 * 1024
ANSWER_WAIT_S = 60.0
API_VERSION = "2021-05"
ENTRY = "application/atom+xml;type=entry;charset=utf-8"
FEED = "application/atom+xml;type=feed;charset=utf-8"

_VERSION = re.compile(r"[\w.-]{1,20}", re.ASCII)

AdminCommand = CreateQueue | UpdateQueue | DeleteQueue | GetQueue | ListQueues
Answer = TypeVar("Answer", Done, QueueFound, QueuesFound)


class HangUp(Exception):
    """The connection is to break instead of an answer."""


class AdminHouse(Protocol):
    """What the administration needs of the namespace it belongs to."""

    @property
    def name(self) -> str: ...

    @property
    def created_at_ms(self) -> int: ...

    @property
    def message_bytes_max(self) -> int: ...

    def base_url(self, request: web.BaseRequest) -> str:
        """`https://host:port` as the client dialled it: addresses in documents begin with it."""

    def clock(self) -> int: ...

    async def ask(self, command: AdminCommand) -> Reply:
        """Carry out a command (its origin is the house's to fill in) and wait until its reply is true for good."""

    def authorize(self, headers: Mapping[str, str], path: str, right: Right, now_ms: int) -> None:
        """Raise `Unauthorized` unless the headers give the right to a path (decoded, without its query)."""

    async def admit(self, operation: Operation, path: str, now_ms: int) -> NamespaceError | None:
        """What to fail with on purpose, after waiting on purpose; None: go on. Raises `HangUp`."""

    def count(self, kind: Metered, path: str, size: int) -> None: ...


class Ask(NamedTuple):
    """A request that may be answered."""

    request: web.Request
    place: Place
    body: bytes
    letterhead: Letterhead
    now_ms: int


def make_admin_app(house: AdminHouse) -> web.Application:
    """The administration of a namespace at every address. More specific routes can be added to it."""
    app = web.Application(client_max_size=BODY_BYTES_MAX)  # the door reads bodies and refuses larger ones
    app.router.add_route("*", "/{path:.*}", AdminDesk(house).serve)
    return app


class AdminDesk:
    def __init__(self, house: AdminHouse) -> None:
        self._house = house

    async def serve(self, request: web.Request) -> web.Response:
        """The answer to any request, within a bounded time; never raises for what a client sends."""
        try:
            async with asyncio.timeout(ANSWER_WAIT_S):
                return await self._answer(request)
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
        self._house.authorize(request.headers, place.path, Right.MANAGE, now_ms)
        failure = await self._house.admit(Operation.ADMIN, place.entity, now_ms)
        if failure is not None:
            raise failure
        handlers = self._HANDLERS[place.resource]
        if request.method not in handlers and handlers:
            raise web.HTTPMethodNotAllowed(request.method, handlers)
        body = await request.read()
        self._house.count(Metered.MANAGE, place.entity, len(body))
        if not handlers:
            raise EntityNotFound(f"The messaging entity '{place.path}' could not be found.")
        return await handlers[request.method](self, Ask(request, place, body, self._letterhead(request), now_ms))

    def _letterhead(self, request: web.Request) -> Letterhead:
        version = request.query.get("api-version", "")
        known = version if _VERSION.fullmatch(version) else API_VERSION
        return Letterhead(self._house.name, self._house.base_url(request), known)

    # --- the namespace ---

    async def _get_namespace(self, ask: Ask) -> web.Response:
        info = NamespaceInfo(self._house.name, self._house.created_at_ms)
        return _document(documents.namespace_entry(info, ask.letterhead), ENTRY)

    async def _list_queues(self, ask: Ask) -> web.Response:
        page = page_of(ask.request.query)
        found = await self._ask(ListQueues(page.skip, page.top), QueuesFound)
        next_query = page.next_query if found.has_more else None
        return _document(documents.queue_feed(found.queues, next_query, ask.letterhead), FEED)

    async def _list_topics(self, ask: Ask) -> web.Response:
        page_of(ask.request.query)
        return _document(documents.topic_feed(ask.letterhead), FEED)

    # --- queues ---

    async def _get_queue(self, ask: Ask, status: int = 200) -> web.Response:
        found = await self._ask_about(ask.place, GetQueue(ask.place.path), QueueFound)
        return _document(documents.queue_entry(found.queue, ask.letterhead), ENTRY, status)

    async def _put_queue(self, ask: Ask) -> web.Response:
        _check_name(ask.place)
        circumstances = Circumstances(
            now_ms=ask.now_ms, message_bytes_max=self._house.message_bytes_max, new_key=new_key
        )
        settings = read_queue_settings(ask.body, circumstances)
        if "If-Match" in ask.request.headers:
            await self._ask_about(ask.place, UpdateQueue(ask.place.path, settings), Done)
            return await self._get_queue(ask)
        if ask.place.is_below_a_topic:
            raise _not_yet(ask.place)
        await self._ask(CreateQueue(ask.place.path, settings), Done)
        return await self._get_queue(ask, status=201)

    async def _delete_queue(self, ask: Ask) -> web.Response:
        await self._ask_about(ask.place, DeleteQueue(ask.place.path), Done)
        return web.Response(status=200)

    async def _ask_about(self, place: Place, command: AdminCommand, kind: type[Answer]) -> Answer:
        """As `_ask`; a name that only a subscription could have gets a better answer than "not found"."""
        if not place.path:
            _check_name(place)
        try:
            return await self._ask(command, kind)
        except EntityNotFound:
            if place.is_below_a_topic:
                raise _not_yet(place) from None
            raise

    async def _ask(self, command: AdminCommand, kind: type[Answer]) -> Answer:
        reply = await self._house.ask(command)
        if isinstance(reply, Refused):
            raise reply.error
        assert isinstance(reply, kind)
        return reply

    _HANDLERS: ClassVar[dict[Resource, dict[str, Callable[[AdminDesk, Ask], Awaitable[web.Response]]]]] = {
        Resource.NAMESPACE: {"GET": _get_namespace},
        Resource.QUEUES: {"GET": _list_queues},
        Resource.TOPICS: {"GET": _list_topics},
        Resource.ENTITY: {"GET": _get_queue, "PUT": _put_queue, "DELETE": _delete_queue},
        Resource.NOTHING: {},
    }


def _check_name(place: Place) -> None:
    try:
        check_queue_path(place.path)
    except OptionsError as error:
        raise ArgumentError(str(error)) from None


def _not_yet(place: Place) -> ArgumentError:
    return ArgumentError(f"'{place.path}' is the address of a subscription or rule: those are not supported yet")


def _hung_up(request: web.Request) -> web.Response:
    """Break the connection; the answer reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _document(body: bytes, content_type: str, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": content_type})
