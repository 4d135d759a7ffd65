"""A primary that does odd things to the links of a proxy: applications lose a link at most, never their connection."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from engine_client import EngineClient
from local_proxy import LocalProxy

from twinbus.amqp.codec.outcomes import ACCEPTED, Error
from twinbus.amqp.events import ConnectionClosed, TransferArrived
from twinbus.amqp.message.sections import encode_message
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sending_link import SendingLink
from twinbus.testing import LocalNamespace

KEY = "the-key-of-the-proxy"
ENTITIES = {
    "UserConfig": {
        "Namespaces": [{"Name": "local", "Queues": [{"Name": "orders", "Properties": {}}], "Topics": []}],
    }
}


class Scene(NamedTuple):
    proxy: LocalProxy
    primary: LocalNamespace

    def connect(self) -> EngineClient:
        return EngineClient(self.proxy.server.port, "RootManageSharedAccessKey", KEY)

    def at_primary(self, act: Callable[[SendingLink], object]) -> None:
        """Do this to every link on which the primary delivers, with the engine and behind the back of its broker."""

        async def do() -> None:
            found = 0
            for connection in list(self.primary._running.amqp.connections):
                for session in list(connection.connection.sessions):
                    for link in session.links:
                        if isinstance(link, SendingLink) and link.source and link.source.address == "orders":
                            found += 1
                            act(link)
                            connection.flush()
            assert found, "there is such a link"

        self.primary._ask(do())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    entities = tmp_path / "entities.json"
    entities.write_text(json.dumps(ENTITIES))
    with (
        LocalNamespace("local", entities=entities) as primary,
        LocalNamespace("backup") as secondary,
        LocalProxy(
            primary.connection_string,
            secondary.connection_string,
            key=KEY,
            failover_interval=timedelta(minutes=10),
            backlog_queue_count=1,
        ) as running,
    ):
        yield Scene(running, primary)


LOST = "amqp:link:detach-forced"
ENDS: dict[str, tuple[Callable[[SendingLink], object], str]] = {
    "no reason": (lambda link: link.detach(), LOST),
    "unknown condition": (lambda link: link.detach(Error("contoso:odd", "why not")), "contoso:odd"),
    "no ASCII": (lambda link: link.detach(Error("größe:\n", "ü" * 5_000)), "größe:\n"),
    "empty condition": (lambda link: link.detach(Error("", "")), ""),
    "long condition": (lambda link: link.detach(Error("x" * 60_000, "x")), "x" * 60_000),
    "busy": (lambda link: link.detach(Error("com.microsoft:server-busy", "x")), LOST),
    "session": (lambda link: link.session.end(), LOST),
    "session, with a reason": (lambda link: link.session.end(Error("amqp:session:odd", "x")), "amqp:session:odd"),
    "connection": (lambda link: link.session.connection.close(), LOST),
    "connection, with a reason": (
        lambda link: link.session.connection.close(Error("amqp:unauthorized-access", "x")),
        LOST,
    ),
}
"""How a primary may end a link, and the condition that an application sees."""


@pytest.mark.parametrize("kind", ENDS)
def test_however_a_link_ends_at_the_primary_the_application_keeps_its_connection(scene: Scene, kind: str) -> None:
    act, condition = ENDS[kind]
    with scene.connect() as client:
        orders, receiver, second = client.sender("orders"), client.receiver("orders"), client.receiver("orders")
        assert isinstance(orders, SendingLink)
        assert isinstance(receiver, ReceivingLink)
        assert isinstance(second, ReceivingLink)
        scene.at_primary(act)
        for link in (receiver, second):
            error = client.detached(link)
            assert error is not None
            assert error.condition == condition, error
        assert client.send(orders, encode_message(data=b"x")) == ACCEPTED
        again = client.receiver("orders")
        assert isinstance(again, ReceivingLink)
        assert b"x" in client._next(TransferArrived, link=again).payload
        assert client.hears_nothing(ConnectionClosed, 0.1)


def test_what_comes_without_credit_is_passed_on_and_can_be_settled(scene: Scene) -> None:
    with scene.connect() as client:
        orders, receiver = client.sender("orders"), client.receiver("orders", 1)
        assert isinstance(orders, SendingLink)
        assert isinstance(receiver, ReceivingLink)
        client.hears_nothing(TransferArrived, 0.2)

        def flood(link: SendingLink) -> None:
            for _ in range(1000):
                link.send(encode_message(data=b"y" * 10), tag=uuid.uuid4().bytes)

        scene.at_primary(flood)
        got = [client._next(TransferArrived, link=receiver) for _ in range(1000)]
        receiver.settle(got[0].delivery_id, got[-1].delivery_id, ACCEPTED, settled=False)
        assert client.send(orders, encode_message(data=b"x")) == ACCEPTED
        receiver.grant(10)
        assert b"x" in client._next(TransferArrived, link=receiver).payload
        assert client.hears_nothing(ConnectionClosed, 0.1)
