"""A receiver of the official SDK for a command: every call of it ends, whatever the namespace does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from twinbus.errors import TwinbusError

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

    from twinbus.client.namespace import Namespace

Result = TypeVar("Result")

LEAST_WAIT_S = 0.05
"""The SDK takes no zero."""
GOODBYE_S = 0.3
"""The SDK would wait longer for an answer to its goodbye; nothing depends on it."""
GRACE_S = 1.0
"""How long after its time a call may end by itself."""


@dataclass(frozen=True, slots=True)
class Where:
    """What is to be received from, and how."""

    entity: str
    subscription: str | None = None
    dead_letters: str | None = None
    """None, or which of the two dead-letter queues: `deadletter`, `transferdeadletter`."""
    session: str | None = None
    next_session: bool = False
    deletes: bool = False
    """Whether messages are gone as soon as they are sent to us, instead of when we have dealt with them."""

    def __str__(self) -> str:
        path = self.entity if self.subscription is None else f"{self.entity}/{self.subscription}"
        return path if self.dead_letters is None else f"the dead letters of {path}"


@contextlib.contextmanager
def receiving_from(namespace: Namespace, where: Where, attempt_s: float) -> Iterator[Reception]:
    """Raises `TwinbusError` if nothing can be received there."""
    client = namespace.sync_client(attempt_s)
    reception = Reception(_receiver(client, where, attempt_s), f"{where} on {namespace.host_label}", attempt_s)
    try:
        yield reception
    finally:
        reception.close()


def _receiver(client: Any, where: Where, attempt_s: float) -> Any:
    from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode, ServiceBusSubQueue

    from twinbus.client.receivers import queue_receiver, subscription_receiver

    options: dict[str, Any] = {"keep_alive": 0}
    if where.deletes:
        options["receive_mode"] = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    if where.dead_letters is not None:
        options["sub_queue"] = ServiceBusSubQueue(where.dead_letters)
    if where.session is not None or where.next_session:
        options["session_id"] = where.session if where.session is not None else NEXT_AVAILABLE_SESSION
        options["max_wait_time"] = attempt_s
    if where.subscription is None:
        return queue_receiver(client, where.entity, **options)
    return subscription_receiver(client, where.entity, where.subscription, **options)


class Reception:
    """One receiver; every call raises `TwinbusError` when it fails or takes too long."""

    def __init__(self, receiver: Any, name: str, attempt_s: float) -> None:
        from twinbus.client.readable import read_all_of
        from twinbus.client.wires import Wire

        self.receiver = receiver
        self._name = name
        self._attempt_s = attempt_s
        read_all_of(receiver)
        self._wire = Wire(receiver)

    def open(self) -> None:
        """Have the link that messages come by; a session is accepted with it."""
        self._do(self._attempt_s, self.receiver._open)

    def take(self, count: int, wait_s: float) -> list[ServiceBusReceivedMessage]:
        """Up to so many, as soon as there is one; none if nothing came in this time."""
        return self._do(
            self._attempt_s + wait_s,
            lambda: self.receiver.receive_messages(count, max_wait_time=max(LEAST_WAIT_S, wait_s)),
        )

    def peek(self, count: int, first: int) -> list[ServiceBusReceivedMessage]:
        """Up to so many from this sequence number on; they stay where they are."""
        return self._do(
            self._attempt_s,
            lambda: self.receiver.peek_messages(count, sequence_number=first, timeout=self._attempt_s),
        )

    def complete(self, message: ServiceBusReceivedMessage) -> None:
        self._do(self._attempt_s, lambda: self.receiver.complete_message(message))

    def give_back(self, message: ServiceBusReceivedMessage) -> None:
        self._do(self._attempt_s, lambda: self.receiver.abandon_message(message))

    def close(self) -> None:
        from twinbus.client.within import within

        with contextlib.suppress(Exception):
            within(GOODBYE_S, self.receiver.close)
        self._wire.close()

    def _do(self, deadline_s: float, act: Callable[[], Result]) -> Result:
        from twinbus.client.failures import describe
        from twinbus.client.within import within

        try:
            return within(deadline_s + GRACE_S, act)
        except Exception as error:
            self._wire.cut()  # a call that hangs ends by it, and nothing is taken that nobody would see
            text = str(describe(error, sending=False)).replace("Error Description: ", "")
            raise TwinbusError(f"{self._name}: {text}") from None
