"""Applications that misbehave behind a proxy: they get no more than their rights, and leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from engine_client import EngineClient
from local_proxy import LocalProxy
from paired import wait_until
from token_makers import js_token

from twinbus.amqp.codec.outcomes import ACCEPTED, Error
from twinbus.amqp.codec.performatives import Source
from twinbus.amqp.codec.types import Int, Long, Symbol
from twinbus.amqp.limits import ConnectionLimits
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.amqp.peer_memory import QUEUED_MAX
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sending_link import SendingLink
from twinbus.broker.auth import claims
from twinbus.broker.auth.access_rules import AccessRule
from twinbus.broker.limits import ServerLimits
from twinbus.broker.links.dispatcher import KEPT_BYTES_MAX
from twinbus.broker.operations import Right
from twinbus.client.reporting.status import EntityState
from twinbus.proxy.relay import upstream
from twinbus.proxy.relay.upstream import REQUEST_S, TOO_MANY
from twinbus.testing import LocalNamespace

KEY = "the-key-of-the-proxy"
FEW = 100
ENTITIES = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "local",
                "Queues": [
                    {"Name": "orders", "Properties": {}},
                    {"Name": "more-orders", "Properties": {}},
                    {"Name": "sessions", "Properties": {"RequiresSession": True}},
                ],
                "Topics": [],
            }
        ]
    }
}


@pytest.fixture
def fewer_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection can be used for `FEW` entities."""
    for module in (claims, upstream):
        monkeypatch.setattr(module, "CLAIMS_MAX", FEW)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[LocalProxy]:
    entities = tmp_path / "entities.json"
    entities.write_text(json.dumps(ENTITIES))
    reader = AccessRule("reader", frozenset((Right.LISTEN,)), "listen-key")
    with (
        LocalNamespace("local", entities=entities) as primary,
        LocalNamespace("backup") as secondary,
        LocalProxy(
            primary.connection_string,
            secondary.connection_string,
            key=KEY,
            rules=(reader,),
            failover_interval=timedelta(minutes=10),
            backlog_queue_count=1,
        ) as running,
    ):
        yield running


def opening(proxy: LocalProxy) -> int:
    """Links that are being opened at the primary."""

    async def count() -> int:
        connections = proxy.server._upstream
        assert connections is not None
        return sum([len(each._tasks) for each in connections._connections.values()])

    return proxy.ask(count())


def test_whoever_waits_for_a_session_no_longer_leaves_no_link_that_waits_at_the_primary(proxy: LocalProxy) -> None:
    with EngineClient(proxy.server.port, "RootManageSharedAccessKey", KEY) as client:
        assert isinstance(client.receiver("orders"), ReceivingLink)
        source = Source("sessions", filter={Symbol("com.microsoft:session-filter"): None})
        for number in range(20):
            link = client.session.attach_receiver(f"waits-{number}", source)
            client._exchange(time.monotonic() + 0.05)
            link.detach()
            client._exchange(time.monotonic() + 0.05)
        wait_until(lambda: opening(proxy) == 0, 5.0)
        # and none of them takes the session that comes now
        assert isinstance(client.receiver("orders"), ReceivingLink)


@pytest.mark.parametrize("path", ["orders/../sessions", "orders/./x", "orders//x"])
def test_a_path_that_the_primary_might_read_as_another_one_is_refused(proxy: LocalProxy, path: str) -> None:
    """A token for one entity would open others: upstream the proxy has all rights."""
    audience = f"sb://127.0.0.1:{proxy.server.port}/orders"
    with EngineClient(proxy.server.port) as client:
        token = js_token(audience, "RootManageSharedAccessKey", KEY, int(time.time()) + 3600)
        assert client.put_token(token, audience) == 202
        for answer in (client.receiver(path), client.sender(path), client.sender(f"{path}/$management")):
            assert isinstance(answer, Error)
            assert answer.condition == "com.microsoft:argument-error", answer


