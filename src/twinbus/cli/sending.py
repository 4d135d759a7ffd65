"""Two ways to send for a command: straight to one namespace, or through a pair. Both give receipts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from twinbus.errors import SendError, TwinbusError

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage

    from twinbus.client.links import SenderLink
    from twinbus.client.namespace import Namespace
    from twinbus.client.options import SendAvailabilityPairedNamespaceOptions
    from twinbus.client.sender import PairedServiceBusSender
    from twinbus.pairing.receipt import SendReceipt


class Way(Protocol):
    """How messages get to an entity."""

    def send(self, message: ServiceBusMessage | list[ServiceBusMessage]) -> SendReceipt:
        """Where it is stored; raises `SendError`, with a receipt if copies may be stored all the same."""


@contextlib.contextmanager
def straight_to(namespace: Namespace, entity: str, attempt_s: float) -> Iterator[Way]:
    """To one namespace, one attempt a message; raises `TwinbusError` if the entity cannot be reached."""
    from twinbus.client.links import LinkFailed, SenderLink
    from twinbus.client.watchdog import Watchdog

    watchdog = Watchdog()
    client = namespace.sync_client(attempt_s)
    try:
        link = SenderLink.open(client, entity, deadline_s=attempt_s, watchdog=watchdog)
        try:
            yield _Straight(link, attempt_s)
        finally:
            link.discard()
    except LinkFailed as error:
        raise TwinbusError(f"{entity} on {namespace.host_label}: {error.failure}") from None
    finally:
        watchdog.stop()


class _Straight:
    def __init__(self, link: SenderLink, attempt_s: float) -> None:
        self._link, self._attempt_s = link, attempt_s

    def send(self, message: ServiceBusMessage | list[ServiceBusMessage]) -> SendReceipt:
        from twinbus.client.links import LinkFailed
        from twinbus.pairing.receipt import SendReceipt, Side

        began = monotonic()
        ids = tuple(str(each.message_id) for each in (message if isinstance(message, list) else [message]))
        try:
            self._link.send(message, self._attempt_s)
        except LinkFailed as error:
            in_doubt = len(ids) if error.failure.in_doubt else 0
            receipt = SendReceipt(self._link.entity, ids, Side.PRIMARY, 0, (), 1, in_doubt, monotonic() - began)
            raise SendError(str(error.failure), receipt) from None
        return SendReceipt(self._link.entity, ids, Side.PRIMARY, len(ids), seconds=monotonic() - began)


@contextlib.contextmanager
def through_pair(primary: Namespace, options: SendAvailabilityPairedNamespaceOptions, entity: str) -> Iterator[Way]:
    """To the primary, or to the backlog while the entity is down there; raises `TwinbusError` if they are no pair."""
    from twinbus.client.sync import PairedServiceBusClient

    with PairedServiceBusClient(primary, options) as bus, bus.get_queue_sender(entity) as sender:
        yield _Paired(sender)


class _Paired:
    def __init__(self, sender: PairedServiceBusSender) -> None:
        self._sender = sender

    def send(self, message: ServiceBusMessage | list[ServiceBusMessage]) -> SendReceipt:
        from twinbus.client.failures import describe
        from twinbus.pairing.receipt import receipt_of

        try:
            return self._sender.send_messages(message)
        except TwinbusError as error:
            raise _with_receipt(error, receipt_of(error)) from None
        except Exception as error:  # what the official SDK raises while nothing is failed over
            raise SendError(str(describe(error, sending=False)), receipt_of(error)) from None


def _with_receipt(error: TwinbusError, receipt: Any) -> SendError:
    return error if isinstance(error, SendError) else SendError(str(error), receipt)
