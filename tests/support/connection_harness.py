"""The links of one connection between a peer and a machine, all in memory: no sockets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import count
from typing import Any

from twinbus.amqp.codec.outcomes import Outcome
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import DispositionArrived, Event, TransferArrived
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sasl import PLAIN, ClientSasl, ServerSasl
from twinbus.amqp.sending_link import SendingLink
from twinbus.broker.auth.access_rules import AccessRule, RuleBook
from twinbus.broker.auth.authority import Authority
from twinbus.broker.core.commands import CreateQueue
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.namespace_backend import NamespaceBackend
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.throttle import Throttle, ThrottleLimits
from twinbus.broker.limits import TrafficLimits
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.links.dispatcher import LinkDispatcher
from twinbus.broker.message import MessageReader
from twinbus.broker.operations import Right
from twinbus.broker.ops.meter import Meter
from twinbus.broker.store.api import StoredNamespace
from twinbus.broker.store.memory import MemoryStore

NOW_MS = 1_700_000_000_000
MEGABYTE = 1024 * 1024


class ConnectionHarness:
    """A link dispatcher with a peer on one side and a store that commits by hand on the other."""

    def __init__(self) -> None:
        self._tokens: Iterator[int] = count(1)
        self.store = MemoryStore(by_hand=True)
        self.gate = CommitGate(self.store, self._build, lambda notice: self.backend.notify(notice), lambda reason: None)
        self.store.start(lambda report: self.gate.report(report, NOW_MS))
        limits, meter = TrafficLimits(message_bytes_max=MEGABYTE), Meter()
        messages = MessageReader(limits.message_bytes_max, lambda: "new")
        self.backend = NamespaceBackend(self.gate, messages, meter, lambda notice: self.context.notify(notice))
        self.context = ConnectionContext(
            backend=self.backend,
            messages=messages,
            meter=meter,
            authority=Authority(RuleBook((AccessRule("root", frozenset(Right), "key"),))),
            limits=limits,
            faults=FaultTable(lambda: 0.5),
            throttle=Throttle(ThrottleLimits()),
            connections=lambda: 1,
            clock=lambda: NOW_MS,
        )
        for path in ("orders", "others"):
            self.gate.do(CreateQueue(path, QueueSettings(max_size_mb=1)), NOW_MS)
        self.store.commit()
        self.peer = Connection(role=Role.CLIENT, container_id="peer", sasl=ClientSasl(PLAIN, "root", "key"))
        self.ours = Connection(
            role=Role.SERVER, container_id="harness", sasl=ServerSasl((PLAIN,), lambda user, key: key == "key")
        )
        self.dispatcher = LinkDispatcher(self.ours, self.context, lambda: None, lambda: None)
        self.peer.open()
        self.session = self.peer.begin()

    def _build(self, stored: StoredNamespace) -> NamespaceMachine:
        return NamespaceMachine(stored, new_token=lambda: next(self._tokens).to_bytes(16, "big"))

    def sender(self, path: str) -> SendingLink:
        link = self.session.attach_sender(f"to-{path}", path)
        self.exchange()
        assert link.attached
        return link

    def receiver(self, path: str, *, settled: bool = False) -> ReceivingLink:
        """Without credit; `settled` is receive-and-delete."""
        modes = (1, 0) if settled else (0, 1)
        name = f"from-{path}-{uuid.uuid4().hex}"
        link = self.session.attach_receiver(name, path, snd_settle_mode=modes[0], rcv_settle_mode=modes[1])
        self.exchange()
        assert link.attached
        return link

    def deliver(self, path: str, *payloads: bytes) -> None:
        """Send messages and see them stored."""
        link = self.sender(path)
        for payload in payloads:
            link.send(payload, tag=b"t")
        self.exchange()
        self.store.commit()
        self.exchange()
        link.detach()
        self.exchange()

    def request(self, path: str, operation: str, body: Any, message_id: Any = "r-1") -> TransferArrived | None:
        """Ask a queue's management; the answer, None if there is none."""
        address = f"{path}/$management"
        answers = self.receiver(address, settled=True)
        answers.grant(10)
        asking = self.session.attach_sender(f"ask-{uuid.uuid4().hex}", address)
        self.exchange()
        asking.send(
            sections.encode_message(
                properties={PropertyField.MESSAGE_ID: message_id, PropertyField.REPLY_TO: answers.name},
                application_properties={"operation": operation},
                value=body,
            ),
            tag=b"t",
        )
        heard = self.exchange()
        return next((event for event in heard if isinstance(event, TransferArrived)), None)

    def exchange(self) -> list[Event]:
        """Bring all that each side says to the other; what the peer hears."""
        heard: list[Event] = []
        while True:
            said, answered = self.peer.take_output(), b""
            if said:
                self.dispatcher.take(self.ours.receive(said, NOW_MS), NOW_MS)
            answered = self.ours.take_output()
            if not said and not answered:
                return heard
            heard += self.peer.receive(answered, NOW_MS)

    def outcomes(self) -> dict[int, Outcome | None]:
        """How the peer's deliveries ended, as far as it has heard."""
        return {
            delivery_id: event.outcome
            for event in self.exchange()
            if isinstance(event, DispositionArrived)
            for delivery_id, _ in event.deliveries
        }

    def stored(self, path: str) -> int:
        return self.gate.machine.registry.find_queue(path).active