def test_whoever_invents_names_spoils_nothing_for_others(proxy: LocalProxy) -> None:
    """Each name needs a token at the primary, which takes a thousand on a connection; senders share one."""
    with (
        EngineClient(proxy.server.port, "RootManageSharedAccessKey", KEY) as inventor,
        EngineClient(proxy.server.port, "RootManageSharedAccessKey", KEY) as other,
    ):
        used_before = other.sender("orders")
        assert isinstance(used_before, SendingLink)
        for number in range(claims.CLAIMS_MAX + 10):
            answer = inventor.sender(f"invented-{number}")
            assert isinstance(answer, Error)
            assert answer.condition == "amqp:not-found", answer
        used_now = other.sender("more-orders")
        assert isinstance(used_now, SendingLink)
        for link in (used_before, used_now):
            assert other.send(link, encode_message(data=b"x")) == ACCEPTED
    status = proxy.server.status()
    assert [entity.state for entity in status.entities] == [EntityState.HEALTHY] * 2, status


@pytest.mark.usefixtures("fewer_claims")
def test_a_connection_that_asks_for_invented_names_is_refused_more_and_served_on(proxy: LocalProxy) -> None:
    with EngineClient(proxy.server.port, "RootManageSharedAccessKey", KEY) as client:
        for number in range(FEW):
            assert isinstance(client.sender(f"invented-{number}/$management"), Error)
        refused = client.receiver("more-orders")
        assert isinstance(refused, Error)
        assert (refused.condition, refused.description) == ("amqp:resource-limit-exceeded", TOO_MANY.text)
        assert isinstance(client.sender("orders"), SendingLink)


def test_a_connection_with_more_receivers_than_the_primary_has_sessions_for_is_refused_more_and_served_on(
    proxy: LocalProxy,
) -> None:
    """Each has a session at the primary, and requests share one."""
    with EngineClient(proxy.server.port, "RootManageSharedAccessKey", KEY) as client:
        for number in range(ConnectionLimits().sessions_max - 1):
            if number % 200 == 0:
                client.session = client._connection.begin()
            assert isinstance(client.receiver("orders", 0), ReceivingLink)
        refused = client.receiver("orders", 0)
        assert isinstance(refused, Error)
        assert refused.condition == "amqp:resource-limit-exceeded", refused
        assert refused.description is not None
        assert "channels are in use" in refused.description
        assert isinstance(client.sender("orders"), SendingLink)


def test_a_path_of_any_length_is_no_path(proxy: LocalProxy) -> None:
    with EngineClient(proxy.server.port, "RootManageSharedAccessKey", KEY) as client:
        for answer in (client.receiver("x" * 2_000), client.sender("x" * 2_000)):
            assert isinstance(answer, Error)
            assert answer.condition == "com.microsoft:argument-error", answer


def ask_in_vain(asking: SendingLink, count: int, size: int = 0, how_many: int = 1) -> None:
    for number in range(count):
        request = encode_message(
            properties={PropertyField.MESSAGE_ID: f"request-{number}"},
            application_properties={"operation": "com.microsoft:peek-message", "padding": "x" * size},
            value={"from-sequence-number": Long(1), "message-count": Int(how_many)},
        )
        asking.send(request, tag=number.to_bytes(4), settled=True)


def kept(proxy: LocalProxy) -> int:
    async def count() -> int:
        connections = proxy.server._upstream
        assert connections is not None
        return max([connections.kept_bytes(each) for each in connections._connections], default=0)

    return proxy.ask(count())


def charged(proxy: LocalProxy) -> int:
    """What all applications together have in memory, as it is counted."""

    async def count() -> int:
        amqp = proxy.server._amqp
        assert amqp is not None
        return sum([each._accepted.account.held for each in amqp.connections])

    return proxy.ask(count())


def test_answers_that_an_application_does_not_take_stay_at_the_primary(proxy: LocalProxy) -> None:
    """Of 256 requests under way each may have an answer of a MB, and their connection is cut off after a minute."""
    with (
        EngineClient(proxy.server.port, "RootManageSharedAccessKey", KEY) as client,
        EngineClient(proxy.server.port, "RootManageSharedAccessKey", KEY) as other,
    ):
        orders = client.sender("orders")
        assert isinstance(orders, SendingLink)
        for _ in range(5):
            assert client.send(orders, encode_message(data=b"x" * 200_000)) == ACCEPTED
        asking, answers = client.sender("orders/$management"), client.receiver("orders/$management", 0)
        assert isinstance(asking, SendingLink)
        assert isinstance(answers, ReceivingLink)
        ask_in_vain(asking, 200, how_many=5)
        highest, until = 0, time.monotonic() + 3.0
        while time.monotonic() < until:
            client._exchange(time.monotonic() + 0.05)
            highest = max(highest, charged(proxy))
        assert QUEUED_MAX < highest < 4 * QUEUED_MAX
        others = other.sender("orders")
        assert isinstance(others, SendingLink)
        assert other.send(others, encode_message(data=b"x")) == ACCEPTED


