"""`PairedServiceBusClient` for tasks: two namespaces that look like one to whoever sends."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import Any
from weakref import ref

from azure.core.async_paging import AsyncItemPaged
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from twinbus.client.aio.pair_runner import PairRunner
from twinbus.client.aio.receivers import PairedServiceBusReceiver, without_pings
from twinbus.client.aio.sdk_transport import SdkTransport
from twinbus.client.aio.sender import PairedServiceBusSender
from twinbus.client.aio.sides import PairSide, PairSides
from twinbus.client.core.any_client import check_sender_options, checked_path, known_entity, options_from, sent_directly
from twinbus.client.core.client_state import ClientState
from twinbus.client.core.weak_register import WeakRegister
from twinbus.client.namespace import Namespace
from twinbus.client.options import SendAvailabilityPairedNamespaceOptions
from twinbus.client.reporting.event_log import AioCallback, Unsubscribe
from twinbus.client.reporting.status import Phase, Status
from twinbus.client.reporting.telemetry import TELEMETRY
from twinbus.pairing.closing import SideName
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import FailoverForced, MarkedHealthy


class PairedServiceBusClient:
    """Sends go to the primary; while a queue or topic of it is down, to backlog queues in the secondary.

    Entering it in an `async with` block pairs the namespaces, leaving it closes it.
    Tasks of one event loop may share it and its senders.
    """

    def __init__(self, primary: Namespace, options: SendAvailabilityPairedNamespaceOptions) -> None:
        self._state = ClientState(primary, options)
        self._transport = SdkTransport(self._state)
        self._runner = PairRunner(self._state, self._transport)
        self._senders: WeakRegister[PairedServiceBusSender] = WeakRegister()
        self._receivers: WeakRegister[PairedServiceBusReceiver] = WeakRegister()
        self._sides = sides = PairSides(self, self._runner)
        self._runner.sides = ref(sides)  # weakly: timers must not keep a forgotten client alive
        self.primary = PairSide("primary", primary, sides)
        self.secondary = PairSide("secondary", options.secondary, sides)
        self._watch = TELEMETRY.watch(self.status)

    @classmethod
    def from_connection_strings(cls, primary: str, secondary: str, **options: Any) -> PairedServiceBusClient:
        """Pair two namespaces by their connection strings; every option is a keyword."""
        return cls(Namespace.from_connection_string(primary), options_from(secondary, options))

    # --- life ---

    async def pair(self) -> None:
        """Find or create the backlog queues and prove that they work; returns when everything is ready for sends.

        Raises `PairingError` saying which namespace, which queue and what to do. The primary may be down meanwhile.
        """
        await self._runner.prepare()

    async def close(self) -> None:
        """End everything; held sends raise whether they are "not sent" or "in doubt"."""
        await self._end(Phase.CLOSED)

    async def fault(self, reason: str) -> None:
        """End the pairing for good: from now on every call raises `PairFaulted` with this reason."""
        await self._end(Phase.FAULTED, reason)

    async def let_go(self, side: SideName) -> None:
        """One side has ended: what senders and receivers have open on it is closed."""
        if side == "primary":
            for sender in self._senders.all():
                sender.let_go()
            for receiver in self._receivers.all():
                await receiver.close()

    async def __aenter__(self) -> PairedServiceBusClient:
        await self.pair()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _end(self, phase: Phase, reason: str | None = None) -> None:
        self._runner.end(phase, reason)
        senders = self._senders.all()
        for sender in senders:
            await sender.close()
        for receiver in self._receivers.all():
            with contextlib.suppress(Exception):  # the others have to be closed in any case
                await receiver.close()
        self._watch.stop()
        await self._runner.finish(lambda me: any(each.is_storing(me) for each in senders))

    # --- senders and receivers ---

    def get_queue_sender(
        self, queue_name: str, *, client_identifier: str | None = None, **kwargs: Any
    ) -> PairedServiceBusSender:
        """A sender for this queue of the primary; `client_identifier` is its name for the primary."""
        return self._sender(queue_name, client_identifier, kwargs)

    def get_topic_sender(
        self, topic_name: str, *, client_identifier: str | None = None, **kwargs: Any
    ) -> PairedServiceBusSender:
        """A sender for this topic of the primary; `client_identifier` is its name for the primary."""
        return self._sender(topic_name, client_identifier, kwargs)

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> PairedServiceBusReceiver:
        """The SDK's receiver on this queue of the primary; pings are not shown. Arguments are the SDK's."""
        return self._paired(self._receiving.get_queue_receiver(queue_name, **kwargs))

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **kwargs: Any
    ) -> PairedServiceBusReceiver:
        """The SDK's receiver on this subscription of the primary; pings are not shown. Arguments are the SDK's."""
        return self._paired(self._receiving.get_subscription_receiver(topic_name, subscription_name, **kwargs))

    def list_queue_sessions(self, queue_name: str, **kwargs: Any) -> AsyncItemPaged[str]:
        """The SDK's list of sessions of this queue of the primary. Arguments are the SDK's."""
        return self._receiving.list_queue_sessions(queue_name, **kwargs)

    def list_subscription_sessions(self, topic_name: str, subscription_name: str, **kwargs: Any) -> AsyncItemPaged[str]:
        """The SDK's list of sessions of this subscription of the primary. Arguments are the SDK's."""
        return self._receiving.list_subscription_sessions(topic_name, subscription_name, **kwargs)

    def _sender(self, path: str, name: str | None, kwargs: dict[str, Any]) -> PairedServiceBusSender:
        check_sender_options(name, kwargs)
        self._state.check_not_ended()
        with self._runner.lock:
            entity = self._state.pair.entity(checked_path(path))
        sender = PairedServiceBusSender(self._runner, self._transport, entity, name)
        self._runner.warm_link.assign(sender.choice)
        self._senders.add(sender)
        return sender

    @property
    def _receiving(self) -> ServiceBusClient:
        """The SDK's client for receivers on the primary; raises what a call has to raise unless it can be used."""
        self._state.check_usable()
        self._state.check_side("primary")
        return self._transport.receiving

    def _paired(self, receiver: ServiceBusReceiver) -> PairedServiceBusReceiver:
        paired = without_pings(receiver, self._state.recorder, self._runner.tried)
        self._receivers.add(paired)
        return paired

    # --- controls and sight ---

    @property
    def backlog_queue_count(self) -> int:
        """How many backlog queues were found or created; 0 before pairing."""
        return self._state.queue_count

    def force_failover(self, entity: str, *, reason: str = "forced", stay: bool = False) -> None:
        """Send an entity's messages to the backlog from now on, until a ping succeeds; `stay`: until `mark_healthy`."""
        self._state.check_usable()
        self._runner.feed(self._entity(entity), lambda at, epoch: FailoverForced(at, epoch, reason, stay))

    def mark_healthy(self, entity: str) -> None:
        """Send an entity's messages to the primary from now on."""
        self._state.check_usable()
        self._runner.feed(self._entity(entity), MarkedHealthy)

    async def recheck(self) -> None:
        """Prove now, and not only every hour, that the backlog queues can be used."""
        self._state.check_usable()
        await self._runner.recheck()

    def on(self, event: str, callback: AioCallback) -> Unsubscribe:
        """Call a function with every event of this name, or with all ("*"); call the result to end that."""
        return self._runner.event_log.on(event, callback)

    def status(self) -> Status:
        """How the pair is doing: every entity, every backlog queue. Prints as a table."""
        with self._runner.lock:
            direct = sent_directly(self._senders.all())
            return self._state.status(monotonic(), direct.__getitem__, self._runner.event_log.dropped)

    def metrics_text(self) -> str:
        """The numbers of this client as Prometheus scrapes them."""
        return self._watch.text()

    def __repr__(self) -> str:
        state = self._state
        return f"PairedServiceBusClient({state.primary!r}, {state.secondary!r}, {state.phase.value})"

    def _entity(self, path: str) -> Entity:
        with self._runner.lock:
            return known_entity(self._state.pair, path)
