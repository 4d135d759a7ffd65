"""What the clerks of the administration have in common: a request, the house it is about, and how to ask it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from aiohttp import web

from twinbus.errors import NamespaceError
from twinbus.namespace.admin.documents import Letterhead
from twinbus.namespace.admin.routes import Place, Resource
from twinbus.namespace.admin.targets import MAIN_AUTHORIZATION, TARGET_AUTHORIZATIONS
from twinbus.namespace.admin.validation import Circumstances
from twinbus.namespace.commands import AdminCommand
from twinbus.namespace.entities.settings import QueueSettings
from twinbus.namespace.home import new_key
from twinbus.namespace.meter import Metered
from twinbus.namespace.operations import Operation, Right
from twinbus.namespace.replies import Refused, Reply

ENTRY = "application/atom+xml;type=entry;charset=utf-8"
FEED = "application/atom+xml;type=feed;charset=utf-8"

Answer = TypeVar("Answer")


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

    @property
    def is_update(self) -> bool:
        """Whether it changes what is there, instead of making it."""
        return "If-Match" in self.request.headers


Handler = Callable[[Ask], Awaitable[web.Response]]


class Clerk(ABC):
    """Handles the requests for some kinds of places."""

    def __init__(self, house: AdminHouse) -> None:
        self._house = house

    @abstractmethod
    def handlers(self) -> dict[Resource, dict[str, Handler]]:
        """By place and verb."""

    async def _ask(self, command: AdminCommand, kind: type[Answer]) -> Answer:
        """The answer to a command, which is of this kind; raises what it is refused with."""
        reply: Any = await self._house.ask(command)
        if isinstance(reply, Refused):
            raise reply.error
        assert isinstance(reply, kind)
        return reply

    def _circumstances(self, ask: Ask) -> Circumstances:
        return Circumstances(
            now_ms=ask.now_ms,
            message_bytes_max=self._house.message_bytes_max,
            new_key=new_key,
            host=ask.letterhead.host,
        )

    def _check_targets(self, ask: Ask, settings: QueueSettings) -> None:
        """Raise `Unauthorized` unless the request gives the right to manage where messages are forwarded to.

        A token for the target has a header of its own; without it the request's token has to be good for both.
        """
        for setting, header in TARGET_AUTHORIZATIONS.items():
            target, headers = getattr(settings, setting), ask.request.headers
            if target is not None:
                token = headers.get(header) or headers.get(MAIN_AUTHORIZATION) or ""
                self._house.authorize({MAIN_AUTHORIZATION: token}, target, Right.MANAGE, ask.now_ms)


def document(body: bytes, content_type: str = ENTRY, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": content_type})