def test_of_applications_that_leave_too_much_untaken_together_one_is_cut_off_though_nobody_sends() -> None:
    most = 2 * QUEUED_MAX
    with (
        LocalNamespace("local", queues=["orders"]) as primary,
        LocalNamespace("backup") as secondary,
        LocalProxy(
            primary.connection_string,
            secondary.connection_string,
            key=KEY,
            server_limits=ServerLimits(held_bytes=most, held_bytes_all=most),
            backlog_queue_count=1,
        ) as proxy,
        contextlib.ExitStack() as stack,
    ):
        clients = [
            stack.enter_context(EngineClient(proxy.server.port, "RootManageSharedAccessKey", KEY)) for _ in range(3)
        ]
        orders = clients[0].sender("orders")
        assert isinstance(orders, SendingLink)
        for _ in range(4):
            assert clients[0].send(orders, encode_message(data=b"x" * 200_000)) == ACCEPTED
        for client in clients:
            asking, answers = client.sender("orders/$management"), client.receiver("orders/$management", 0)
            assert isinstance(asking, SendingLink)
            assert isinstance(answers, ReceivingLink)
            ask_in_vain(asking, 5, how_many=4)
            client._exchange(time.monotonic() + 0.05)
        wait_until(lambda: connected(proxy) < 3, 10.0)
        assert charged(proxy) <= most


def connected(proxy: LocalProxy) -> int:
    async def count() -> int:
        amqp = proxy.server._amqp
        assert amqp is not None
        return len(amqp.connections)

    return proxy.ask(count())


@pytest.fixture
def silenced(tmp_path: Path) -> Iterator[tuple[LocalProxy, LocalNamespace]]:
    """A proxy, and its primary, which can be silenced; then the first failure of a send is an outage."""
    entities = tmp_path / "entities.json"
    entities.write_text(json.dumps(ENTITIES))
    with (
        LocalNamespace("local", entities=entities) as primary,
        LocalNamespace("backup") as secondary,
        LocalProxy(
            primary.connection_string,
            secondary.connection_string,
            key=KEY,
            failover_interval=timedelta(0),
            attempt_timeout=timedelta(seconds=1),
            backlog_queue_count=1,
        ) as running,
    ):
        yield running, primary


def test_requests_that_the_primary_does_not_answer_hold_up_no_send(
    silenced: tuple[LocalProxy, LocalNamespace],
) -> None:
    proxy, primary = silenced
    with EngineClient(proxy.server.port, "RootManageSharedAccessKey", KEY) as client:
        orders, asking = client.sender("orders"), client.sender("orders/$management")
        assert isinstance(orders, SendingLink)
        assert isinstance(asking, SendingLink)
        primary.faults.add("unreachable", how="silent")
        ask_in_vain(asking, 50)
        began = time.monotonic()
        assert client.send(orders, encode_message(data=b"x")) == ACCEPTED
        assert time.monotonic() - began < REQUEST_S / 2


def test_what_a_primary_does_not_take_is_not_piled_up(silenced: tuple[LocalProxy, LocalNamespace]) -> None:
    proxy, primary = silenced
    with EngineClient(proxy.server.port, "RootManageSharedAccessKey", KEY) as client:
        asking = client.sender("orders/$management")
        assert isinstance(asking, SendingLink)
        primary.faults.add("unreachable", how="silent")
        with contextlib.suppress(TimeoutError):
            for _ in range(200):
                ask_in_vain(asking, 1, 250_000)
                client._exchange(time.monotonic() + 0.01)
        wait_until(lambda: kept(proxy) > KEPT_BYTES_MAX // 2, 5.0)
        assert kept(proxy) < 2 * KEPT_BYTES_MAX
        assert charged(proxy) >= kept(proxy)
