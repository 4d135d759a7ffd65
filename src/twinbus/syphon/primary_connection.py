"""The connection to the primary: opened when there is something to send, one link for each destination."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinbus.amqp.codec.outcomes import Received
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.sending_link import SendingLink
from twinbus.errors import AmqpError
from twinbus.pairing.sending.failure import Failure
from twinbus.syphon.pump.effects import SendBatch
from twinbus.syphon.pump.pump import Pump
from twinbus.syphon.secondary_connection import StartTask, raise_error
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed, unreachable
from twinbus.transport.links.link_handler import LinkHandler
from twinbus.transport.links.link_limits import batch_limit
from twinbus.transport.shared_connection import SharedConnection

if TYPE_CHECKING:
    from twinbus.transport.dial import Dial


class PrimaryConnection:
    def __init__(
        self, dial: Dial, pump: Pump, clock: Callable[[], int], run_effects: Callable[[], None], start_task: StartTask
    ) -> None:
        self._dial = dial
        self._pump = pump
        self._clock = clock
        self._run_effects = run_effects
        self._start_task = start_task
        self._shared = SharedConnection(self._make)
        self._links: dict[str, SendingLink] = {}

    async def close(self) -> None:
        await self._shared.close()

    def flush(self) -> None:
        self._shared.flush()

    # --- effects of the pump ---

    def send(self, effect: SendBatch) -> None:
        link = self._links.get(effect.path)
        if link is None:
            return  # the pump is about to know that it is lost
        try:
            link.send(effect.payload, tag=effect.number.to_bytes(4, "big"), message_format=effect.message_format)
        except AmqpError as error:
            self._link_lost(effect.path, unreachable(error))

    def open_destination(self, path: str) -> None:
        self._start_task(self._open(path))

    def drop_destination(self, path: str) -> None:
        link = self._links.pop(path, None)
        if link is not None:
            link.context = None
            link.detach()

    async def _open(self, path: str) -> None:
        link = self._links.get(path)
        if link is None or not link.attached:
            handler = DestinationLink(path, self._pump, self._clock, self._link_lost)
            try:
                connection = await self._shared.get()
                link = self._links[path] = await connection.open_sender(path, handler)
            except ConnectionFailed as error:
                self._pump.destination_failed(path, error.failure, self._clock())
                self._run_effects()
                return
            handler.is_in_use = True
        largest = link.max_message_size or 0
        self._pump.destination_opened(path, largest, batch_limit(link), link.credit)
        self._run_effects()

    def _link_lost(self, path: str, failure: Failure) -> None:
        self._links.pop(path, None)
        self._pump.destination_failed(path, failure, self._clock())

    def _make(self) -> NamespaceConnection:
        return NamespaceConnection(
            self._dial,
            attempt_s=self._pump.options.attempt_s,
            clock=self._clock,
            after_events=self._run_effects,
            on_error=lambda error: self._start_task(raise_error(error)),
        )


class HomeAndDetour:
    """Two connections to send on, and for each destination one of them."""

    def __init__(self, home: PrimaryConnection, detour: PrimaryConnection, is_detour: Callable[[str], bool]) -> None:
        self._home = home
        self._detour = detour
        self._is_detour = is_detour

    def send(self, effect: SendBatch) -> None:
        self._connection_for(effect.path).send(effect)

    def open_destination(self, path: str) -> None:
        self._connection_for(path).open_destination(path)

    def drop_destination(self, path: str) -> None:
        self._connection_for(path).drop_destination(path)

    def flush(self) -> None:
        self._home.flush()
        self._detour.flush()

    async def close(self) -> None:
        await asyncio.gather(self._home.close(), self._detour.close())

    def _connection_for(self, path: str) -> PrimaryConnection:
        return self._detour if self._is_detour(path) else self._home


class DestinationLink(LinkHandler):
    """Passes what happens on the link to a destination to the pump."""

    def __init__(
        self, path: str, pump: Pump, clock: Callable[[], int], on_lost: Callable[[str, Failure], None]
    ) -> None:
        super().__init__()
        self._path = path
        self._pump = pump
        self._clock = clock
        self._on_lost = on_lost
        self.is_in_use = False
        """Until then `open_sender` raises if the link ends."""

    def on_disposition(self, event: DispositionArrived) -> None:
        if isinstance(event.outcome, Received):
            return  # not final
        numbers = [int.from_bytes(tag, "big") for _, tag in event.deliveries]
        if not event.settled and isinstance(event.link, SendingLink):
            for delivery_id, _ in event.deliveries:
                event.link.settle(delivery_id, delivery_id, event.outcome)
        self._pump.batches_settled(self._path, numbers, event.outcome, self._clock())

    def on_credit(self, link: SendingLink) -> None:
        super().on_credit(link)
        self._pump.credit_changed(self._path, link.credit)

    def on_detached(self, failure: Failure) -> None:
        super().on_detached(failure)
        if self.is_in_use:
            self._on_lost(self._path, failure)
