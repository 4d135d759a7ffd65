"""The administration's view of a running server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar, assert_never

from aiohttp import web

from twinbus.broker.admin.request_context import AbortConnection
from twinbus.broker.core.commands import Command
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.faults.decisions import Drop, Ignore, Proceed, Refuse
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.operations import Operation, Refused, Right
from twinbus.broker.ops.meter import Metered
from twinbus.errors import NamespaceError, ServerBusy

R = TypeVar("R")


class ServerInfo:
    """Implements `AdminHouse` for a server."""

    def __init__(
        self,
        name: str,
        gate: CommitGate,
        context: ConnectionContext,
        clock: Callable[[], int],
        after_action: Callable[[], None],
        created_at_ms: int,
    ) -> None:
        self.name = name
        self.created_at_ms = created_at_ms
        self.message_bytes_max = context.limits.message_bytes_max
        self.clock = clock
        self._gate = gate
        self._context = context
        self._after_action = after_action

    def base_url(self, request: web.BaseRequest) -> str:
        return f"{request.scheme}://{request.host}"

    async def ask(self, command: Command[R]) -> R:
        replied: asyncio.Future[R | Refused] = asyncio.get_running_loop().create_future()

        def take(reply: R | Refused) -> None:
            if not replied.done():  # the request may be cancelled by now
                replied.set_result(reply)

        self._gate.ask(command, self.clock(), take)
        self._after_action()
        reply = await replied
        if isinstance(reply, Refused):
            raise reply.error
        return reply

    def authorize(self, headers: Mapping[str, str], path: str, right: Right, now_ms: int) -> None:
        self._context.authority.authorize_http(headers.get("Authorization"), path, right, now_ms)

    async def admit(self, operation: Operation, path: str, now_ms: int) -> NamespaceError | None:
        faults = self._context.faults
        if faults.is_quiet:
            return None
        decision = faults.decide(operation, path or None, now_ms)
        match decision:
            case Proceed(delay_ms=delay_ms):
                await asyncio.sleep(delay_ms / 1000)
                return None
            case Refuse(error=error, delay_ms=delay_ms):
                if isinstance(error, ServerBusy):
                    self._context.report_busy(path, error)
                await asyncio.sleep(delay_ms / 1000)
                return error
            case Drop():
                raise AbortConnection
            case Ignore():
                await asyncio.Event().wait()  # nothing sets it: waits until the request is cancelled
                return None
            case _:
                assert_never(decision)

    def count(self, kind: Metered, path: str, size: int) -> None:
        self._context.meter.count(kind, path.lower(), size)
