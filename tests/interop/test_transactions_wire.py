"""Transactions are not offered: a request for one is refused, and everything else goes on."""

from __future__ import annotations

from typing import Any

from azure.servicebus import ServiceBusClient
from proton import Event, Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

from twinbus.testing import LocalNamespace

KEY = "a-key-that-is-long-enough-for-this"


class Application(MessagingHandler, TransactionHandler):
    """Sends a message, asks for a transaction, and sends another when that is answered."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self.answers: list[str] = []
        self.was_declared = False

    def on_start(self, event: Event) -> None:
        plain: dict[str, Any] = {"allowed_mechs": "PLAIN", "allow_insecure_mechs": True, "reconnect": False}
        self._connection = event.container.connect(
            f"amqp://127.0.0.1:{self._port}", user="RootManageSharedAccessKey", password=KEY, **plain
        )
        self._sender = event.container.create_sender(self._connection, "orders")
        event.container.declare_transaction(self._connection, handler=self)

    def on_transaction_declared(self, event: Event) -> None:
        self.was_declared = True
        self._connection.close()

    def on_link_error(self, event: Event) -> None:
        assert event.link is not None
        condition = event.link.remote_condition
        assert condition is not None
        self.answers.append(f"{condition.name}: {condition.description}")
        self._sender.send(Message("without a transaction", id="1"))

    def on_accepted(self, event: Event) -> None:
        self._connection.close()


def test_a_request_for_a_transaction_is_refused_as_not_implemented() -> None:
    with LocalNamespace(queues=["orders"], key=KEY) as namespace:
        application = Application(namespace.port)
        Container(application).run()
        with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
            found = client.get_queue_receiver("orders").peek_messages(9)
    assert application.answers == ["amqp:not-implemented: transactions are not offered"]
    assert not application.was_declared
    assert [message.body for message in found] == [b"without a transaction"]
