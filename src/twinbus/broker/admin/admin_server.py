"""The namespace as its administration needs it: rights, faults, the meter, and commands that are carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, assert_never

from aiohttp import web

from twinbus.broker.admin.authorization import AdminAuthorization
from twinbus.broker.core.commands import Command
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.faults.decisions import Drop, Ignore, Proceed, Refuse
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.operations import Operation, Refused
from twinbus.broker.ops.meter import Metered
from twinbus.errors import ServerBusy

R = TypeVar("R")


class AbortConnection(Exception):
    """Abort the connection instead of answering."""


class AdminServer:
    def __init__(
        self,
        name: str,
        gate: CommitGate,
        context: ConnectionContext,
        after_action: Callable[[], None],
        created_at_ms: int,
    ) -> None:
        self.name = name
        self.created_at_ms = created_at_ms
        self.message_bytes_max = context.limits.message_bytes_max
        self.clock = context.clock
        self._gate = gate
        self._context = context
        self.authorization = AdminAuthorization(context.authority, context.clock)
        self._after_action = after_action

    def base_url(self, request: web.BaseRequest) -> str:
        """`https://host:port` as the client connected: addresses in documents begin with it."""
        return f"{request.scheme}://{request.host}"

    async def ask(self, command: Command[R]) -> R:
        """Carry out a command and wait until its reply is durable; raises the error if it is refused."""
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

    async def admit(self, path: str, now_ms: int) -> None:
        """Apply faults: wait as they say, and raise the error to answer with, or `AbortConnection`."""
        faults = self._context.faults
        if faults.is_quiet:
            return
        decision = faults.decide(Operation.ADMIN, path or None, now_ms)
        match decision:
            case Proceed(delay_ms=delay_ms):
                await asyncio.sleep(delay_ms / 1000)
            case Refuse(error=error, delay_ms=delay_ms):
                if isinstance(error, ServerBusy):
                    self._context.report_busy(path, error)
                await asyncio.sleep(delay_ms / 1000)
                raise error
            case Drop():
                raise AbortConnection
            case Ignore():
                await asyncio.Event().wait()  # nothing sets it: waits until the request is cancelled
            case _:
                assert_never(decision)

    def count(self, path: str, size: int) -> None:
        """Count a request about an entity (lower-case path; empty: the namespace)."""
        self._context.meter.count(Metered.MANAGE, path, size)
