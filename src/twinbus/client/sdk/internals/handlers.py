"""Clients, senders and receivers of the SDK: how they retry, reopen, stay alive and iterate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient
from azure.servicebus.aio import ServiceBusReceiver as AioServiceBusReceiver
from azure.servicebus.aio import ServiceBusSender as AioServiceBusSender
from azure.servicebus.exceptions import ServiceBusConnectionError


def take_handlers(client: Any) -> tuple[Any, ...]:
    """The senders and receivers that a client has made. The client forgets them, so that it does not close them."""
    made = tuple(client._handlers)
    client._handlers.clear()
    return made


def set_retries(client: ServiceBusClient | AioServiceBusClient, retries: int) -> None:
    client._config.retry_total = retries


def is_running(sender: ServiceBusSender | AioServiceBusSender) -> bool:
    """Whether the SDK takes its link for open."""
    return bool(sender._running)


def max_batch_bytes(sender: ServiceBusSender | AioServiceBusSender) -> int:
    """How large a batch the peer of an open sender takes."""
    size: int = sender._max_batch_size_on_link
    return size


def never_reopen(sender: ServiceBusSender) -> None:
    """Make an open sender fail at once where it would connect anew, on the thread of whoever sends just then."""

    def refuse_to_open(_timeout_s: float | None = None) -> None:
        if not sender._running:
            raise ServiceBusConnectionError(message="The link was closed before this send.")

    sender._open = refuse_to_open  # type: ignore[assignment, method-assign]


def never_reopen_async(sender: AioServiceBusSender) -> None:
    async def refuse_to_open(_timeout_s: float | None = None) -> None:
        if not sender._running:
            raise ServiceBusConnectionError(message="The link was closed before this send.")

    sender._open = refuse_to_open  # type: ignore[assignment, method-assign]


def keep_alive(sender: ServiceBusSender, every_s: float) -> Callable[[], None]:
    """What to run on a thread so that an idle link stays open; it ends within a second of the link's closing."""
    client: Any = sender._handler
    client._keep_alive_interval = every_s
    work: Callable[[], None] = client._keep_alive
    return work


def keep_alive_async(sender: AioServiceBusSender, every_s: float) -> Coroutine[Any, Any, None]:
    client: Any = sender._handler
    client._keep_alive_interval = every_s
    work: Coroutine[Any, Any, None] = client._keep_alive_async()
    return work


def open_receiver(receiver: ServiceBusReceiver) -> None:
    """Open its link, once and without retries; a session is accepted with it."""
    receiver._open()


class HookedReceiver(ServiceBusReceiver):
    """A receiver whose iteration goes through `choose_next`."""

    @property
    def deletes(self) -> bool:
        """Whether receiving a message deletes it."""
        return bool(self._receive_mode == ServiceBusReceiveMode.RECEIVE_AND_DELETE)

    def choose_next(self, take: Callable[[], ServiceBusReceivedMessage]) -> ServiceBusReceivedMessage:
        """The next message to hand out; `take` takes one from the link."""
        return take()

    def _inner_next(self, wait_time: float | None = None) -> ServiceBusReceivedMessage:
        return self.choose_next(partial(super()._inner_next, wait_time))


class AioHookedReceiver(AioServiceBusReceiver):
    """A receiver whose iteration goes through `choose_next`."""

    @property
    def deletes(self) -> bool:
        """Whether receiving a message deletes it."""
        return bool(self._receive_mode == ServiceBusReceiveMode.RECEIVE_AND_DELETE)

    async def choose_next(self, take: Callable[[], Awaitable[ServiceBusReceivedMessage]]) -> ServiceBusReceivedMessage:
        """The next message to hand out; `take` takes one from the link."""
        return await take()

    async def _inner_anext(self, wait_time: float | None = None) -> ServiceBusReceivedMessage:
        return await self.choose_next(partial(super()._inner_anext, wait_time))


MORE, PAYLOAD = 5, 11
"""Where they are in a transfer frame."""


def convert_received(receiver: Any, convert: Callable[[bytes], bytes]) -> None:
    """Pass every encoded message that a receiver of the sync SDK gets through `convert`; before it is open."""
    create, request = receiver._create_handler, receiver._mgmt_request_response

    def create_and_convert(auth: Any) -> None:
        create(auth)
        client = receiver._handler
        is_ready = client._client_ready

        def is_ready_to_convert() -> bool:
            result: bool = is_ready()
            link = client._link
            if link is not None and "_incoming_transfer" not in vars(link):
                link._incoming_transfer = partial(_convert_transfer, link, link._incoming_transfer, convert)
            return result

        client._client_ready = is_ready_to_convert

    def request_and_convert(
        mgmt_operation: Any, message: Any, callback: Callable[..., Any], *given: Any, **more: Any
    ) -> Any:
        def call_back(status: Any, response: Any, *facts: Any, **named: Any) -> Any:
            value = response.value
            for each in (value.get(b"messages") or ()) if isinstance(value, dict) else ():
                each[b"message"] = convert(each[b"message"])
            return callback(status, response, *facts, **named)

        return request(mgmt_operation, message, call_back, *given, **more)

    receiver._create_handler = create_and_convert
    receiver._mgmt_request_response = request_and_convert


def _convert_transfer(link: Any, take: Callable[[Any], None], convert: Callable[[bytes], bytes], frame: Any) -> None:
    if not frame[MORE]:
        whole = bytes(link._received_payload) + bytes(frame[PAYLOAD])
        link._received_payload = bytearray()
        frame[PAYLOAD] = memoryview(convert(whole))
    take(frame)
