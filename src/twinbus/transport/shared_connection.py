"""One connection for many users: opened when it is needed first, and again after it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twinbus.transport.connection import NamespaceConnection


class SharedConnection:
    def __init__(self, make: Callable[[], NamespaceConnection]) -> None:
        """`make` returns a connection that is not open yet."""
        self._make = make
        self._connection: NamespaceConnection | None = None
        self._connecting: asyncio.Task[NamespaceConnection] | None = None

    @property
    def current(self) -> NamespaceConnection | None:
        """The open connection, if there is one."""
        connection = self._connection
        return connection if connection is not None and connection.is_open else None

    async def get(self) -> NamespaceConnection:
        """The open connection; all callers share one attempt to open it. Raises `ConnectionFailed`."""
        current = self.current
        if current is not None:
            return current
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            # Retrieves the error: if all callers were cancelled, nobody needs it.
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._connecting)

    def replace(self, connection: NamespaceConnection | None) -> NamespaceConnection | None:
        """Use this open connection from now on; None: the next user opens one. The caller closes what is returned."""
        before, self._connection = self._connection, connection
        return before

    def flush(self) -> None:
        if self._connection is not None:
            self._connection.flush()

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    async def _connect(self) -> NamespaceConnection:
        try:
            connection = self._make()
            await connection.open()
            self._connection = connection
            return connection
        finally:
            self._connecting = None
