"""A house for the administration: a real machine behind it, no sockets of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count

from aiohttp import web

from twinbus.errors import NamespaceError
from twinbus.namespace.commands import AdminCommand, Command
from twinbus.namespace.machine import NamespaceMachine
from twinbus.namespace.meter import Metered
from twinbus.namespace.operations import Operation, Right
from twinbus.namespace.replies import Reply
from twinbus.namespace.rights.authority import Authority
from twinbus.namespace.rights.rules import AccessRule, RuleBook
from twinbus.namespace.seam import CommitSeam
from twinbus.namespace.store.api import Store
from twinbus.namespace.store.memory import MemoryStore

KEY_NAME, KEY = "RootManageSharedAccessKey", "a-key-for-tests"
START_MS = 1_767_225_600_000
"""2026-01-01"""


class AdminBooth:
    """Implements `AdminHouse` over anything that carries out commands."""

    def __init__(self, do: Callable[[Command, int], None], clock: Callable[[], int], authority: Authority) -> None:
        self._do = do
        self.clock = clock
        self._authority = authority
        self.name = "contoso"
        self.created_at_ms = START_MS
        self.message_bytes_max = 256 * 1024
        self.scheme = "https"
        self.failure: NamespaceError | None = None
        """What every request fails with."""
        self.counted: list[tuple[Metered, str, int]] = []

    def base_url(self, request: web.BaseRequest) -> str:
        return f"{self.scheme}://{request.host}"

    async def ask(self, command: AdminCommand) -> Reply:
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def take(reply: Reply) -> None:
            if not answered.done():  # whoever asked may have gone
                answered.set_result(reply)

        self._do(command._replace(origin=take), self.clock())
        return await answered

    def authorize(self, headers: Mapping[str, str], path: str, right: Right, now_ms: int) -> None:
        self._authority.authorize_http(headers.get("Authorization"), path, right, now_ms)

    async def admit(self, operation: Operation, path: str, now_ms: int) -> NamespaceError | None:
        return self.failure

    def count(self, kind: Metered, path: str, size: int) -> None:
        self.counted.append((kind, path, size))


class MemoryNamespace:
    """A machine over a store in memory, with a clock that the test turns."""

    def __init__(self, store: Store | None = None) -> None:
        self.now_ms = START_MS
        self.store = store or MemoryStore()
        self.news: list[Reply] = []
        """Replies without an origin: deliveries, lost receivers."""
        self._tokens = count(1)
        self.seam = CommitSeam(self.store, self._build, self._pass_on, self._fail)
        self.store.start(lambda report: self.seam.report(report, self.now_ms))

    def _build(self, stored: object) -> NamespaceMachine:
        return NamespaceMachine(stored, new_token=lambda: next(self._tokens).to_bytes(16, "big"))  # type: ignore[arg-type]

    def _pass_on(self, reply: Reply) -> None:
        origin = getattr(reply, "origin", None)
        if origin is None:
            self.news.append(reply)
        else:
            origin(reply)

    def _fail(self, reason: str) -> None:
        raise AssertionError(reason)

    def ask(self, command: Command) -> Reply:
        """Carry out a command; returns its reply."""
        replies: list[Reply] = []
        self.seam.do(command._replace(origin=replies.append), self.now_ms)  # type: ignore[call-arg, unused-ignore]
        (reply,) = replies
        return reply

    def booth(self) -> AdminBooth:
        rules = (AccessRule(KEY_NAME, frozenset(Right), KEY), AccessRule("listener", frozenset({Right.LISTEN}), KEY))
        return AdminBooth(self.seam.do, lambda: self.now_ms, Authority(RuleBook(rules)))
