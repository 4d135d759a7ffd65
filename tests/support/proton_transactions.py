"""Transactions by Qpid Proton, step by step: its own ones are for programs made of events."""

from __future__ import annotations

from typing import Any

from proton import Delivery, Described, Message, Terminus, symbol, ulong
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

WAIT_S = 20
TRANSACTIONAL, ACCEPTED, RELEASED = 0x34, 0x24, 0x26


class Coordinator(LinkOption):
    def apply(self, link: Any) -> None:
        link.target.type = Terminus.COORDINATOR


class Via(LinkOption):
    """A link that sends to one entity via another."""

    def __init__(self, destination: str) -> None:
        self._destination = destination

    def apply(self, link: Any) -> None:
        link.properties = {symbol("com.microsoft:transfer-destination-address"): self._destination}


class SettledSecond(LinkOption):
    """As the official clients settle: the server has the last word."""

    def apply(self, link: Any) -> None:
        link.snd_settle_mode, link.rcv_settle_mode = 0, 1


def connect(port: int, key: str) -> BlockingConnection:
    plain: dict[str, Any] = {"allowed_mechs": "PLAIN", "allow_insecure_mechs": True}
    user = "RootManageSharedAccessKey"
    return BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=WAIT_S, user=user, password=key, **plain)


class Refused(Exception):
    """The peer's condition and its description."""

    def __init__(self, delivery: Any) -> None:
        self.condition = delivery.remote.condition.name
        super().__init__(delivery.remote.condition.description)


class Controller:
    """A coordinator link, and what is done in its transactions."""

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection
        self.link = connection.create_sender(None, name="transactions", options=Coordinator())

    def declare(self, global_id: bytes | None = None) -> bytes:
        """The id of a new transaction."""
        delivery = self._control("amqp:declare:list", [global_id])
        return bytes(delivery.remote.data[0])

    def close(self) -> None:
        """End the link to the coordinator."""
        link: Any = self.link
        link.close()

    def commit(self, transaction: bytes) -> None:
        self._control("amqp:discharge:list", [transaction, False])

    def roll_back(self, transaction: bytes) -> None:
        self._control("amqp:discharge:list", [transaction, True])

    def _control(self, descriptor: str, fields: list[Any]) -> Any:
        delivery: Any = self.link.link.send(Message(body=Described(symbol(descriptor), fields)))
        return self._answer(delivery)

    def send(self, sender: BlockingSender, message: Message, transaction: bytes) -> None:
        delivery: Any = sender.link.send(message)
        delivery.local.data = [transaction]
        delivery.update(TRANSACTIONAL)
        answered = self._answer(delivery)
        assert answered.remote_state == TRANSACTIONAL
        assert answered.remote.data[0] == transaction

    def settle(self, delivery: Any, transaction: bytes, outcome: int = ACCEPTED) -> None:

        def is_refused() -> bool:
            return bool(delivery.remote_state == Delivery.REJECTED)

        delivery.local.data = [transaction, Described(ulong(outcome), [])]
        delivery.update(TRANSACTIONAL)
        self._connection.wait(lambda: is_refused() or _transaction_of(delivery) == transaction, timeout=WAIT_S)
        if is_refused():
            raise Refused(delivery)

    def _answer(self, delivery: Any) -> Any:
        self._connection.wait(lambda: delivery.settled, timeout=WAIT_S)
        if delivery.remote_state == Delivery.REJECTED:
            raise Refused(delivery)
        delivery.settle()
        return delivery


def _transaction_of(delivery: Any) -> bytes | None:
    return bytes(delivery.remote.data[0]) if delivery.remote_state == TRANSACTIONAL else None


def next_delivery(receiver: BlockingReceiver) -> tuple[Message, Any]:
    """The next message, and its delivery, which stays unsettled."""
    message = receiver.receive(timeout=WAIT_S)
    fetcher: Any = receiver.fetcher
    return message, fetcher.unsettled[-1]
