"""An administration request, and what its handlers need of the namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeVar

from aiohttp import web

from twinbus.broker.admin.documents import DocumentContext
from twinbus.broker.admin.routes import ResourcePath
from twinbus.broker.core.commands import Command
from twinbus.broker.operations import Operation, Right
from twinbus.broker.ops.meter import Metered
from twinbus.errors import NamespaceError

R = TypeVar("R")


class AbortConnection(Exception):
    """Abort the connection instead of answering."""


class AdminServer(Protocol):
    """The namespace, as the administration needs it."""

    @property
    def name(self) -> str: ...

    @property
    def created_at_ms(self) -> int: ...

    @property
    def message_bytes_max(self) -> int: ...

    def base_url(self, request: web.BaseRequest) -> str:
        """`https://host:port` as the client connected: addresses in documents begin with it."""

    def clock(self) -> int: ...

    async def ask(self, command: Command[R]) -> R:
        """Carry out a command and wait until its reply is durable; raises the error if it is refused."""

    def authorize(self, headers: Mapping[str, str], path: str, right: Right, now_ms: int) -> None:
        """Raise `Unauthorized` unless the headers grant the right to a path (decoded, without its query)."""

    async def admit(self, operation: Operation, path: str, now_ms: int) -> NamespaceError | None:
        """Apply faults: wait as they say, and return the error to answer with; None: proceed. Raises
        `AbortConnection`."""

    def count(self, kind: Metered, path: str, size: int) -> None: ...


class AdminRequest(NamedTuple):
    """An authorized request."""

    http: web.Request
    path: ResourcePath
    body: bytes
    context: DocumentContext
    now_ms: int

    @property
    def is_update(self) -> bool:
        """Whether it updates an entity instead of creating it."""
        return "If-Match" in self.http.headers
