"""An administration server without sockets: a real machine and commit gate behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import TypeVar

from aiohttp import web

from twinbus.broker.auth.access_rules import AccessRule, RuleBook
from twinbus.broker.auth.authority import Authority
from twinbus.broker.core.commands import Command
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.machine import NamespaceMachine
from twinbus.broker.core.replies import Notice
from twinbus.broker.operations import Operation, Refused, Right
from twinbus.broker.ops.meter import Metered
from twinbus.broker.store.api import Store
from twinbus.broker.store.memory import MemoryStore
from twinbus.errors import NamespaceError

KEY_NAME, KEY = "RootManageSharedAccessKey", "a-key-for-tests"
START_MS = 1_767_225_600_000
"""2026-01-01"""

R = TypeVar("R")


class FakeAdminServer:
    """Implements `AdminServer` over anything that carries out commands."""

    def __init__(self, gate: CommitGate, clock: Callable[[], int], authority: Authority) -> None:
        self._gate = gate
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

    async def ask(self, command: Command[R]) -> R:
        answered: asyncio.Future[R | Refused] = asyncio.get_running_loop().create_future()

        def take(reply: R | Refused) -> None:
            if not answered.done():  # whoever asked may have gone
                answered.set_result(reply)

        self._gate.ask(command, self.clock(), take)
        reply = await answered
        if isinstance(reply, Refused):
            raise reply.error
        return reply

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
        self.notices: list[Notice] = []
        self._tokens = count(1)
        self.gate = CommitGate(self.store, self._build, self.notices.append, self._fail)
        self.store.start(lambda report: self.gate.report(report, self.now_ms))

    def _build(self, stored: object) -> NamespaceMachine:
        return NamespaceMachine(stored, new_token=lambda: next(self._tokens).to_bytes(16, "big"))  # type: ignore[arg-type]

    def _fail(self, reason: str) -> None:
        raise AssertionError(reason)

    def ask(self, command: Command[R]) -> R | Refused:
        """Carry out a command; returns its reply."""
        replies: list[R | Refused] = []
        self.gate.ask(command, self.now_ms, replies.append)
        (reply,) = replies
        return reply

    def admin_server(self) -> FakeAdminServer:
        rules = (AccessRule(KEY_NAME, frozenset(Right), KEY), AccessRule("listener", frozenset({Right.LISTEN}), KEY))
        return FakeAdminServer(self.gate, lambda: self.now_ms, Authority(RuleBook(rules)))
