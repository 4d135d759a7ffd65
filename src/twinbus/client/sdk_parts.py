"""The private parts of the official SDK that the paired client uses: imported here only, and checked before use.

Nothing promises that they stay. A version without them is refused with what to install; a version that has them but was
not tested is used with a warning.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from typing import Any, NoReturn

from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient

from twinbus.errors import TwinbusError

__all__ = [
    "AMQPConnectionError",
    "AMQPLinkError",
    "AuthenticationException",
    "BatchMessage",
    "MessageDeliveryState",
    "MessageException",
    "PyamqpTransportAsync",
    "TokenAuthFailure",
    "TokenExpired",
    "_convert_to_single_service_bus_message",
    "check_sdk",
    "decode_payload",
    "encode_payload",
    "is_tracing_enabled",
    "trace_message",
    "version_warning",
]

PACKAGE = "azure-servicebus"
TESTED_FIRST, TESTED_END = (7, 15), (7, 16)
"""The tests of twinbus have run with versions from the first on, and before the other; pyproject.toml says the same."""
TESTED = "7.15"
RANGE = "azure-servicebus>=7.15,<7.16"
_NOWHERE = "Endpoint=sb://nowhere.example;SharedAccessKeyName=none;SharedAccessKey=bm9uZQ=="
_OF_CLIENT = ("_handlers", "_config")
_OF_RECEIVER = ("_create_handler", "_mgmt_request_response")
_OF_SENDER = ("_running", "_handler", "_max_batch_size_on_link", "_create_handler", "_open")


def installed() -> str:
    """The version of the SDK that is installed."""
    return version(PACKAGE)


def refuse(missing: str) -> NoReturn:
    raise TwinbusError(
        f"{PACKAGE} {installed()} cannot be used: it has no {missing}, which twinbus needs. Tested is {TESTED}: "
        f'pip install "{RANGE}", or a newer twinbus'
    )


try:
    from azure.servicebus._common.tracing import is_tracing_enabled, trace_message
    from azure.servicebus._common.utils import _convert_to_single_service_bus_message
    from azure.servicebus._pyamqp._connection import Connection
    from azure.servicebus._pyamqp._decode import decode_payload
    from azure.servicebus._pyamqp._encode import encode_payload
    from azure.servicebus._pyamqp.aio._client_async import SendClientAsync
    from azure.servicebus._pyamqp.aio._connection_async import Connection as AioConnection
    from azure.servicebus._pyamqp.client import ReceiveClient, SendClient
    from azure.servicebus._pyamqp.constants import MessageDeliveryState
    from azure.servicebus._pyamqp.error import (
        AMQPConnectionError,
        AMQPLinkError,
        AuthenticationException,
        MessageException,
        TokenAuthFailure,
        TokenExpired,
    )
    from azure.servicebus._pyamqp.message import BatchMessage
    from azure.servicebus._pyamqp.receiver import ReceiverLink
    from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
except ImportError as error:
    refuse(str(error))


@cache
def check_sdk() -> None:
    """Raise `TwinbusError` if a private part is missing, or is not what it was; asked once."""
    missing = list(_missing_parts())
    if missing:
        refuse(", no ".join(missing))


def version_warning() -> str | None:
    """What to say about a version that nobody has tested."""
    found = installed()
    if TESTED_FIRST <= _numbers(found) < TESTED_END:
        return None
    return (
        f"{PACKAGE} {found} was not tested with this twinbus, which uses private parts of it; tested is {TESTED}: "
        f'pip install "{RANGE}", or run the tests of twinbus with it'
    )


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, e.g. (7, 16, 0) of 7.16.0b1."""
    numbers: list[int] = []
    for part in text.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _missing_parts() -> Iterator[str]:
    for made in (ServiceBusClient, AioServiceBusClient):
        client: Any = made.from_connection_string(_NOWHERE)  # connects to nobody
        yield from _missing(client, _OF_CLIENT)
        yield from _missing(client.get_queue_sender("nowhere"), _OF_SENDER)
        yield from _missing(client.get_queue_receiver("nowhere"), _OF_RECEIVER)
    yield from _missing(SendClient, ("client_ready", "close", "_transfer_message", "_keep_alive"))
    yield from _missing(SendClientAsync, ("client_ready_async", "close_async", "_transfer_message_async"))
    yield from _missing(SendClientAsync, ("_keep_alive_async",))
    yield from _missing(ReceiveClient, ("_client_ready",))
    yield from _missing(ReceiverLink, ("_incoming_transfer",))
    for connection in (Connection, AioConnection):
        yield from _missing(connection, ("_incoming_open",))
        parameters = list(inspect.signature(getattr(connection, "_incoming_open", refuse)).parameters)
        if parameters[1:] != ["channel", "frame"]:
            yield f"{connection.__module__}.Connection._incoming_open(channel, frame)"


def _missing(owner: Any, names: tuple[str, ...]) -> Iterator[str]:
    name = owner.__qualname__ if isinstance(owner, type) else type(owner).__qualname__
    yield from (f"{name}.{each}" for each in names if not hasattr(owner, each))
