"""Links with another back end than the embedded namespace: a few dictionaries, and the same conversations work."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count

import pytest
from engine_client import EngineClient

from twinbus.amqp.codec.outcomes import ACCEPTED, RELEASED, Accepted, Error, Rejected
from twinbus.amqp.codec.performatives import Source
from twinbus.amqp.codec.types import Symbol
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sasl import PLAIN, ServerSasl
from twinbus.amqp.sending_link import SendingLink
from twinbus.broker.auth.access_rules import AccessRule, RuleBook
from twinbus.broker.auth.authority import Authority
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.throttle import Throttle, ThrottleLimits
from twinbus.broker.limits import TrafficLimits
from twinbus.broker.links.attach import SESSION_FILTER
from twinbus.broker.links.backend import Backend, EncodedDelivery, PeerLink, ReadTransfer, ReceiverNotice
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.links.dispatcher import LinkDispatcher
from twinbus.broker.links.request_messages import Request, management_response
from twinbus.broker.message import Arrival, MessageReader
from twinbus.broker.operations import (
    Complete,
    Done,
    ReceiveMode,
    ReceiverDrained,
    Refused,
    Right,
    SenderOpened,
    SessionAccepted,
    Settled,
    SettlementOutcome,
)
from twinbus.broker.ops.meter import Meter
from twinbus.errors import ArgumentError, EntityNotFound, LockLost, NotAllowed

NOW_MS = 1_700_000_000_000


class DictionaryBackend:
    """Keeps payloads by path. Locks never end, and everything is answered at once."""

    def __init__(self, *paths: str) -> None:
        self.queues: dict[str, deque[bytes]] = {path: deque() for path in paths}
        self.locked: dict[bytes, tuple[str, bytes]] = {}
        self.notify: Callable[[ReceiverNotice], None]
        self.unwritten_bytes = 0
        self.requests_at_once = 1
        self.links: list[PeerLink] = []
        """Of the receivers, as they were opened."""
        self.closed: set[int] = set()
        self._receivers: dict[int, tuple[str, ReceiveMode]] = {}
        self._left: dict[int, int] = {}
        self._delivered: dict[int, int] = {}

    def messages_per_send(self, path: str) -> int | None:
        return None

    def kept_bytes(self, connection: int) -> int:
        return 0

    def open_sender(self, path: str, now_ms: int, on_reply: Callable[[SenderOpened | Refused], None]) -> None:
        on_reply(SenderOpened(None) if path in self.queues else Refused(EntityNotFound(f"no {path} here")))

    def send(
        self, path: str, arrivals: tuple[Arrival, ...], now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None:
        self.queues[path].extend(arrival.payload for arrival in arrivals)
        on_reply(Done())
        for receiver in list(self._receivers):
            self._deliver(receiver)

    def send_each(
        self,
        path: str,
        transfers: Sequence[ReadTransfer],
        now_ms: int,
        on_reply: Callable[[Sequence[ReadTransfer], Done | Refused], None],
    ) -> None:
        for transfer in transfers:
            self.send(path, transfer.arrivals, now_ms, partial(on_reply, (transfer,)))

    def open_receiver(
        self,
        receiver: int,
        path: str,
        mode: ReceiveMode,
        link: PeerLink,
        now_ms: int,
        on_reply: Callable[[Done | Refused], None],
    ) -> None:
        self.links.append(link)
        self._receivers[receiver] = (path, mode)
        self._left[receiver] = self._delivered[receiver] = 0
        on_reply(Done())

    def accept_session(
        self,
        receiver: int,
        path: str,
        mode: ReceiveMode,
        session_id: str | None,
        wait_ms: int,
        link: PeerLink,
        now_ms: int,
        on_reply: Callable[[SessionAccepted | Refused], None],
    ) -> None:
        self.open_receiver(receiver, path, mode, link, now_ms, lambda reply: None)
        on_reply(SessionAccepted(session_id or "any", now_ms + wait_ms))

    def grant_credit(self, receiver: int, credit_limit: int, drain: bool, now_ms: int) -> None:
        self._left[receiver] = credit_limit - self._delivered[receiver]
        self._deliver(receiver)
        if drain:
            self._left[receiver] = 0
            self.notify(ReceiverDrained(receiver))

    def _deliver(self, receiver: int) -> None:
        path, mode = self._receivers[receiver]
        while self._left[receiver] and self.queues[path]:
            self._left[receiver] -= 1
            self._delivered[receiver] += 1
            payload = self.queues[path].popleft()
            token = uuid.uuid4().bytes if mode is ReceiveMode.PEEK_LOCK else None
            if token is not None:
                self.locked[token] = (path, payload)
            self.notify(EncodedDelivery(receiver, payload, token))

    def pause_receiver(self, receiver: int, now_ms: int) -> None: ...

    def resume_receiver(self, receiver: int, now_ms: int) -> None: ...

    def close_receiver(self, receiver: int, now_ms: int) -> None:
        self._receivers.pop(receiver, None)

    def settle(
        self,
        receiver: int,
        path: str,
        tokens: tuple[bytes, ...],
        outcome: SettlementOutcome,
        now_ms: int,
        on_reply: Callable[[Settled | Refused], None] | None,
    ) -> None:
        unknown = [token for token in tokens if token not in self.locked]
        for token in set(tokens) - set(unknown):
            queue, payload = self.locked.pop(token)
            if not isinstance(outcome, Complete):
                self.queues[queue].appendleft(payload)
        if on_reply is not None:
            on_reply(Settled({token: LockLost("never heard of it") for token in unknown}))

    def begin_transaction(
        self, transaction: int, connection: int, now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None:
        on_reply(Refused(NotAllowed("there are none here")))

    def enlist_send(
        self,
        transaction: int,
        path: str,
        via: str | None,
        transfer: ReadTransfer,
        now_ms: int,
        on_reply: Callable[[Done | Refused], None],
    ) -> None: ...

    def enlist_settlement(
        self,
        transaction: int,
        receiver: int,
        path: str,
        tokens: tuple[bytes, ...],
        outcome: SettlementOutcome,
        now_ms: int,
        on_reply: Callable[[Settled | Refused], None],
    ) -> None: ...

    def end_transaction(
        self, transaction: int, commits: bool, now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None: ...

    def find_entity(self, path: str, connection: int, now_ms: int, on_reply: Callable[[Done | Refused], None]) -> None:
        on_reply(Done() if path in self.queues else Refused(EntityNotFound(f"no {path} here")))

    def pause_connection(self, connection: int) -> None: ...

    def resume_connection(self, connection: int) -> None: ...

    def close_connection(self, connection: int, now_ms: int) -> None:
        self.closed.add(connection)

    def request(
        self,
        path: str,
        request: Request,
        connection: int,
        holder: int | None,
        now_ms: int,
        on_response: Callable[[bytes], None],
        transaction: int | None = None,
    ) -> None:
        if request.operation != "count":
            raise ArgumentError(f"{request.operation} is not known here")
        on_response(management_response(request, 200, "OK", {"messages": len(self.queues[path])}))


class Listener(threading.Thread):
    """Accepts connections of one client after the other; the AMQP engine and the links do the rest."""

    def __init__(self, backend: DictionaryBackend) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        limits, meter, checked = TrafficLimits(), Meter(), _as_backend(backend)
        ids = count(1)
        self._context = ConnectionContext(
            backend=checked,
            messages=MessageReader(limits.message_bytes_max, lambda: f"made-{next(ids)}"),
            meter=meter,
            authority=Authority(RuleBook((AccessRule("root", frozenset(Right), "key"),))),
            limits=limits,
            faults=FaultTable(lambda: 0.5),
            throttle=Throttle(ThrottleLimits()),
            connections=lambda: 1,
            clock=lambda: NOW_MS,
        )
        backend.notify = self._context.notify

    def run(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                peer, _ = self._socket.accept()
                with peer:
                    self._serve(peer)

    def _serve(self, peer: socket.socket) -> None:
        connection = Connection(
            role=Role.SERVER, container_id="other", sasl=ServerSasl((PLAIN,), lambda user, key: key == "key")
        )
        links = LinkDispatcher(connection, self._context, lambda: None, lambda: None)
        while data := peer.recv(65_536):
            links.take(connection.receive(data, NOW_MS), NOW_MS)
            peer.sendall(connection.take_output())
        links.close(NOW_MS)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.join(10)


def _as_backend(backend: DictionaryBackend) -> Backend:
    """Accepted by mypy only if it is one."""
    return backend


@pytest.fixture
def backend() -> DictionaryBackend:
    return DictionaryBackend("orders", "parts")


@pytest.fixture
def client(backend: DictionaryBackend) -> Iterator[EngineClient]:
    listener = Listener(backend)
    listener.start()
    with EngineClient(listener.port, "root", "key") as client:
        assert client.wait_open()
        yield client
    listener.close()


def message(text: str) -> bytes:
    return sections.encode_message(properties={PropertyField.MESSAGE_ID: text}, data=text.encode())


def sender(client: EngineClient, path: str) -> SendingLink:
    link = client.sender(path)
    assert isinstance(link, SendingLink), link
    return link


def receiver(client: EngineClient, path: str) -> ReceivingLink:
    link = client.receiver(path)
    assert isinstance(link, ReceivingLink), link
    return link


def test_messages_are_sent_received_and_completed(client: EngineClient, backend: DictionaryBackend) -> None:
    link = sender(client, "orders")
    for name in ("1", "2"):
        assert isinstance(client.send(link, message(name)), Accepted)
    incoming = receiver(client, "orders")
    got = [client._next(TransferArrived, link=incoming) for _ in range(2)]
    assert [event.payload for event in got] == [message("1"), message("2")]
    assert len(backend.locked) == 2
    for event in got:
        incoming.settle(event.delivery_id, event.delivery_id, ACCEPTED, settled=False)
        assert isinstance(client._next(DispositionArrived, link=incoming).outcome, Accepted)
    assert not backend.locked
    assert not backend.queues["orders"]


def test_what_a_receiver_releases_is_there_again_and_an_unknown_lock_is_refused(
    client: EngineClient, backend: DictionaryBackend
) -> None:
    client.send(sender(client, "orders"), message("1"))
    incoming = receiver(client, "orders")
    event = client._next(TransferArrived, link=incoming)
    backend.locked.clear()
    incoming.settle(event.delivery_id, event.delivery_id, RELEASED, settled=False)
    outcome = client._next(DispositionArrived, link=incoming).outcome
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "com.microsoft:message-lock-lost"


def test_a_session_is_attached_with_the_name_that_the_back_end_gives(client: EngineClient) -> None:
    source = Source("orders", filter={Symbol(SESSION_FILTER): None})
    link = client.receiver_from(source, {})
    assert isinstance(link, ReceivingLink)
    assert link.source is not None
    assert (link.source.filter or {})[SESSION_FILTER] == "any"


def test_an_entity_that_the_back_end_does_not_have_is_refused_with_its_error(client: EngineClient) -> None:
    for refusal in (client.sender("nowhere"), client.sender("nowhere/$management")):
        assert isinstance(refusal, Error)
        assert (refusal.condition, refusal.description) == ("amqp:not-found", "no nowhere here")


def test_requests_are_answered_by_the_back_end(client: EngineClient) -> None:
    client.send(sender(client, "parts"), message("1"))
    status, body = client.ask_fully("parts/$management", {"operation": "count"}, {})
    assert (status["statusCode"], body) == (200, {"messages": 1})
    status, _ = client.ask_fully("parts/$management", {"operation": "dance"}, {})
    assert (status["statusCode"], status["statusDescription"]) == (400, "dance is not known here")


def test_the_back_end_knows_each_receiver_s_link_and_its_connection_and_that_it_is_gone(
    backend: DictionaryBackend,
) -> None:
    listener = Listener(backend)
    listener.start()
    try:
        for name in ("first", "second"):
            with EngineClient(listener.port, "root", "key") as client:
                assert client.wait_open()
                source = Source("orders", filter={Symbol(SESSION_FILTER): name})
                assert isinstance(client.receiver_from(source, {Symbol("color"): "red"}), ReceivingLink)
    finally:
        listener.close()
    first, second = backend.links
    assert first.connection != second.connection
    assert backend.closed == {first.connection, second.connection}
    assert [(link.filters or {})[SESSION_FILTER] for link in (first, second)] == ["first", "second"]
    assert first.properties == {"color": "red"}
    assert first.name
