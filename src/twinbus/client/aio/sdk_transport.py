"""Links of the official SDK for one paired client: to entities of the primary, and to backlog queues."""

from __future__ import annotations

from time import monotonic

from azure.servicebus.aio import ServiceBusClient

from twinbus.client.aio.backlog_pool import BacklogPool
from twinbus.client.aio.links import LinkOpener, SenderLink, close_client
from twinbus.client.aio.transport import Probed
from twinbus.client.core.client_state import ClientState
from twinbus.client.core.ping_message import ping_message
from twinbus.client.sdk.failures import LinkFailed, describe
from twinbus.client.sdk.internals.handlers import set_retries
from twinbus.pairing.sending.failure import Failure

RECEIVER_RETRIES = 3
"""As the SDK has it: receivers have no second side to go to, and find their way back by themselves."""


class SdkTransport:
    def __init__(self, state: ClientState) -> None:
        self._state = state
        self._opener = LinkOpener()
        self._primary: ServiceBusClient | None = None
        self._secondary: ServiceBusClient | None = None
        self._receiving: ServiceBusClient | None = None
        self._pool: BacklogPool | None = None

    def start(self) -> None:
        attempt_s = self._state.pair.rules.attempt_s
        self._primary = self._state.primary.aio_client(attempt_s=attempt_s)
        self._receiving = self._state.primary.aio_client(attempt_s=attempt_s)
        set_retries(self._receiving, RECEIVER_RETRIES)
        self._secondary = self._state.secondary.aio_client(attempt_s=attempt_s)
        self._pool = BacklogPool(self._secondary, self._state.queue_path, self._opener)

    @property
    def backlog(self) -> BacklogPool:
        assert self._pool is not None, "senders are used only after pairing"
        return self._pool

    @property
    def receiving(self) -> ServiceBusClient:
        """For receivers on the primary."""
        assert self._receiving is not None, "receivers are made only after pairing"
        return self._receiving

    async def open_primary(self, path: str, deadline_s: float, name: str | None = None) -> SenderLink:
        """A link to an entity of the primary; raises `LinkFailed`, or `PairClosed` if that side has ended."""
        assert self._primary is not None, "senders are used only after pairing"
        self._state.check_side("primary")
        heard = self._state.primary_offers
        return await self._opener.open(self._primary, path, deadline_s=deadline_s, name=name, heard=heard)

    async def probe(self, path: str, timeout_s: float, *, sends_ping: bool) -> Probed:
        until = monotonic() + timeout_s
        size = 0
        failure: Failure | None = None
        try:
            link = await self.open_primary(path, timeout_s)
            try:
                if sends_ping:
                    await link.send(ping_message(), max(0.001, until - monotonic()))
            finally:
                size = sum(link.sent_sizes())
                link.discard()
        except LinkFailed as problem:
            failure = problem.failure
        except Exception as error:  # of any kind: without a result there would be no further ping
            failure = describe(error, sending=False)
        return Probed(size, failure)

    def end_primary(self) -> None:
        if self._primary is not None:
            self._opener.end(self._primary)

    def end_backlog(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def hang_up(self) -> None:
        self._opener.hang_up()

    async def close(self) -> None:
        for client in (self._primary, self._secondary, self._receiving):  # sync: for client in (self._receiving,):
            if client is not None:
                await close_client(client)

    async def wait_closed(self) -> None:
        await self._opener.wait_closed()
