"""An administration server without sockets: a real machine and commit gate behind it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeVar

from aiohttp import web

from twinbus.broker.admin.admin_server import AdminServer
from twinbus.broker.auth.access_rules import AccessRule, RuleBook
from twinbus.broker.auth.authority import Authority
from twinbus.broker.core.commands import Command
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.namespace_backend import NamespaceBackend
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Notice
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.throttle import Throttle, ThrottleLimits
from twinbus.broker.limits import TrafficLimits
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.message import MessageReader
from twinbus.broker.operations import Refused, Right
from twinbus.broker.ops.meter import Meter
from twinbus.broker.store.api import Store
from twinbus.broker.store.memory import MemoryStore
from twinbus.errors import NamespaceError

KEY_NAME, KEY = "RootManageSharedAccessKey", "a-key-for-tests"
START_MS = 1_767_225_600_000
"""2026-01-01"""

R = TypeVar("R")


class FakeAdminServer(AdminServer):
    """The administration of a namespace without faults of its own, reached over https."""

    def __init__(self, gate: CommitGate, clock: Callable[[], int], authority: Authority) -> None:
        self.meter = Meter()
        messages = MessageReader(256 * 1024, lambda: "new")
        context = ConnectionContext(
            backend=NamespaceBackend(gate, messages, self.meter, lambda notice: None),
            messages=messages,
            meter=self.meter,
            authority=authority,
            limits=TrafficLimits(),
            faults=FaultTable(lambda: 0.5),
            throttle=Throttle(ThrottleLimits()),
            connections=lambda: 1,
            clock=clock,
        )
        super().__init__("contoso", gate, context, lambda: None, START_MS)
        self.failure: NamespaceError | None = None
        """What every request fails with."""

    def base_url(self, request: web.BaseRequest) -> str:
        return f"https://{request.host}"

    async def admit(self, path: str, now_ms: int) -> None:
        if self.failure is not None:
            raise self.failure


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
