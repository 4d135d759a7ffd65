"""Connections to the primary for the relay: one for each connection of an application that receives or asks.

They are never shared: link names, sessions and what a request says about a link belong to one connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.broker.auth.claims import CLAIMS_MAX
from twinbus.broker.operations import ReceiveMode
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.proxy.relay.primary_transactions import PrimaryTransaction, TransactionLinks
from twinbus.proxy.relay.upstream_port import ReceiverTerms, UpstreamTransaction
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.link_handler import LinkHandler
from twinbus.transport.shared_connection import SharedConnection

if TYPE_CHECKING:
    from twinbus.transport.dial import Dial

logger = logging.getLogger("twinbus.proxy")

R = TypeVar("R")

RETRY_S = 0.25
"""The pause before another attempt to reach a primary that refused a connection."""
REQUEST_S = 60.0
"""How long a request may take: official clients wait as long."""
TASK_BYTES = 8 * 1_024
"""Memory of a request in addition to its bytes, or of a link that is being opened."""
TOO_MANY = Failure(
    FailureKind.FULL, f"a connection can be used for at most {CLAIMS_MAX} entities", "amqp:resource-limit-exceeded"
)
"""Our own namespaces take as many tokens from a connection; each entity needs one."""


class UpstreamConnections:
    """Implements `Upstream`."""

    def __init__(
        self,
        dial: Dial,
        *,
        attempt_s: float,
        after_events: Callable[[], None],
    ) -> None:
        """`after_events` is called when something was passed on to applications."""
        self._dial = dial
        self._attempt_s = attempt_s
        self._after_events = after_events
        self._connections: dict[int, _ApplicationConnection] = {}
        self._paused: set[int] = set()
        """Connections on which nothing is to be read, also those that are not open yet."""
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def open_receiver(
        self, terms: ReceiverTerms, handler: LinkHandler, on_result: Callable[[ReceivingLink | Failure], None]
    ) -> None:
        link = terms.link

        async def open_link(connection: NamespaceConnection) -> ReceivingLink:
            return await connection.open_receiver_as(
                terms.path,
                handler,
                name=link.name,
                deletes=terms.mode is ReceiveMode.RECEIVE_AND_DELETE,
                filters=link.filters,
                properties=link.properties,
                wait_s=terms.wait_ms / 1000,
            )

        self._of(link.connection).start(terms.path, open_link, on_result, handler)

    def give_up(self, connection: int, handler: LinkHandler) -> None:
        found = self._connections.get(connection)
        if found is not None:
            found.give_up(handler)

    def close_link(self, connection: int, link: ReceivingLink) -> None:
        found = self._connections.get(connection)
        if found is not None and found.connection is not None:
            found.connection.end_receiver(link)

    def find(self, connection: int, path: str, on_result: Callable[[Failure | None], None]) -> None:
        async def find(upstream: NamespaceConnection) -> None:
            await upstream.find_management(path)

        self._of(connection).start(path, find, on_result)

    def request(
        self,
        connection: int,
        path: str,
        payload: bytes,
        on_result: Callable[[bytes | Failure], None],
        transaction: bytes | None = None,
    ) -> None:
        async def exchange(upstream: NamespaceConnection) -> bytes:
            return await upstream.exchange(path, payload, REQUEST_S, transaction)

        self._of(connection).start(path, exchange, on_result, size=len(payload))

    def begin_transaction(self, connection: int, on_result: Callable[[UpstreamTransaction | Failure], None]) -> None:
        of_application = self._of(connection)

        async def declare(upstream: NamespaceConnection) -> UpstreamTransaction:
            return await of_application.transaction_links(upstream).declare()

        of_application.start("", declare, on_result)

    def send_in(
        self,
        connection: int,
        transaction: UpstreamTransaction,
        path: str,
        via: str | None,
        payload: bytes,
        message_format: int,
        on_result: Callable[[Failure | None], None],
    ) -> None:
        of_application = self._of(connection)

        async def send(upstream: NamespaceConnection) -> None:
            assert isinstance(transaction, PrimaryTransaction)
            async with transaction.order:
                links = of_application.transaction_links(upstream)
                await links.send(_still_there(transaction), path, via, payload, message_format)

        of_application.start(path, send, on_result, size=len(payload))

    def end_transaction(
        self,
        connection: int,
        transaction: UpstreamTransaction,
        commits: bool,
        on_result: Callable[[Failure | None], None],
    ) -> None:
        of_application = self._of(connection)

        async def end(upstream: NamespaceConnection) -> None:
            assert isinstance(transaction, PrimaryTransaction)
            async with transaction.order:
                links = of_application.transaction_links(upstream)
                await links.discharge(_still_there(transaction), fails=not commits)

        of_application.start("", end, on_result)

    def kept_bytes(self, connection: int) -> int:
        found = self._connections.get(connection)
        return 0 if found is None else found.kept_bytes

    def pause(self, connection: int) -> None:
        self._paused.add(connection)
        if connection in self._connections:
            self._connections[connection].read(False)

    def resume(self, connection: int) -> None:
        self._paused.discard(connection)
        if connection in self._connections:
            self._connections[connection].read(True)

    def flush(self, connection: int) -> None:
        found = self._connections.get(connection)
        if found is not None and found.connection is not None:
            found.connection.flush()

    def close(self, connection: int) -> None:
        self._paused.discard(connection)
        found = self._connections.pop(connection, None)
        if found is not None:
            task = asyncio.get_running_loop().create_task(found.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close_all(self) -> None:
        """Close every connection, and wait until they are closed."""
        for connection in list(self._connections):
            self.close(connection)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _of(self, connection: int) -> _ApplicationConnection:
        found = self._connections.get(connection)
        if found is None:
            found = _ApplicationConnection(self._dial, self._attempt_s, self._after_events)
            self._connections[connection] = found
            found.read(connection not in self._paused)
        return found


def _still_there(transaction: PrimaryTransaction) -> PrimaryTransaction:
    """Nothing of a transaction may reach another connection than its own: there its id may be that of another one."""
    if transaction.is_lost:
        text = "the connection to the primary was lost, and the transaction is rolled back"
        raise ConnectionFailed(Failure(FailureKind.REJECTED, text, "amqp:transaction:unknown-id"))
    return transaction


class _Work(NamedTuple):
    """Something that is under way at the primary."""

    handler: LinkHandler | None
    """Of the link that is opened by it."""
    kept_bytes: int


class _ApplicationConnection:
    """What one connection of an application has at the primary."""

    def __init__(self, dial: Dial, attempt_s: float, after_events: Callable[[], None]) -> None:
        self._attempt_s = attempt_s
        self._after_events = after_events
        self._shared = SharedConnection(
            lambda: NamespaceConnection(dial, attempt_s=attempt_s, after_events=after_events)
        )
        self._tasks: dict[asyncio.Task[None], _Work] = {}
        self._task_bytes = 0
        self._is_reading = True
        self._transaction_links: TransactionLinks | None = None

    @property
    def connection(self) -> NamespaceConnection | None:
        return self._shared.current

    @property
    def kept_bytes(self) -> int:
        connection = self.connection
        return self._task_bytes + (0 if connection is None else connection.unsent_bytes)

    def start(
        self,
        path: str,
        act: Callable[[NamespaceConnection], Coroutine[Any, Any, R]],
        on_result: Callable[[R | Failure], None],
        handler: LinkHandler | None = None,
        size: int = 0,
    ) -> None:
        """Do this with an entity on the connection, which is opened if there is none, and report the result.

        `handler`: of the link that is opened by it, for `give_up`; `size`: bytes that are kept until it is done.
        """
        task = asyncio.get_running_loop().create_task(self._run(path, act, on_result))
        work = self._tasks[task] = _Work(handler, TASK_BYTES + size)
        self._task_bytes += work.kept_bytes
        task.add_done_callback(self._done)

    def transaction_links(self, connection: NamespaceConnection) -> TransactionLinks:
        """The links for transactions on this connection to the primary, which may be another one than before."""
        links = self._transaction_links
        if links is None or links.connection is not connection:
            links = self._transaction_links = TransactionLinks(connection, self._attempt_s)
        return links

    def give_up(self, handler: LinkHandler) -> None:
        for task in [task for task, work in self._tasks.items() if work.handler is handler]:
            task.cancel()

    async def _run(
        self, path: str, act: Callable[[NamespaceConnection], Awaitable[R]], on_result: Callable[[R | Failure], None]
    ) -> None:
        result: R | Failure
        try:
            connection = await self._connected()
            result = await act(connection) if connection.has_room_for(path, CLAIMS_MAX) else TOO_MANY
        except ConnectionFailed as error:
            result = error.failure
        on_result(result)
        self._after_events()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task_bytes -= self._tasks.pop(task).kept_bytes
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a link to the primary failed", exc_info=error)

    async def _connected(self) -> NamespaceConnection:
        """The connection. One that is refused is tried again for a while: a primary that restarts is soon back."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._attempt_s
        while True:
            try:
                connection = await self._shared.get()
            except ConnectionFailed as error:
                if error.failure.kind is not FailureKind.UNREACHABLE or loop.time() + RETRY_S >= until:
                    raise
            else:
                if not self._is_reading:
                    connection.pause_reading()
                return connection
            await asyncio.sleep(RETRY_S)

    def read(self, is_reading: bool) -> None:
        self._is_reading = is_reading
        if self.connection is not None:
            (self.connection.resume_reading if is_reading else self.connection.pause_reading)()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._shared.close()
