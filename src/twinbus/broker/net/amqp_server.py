"""The AMQP side of a port: its connections, the order in which input is processed, and which senders wait for the disk.

It knows the back end of the links only as far as they do: whatever stands there can be served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twinbus.amqp.codec.outcomes import Error
from twinbus.amqp.codec.performatives import DROPS_PINGS
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.peer_memory import Account
from twinbus.amqp.sasl import ANONYMOUS, CBS, PLAIN, ServerSasl
from twinbus.broker.limits import ServerLimits
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.links.disk_fairness import SenderShare
from twinbus.broker.net.amqp_connection import READ_BYTES, AmqpConnection
from twinbus.broker.net.fairness import Turns

CLOSE_WAIT_S = 2.0


class AmqpServer:
    def __init__(
        self,
        context: ConnectionContext,
        limits: ServerLimits,
        container_id: str,
        *,
        after_action: Callable[[], None],
        between_steps: Callable[[], None],
        capabilities: Callable[[], tuple[str, ...]] = lambda: (DROPS_PINGS,),
    ) -> None:
        """`after_action` is called whenever input was processed; `between_steps` does what should not wait for that.

        `capabilities` are offered to every peer that connects.
        """
        self.context = context
        self.clock = context.clock
        self.limits = limits
        self.after_action = after_action
        self.connections: set[AmqpConnection] = set()
        self.paused: set[AmqpConnection] = set()
        """Those of them that are not read for now."""
        self.buffer = memoryview(bytearray(READ_BYTES))
        """What connections are read into: one is enough for all of an event loop, because what is read is copied out at
        once. Loops must not share it: each runs on a thread of its own, and one would overwrite what the other reads.
        """
        self._container_id = container_id
        self._capabilities = capabilities
        self._loop = asyncio.get_running_loop()
        self.turns = Turns(self._loop.time, self._call_next_turn, between_steps)

    def new_connection(self, account: Account, *, takes_passwords: bool) -> Connection:
        mechanisms = (ANONYMOUS, CBS, PLAIN) if takes_passwords else (ANONYMOUS, CBS)
        return Connection(
            role=Role.SERVER,
            container_id=self._container_id,
            sasl=ServerSasl(mechanisms, check_plain=self.context.authority.knows),
            limits=self.limits.of_a_connection(self.context.limits.message_bytes_max),
            account=account,
            offered_capabilities=self._capabilities(),
        )

    # --- back-pressure ---

    @property
    def is_overloaded(self) -> bool:
        return self.context.backend.unwritten_bytes > self.context.limits.unwritten_bytes

    def must_wait_for_disk(self, sender: SenderShare) -> bool:
        """Whether so much waits to be written that this sender does not add to it."""
        return self.context.disk_share.must_wait(sender, self.context.backend.unwritten_bytes, self.clock() / 1000)

    def relieve(self) -> None:
        """Read again from senders that had to wait."""
        if self.paused and not self.is_overloaded:
            for connection in list(self.paused):
                connection.read_if_allowed()

    def _call_next_turn(self, call: Callable[[], None]) -> asyncio.Handle:
        rest_s = self.context.disk_share.rest_s(self.context.backend.unwritten_bytes, self.clock() / 1000)
        return self._loop.call_later(rest_s, call) if rest_s else self._loop.call_soon(call)

    # --- all connections ---

    def faults_changed(self) -> None:
        """Deliver or not, as the faults are now."""
        now_ms = self.clock()
        for connection in list(self.connections):
            connection.links.outgoing.faults_changed(now_ms)
        self.after_action()

    def stop_reading(self) -> None:
        for connection in self.connections:
            connection.stop_reading()

    def close_connections(self, error: Error) -> None:
        """Tell every peer the reason, and close."""
        for connection in list(self.connections):
            connection.close_gracefully(error)

    async def wait_closed(self) -> None:
        """Wait until all connections are closed; abort those that take too long."""
        deadline = self._loop.time() + CLOSE_WAIT_S
        while self.connections and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)  # sockets are closed one turn later
