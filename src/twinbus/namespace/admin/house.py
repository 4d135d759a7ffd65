"""The administration's view of a running server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import web

from twinbus.errors import NamespaceError, ServerBusy
from twinbus.namespace.admin.asking import HangUp
from twinbus.namespace.commands import AdminCommand
from twinbus.namespace.faults.rulings import Drop, Proceed, Refuse, Silence
from twinbus.namespace.meter import Metered
from twinbus.namespace.operations import Operation, Right
from twinbus.namespace.reception import Reception
from twinbus.namespace.replies import Reply


class ServedHouse:
    """Implements `AdminHouse` for a server."""

    def __init__(
        self,
        name: str,
        reception: Reception,
        clock: Callable[[], int],
        settle_down: Callable[[], None],
        created_at_ms: int,
    ) -> None:
        self.name = name
        self.created_at_ms = created_at_ms
        self.message_bytes_max = reception.limits.message_bytes_max
        self.clock = clock
        self._reception = reception
        self._settle_down = settle_down

    def base_url(self, request: web.BaseRequest) -> str:
        return f"{request.scheme}://{request.host}"

    async def ask(self, command: AdminCommand) -> Reply:
        replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def take(reply: Reply) -> None:
            if not replied.done():  # whoever asked may have gone
                replied.set_result(reply)

        self._reception.ask(command._replace(origin=take), self.clock())
        self._settle_down()
        return await replied

    def authorize(self, headers: Mapping[str, str], path: str, right: Right, now_ms: int) -> None:
        self._reception.authority.authorize_http(headers.get("Authorization"), path, right, now_ms)

    async def admit(self, operation: Operation, path: str, now_ms: int) -> NamespaceError | None:
        faults = self._reception.faults
        if faults.is_quiet:
            return None
        match faults.ruling(operation, path or None, now_ms):
            case Proceed(delay_ms=delay_ms):
                await asyncio.sleep(delay_ms / 1000)
                return None
            case Refuse(error=error, delay_ms=delay_ms):
                if isinstance(error, ServerBusy):
                    self._reception.note_busy(path, error)
                await asyncio.sleep(delay_ms / 1000)
                return error
            case Drop():
                raise HangUp
            case Silence():
                await asyncio.Event().wait()  # which nobody sets: for as long as anybody waits
                return None

    def count(self, kind: Metered, path: str, size: int) -> None:
        self._reception.meter.count(kind, path.lower(), size)
