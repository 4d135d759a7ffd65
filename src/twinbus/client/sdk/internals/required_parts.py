"""Which private parts of the SDK are needed, whether the installed version has them, and whether it was tested."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from typing import Any, NoReturn

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceiver
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient
from azure.servicebus.aio import ServiceBusReceiver as AioServiceBusReceiver

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
    "check_sdk",
    "convert_to_message",
    "decode_payload",
    "encode_payload",
    "is_tracing_enabled",
    "trace_message",
    "version_warning",
]

PACKAGE = "azure-servicebus"
OLDEST, NEWEST = (7, 15), (7, 15)
"""The tests of twinbus run with the first release of the one and the last of the other (`make test-sdk-versions`).

7.14 and older lack `set_batch_envelope_properties`, and their administration client does not trust the certificates of
an embedded namespace.
"""
RANGE = "azure-servicebus>=7.15,<7.16"
"""As in pyproject.toml."""
_NOWHERE = "Endpoint=sb://nowhere.example;SharedAccessKeyName=none;SharedAccessKey=bm9uZQ=="
_OF_CLIENT = ("_handlers", "_config")
_OF_RECEIVER = ("_create_handler", "_mgmt_request_response", "_open", "_receive_mode")
_OF_SENDER = ("_running", "_handler", "_max_batch_size_on_link", "_create_handler", "_open")


def installed() -> str:
    """The version of the SDK that is installed."""
    return version(PACKAGE)


_SUPPORTED = " to ".join(dict.fromkeys(".".join(map(str, each)) for each in (OLDEST, NEWEST)))


def refuse(missing: str) -> NoReturn:
    raise TwinbusError(
        f"{PACKAGE} {installed()} cannot be used: it has no {missing}, which twinbus needs. Supported is "
        f'{_SUPPORTED}: pip install "{RANGE}", or a newer twinbus'
    )


try:
    from azure.servicebus._common.tracing import is_tracing_enabled, trace_message
    from azure.servicebus._common.utils import _convert_to_single_service_bus_message as convert_to_message
    from azure.servicebus._pyamqp._connection import Connection
    from azure.servicebus._pyamqp._decode import decode_payload
    from azure.servicebus._pyamqp._encode import encode_payload
    from azure.servicebus._pyamqp.aio._cbs_async import CBSAuthenticator as AioCBSAuthenticator
    from azure.servicebus._pyamqp.aio._client_async import SendClientAsync
    from azure.servicebus._pyamqp.aio._connection_async import Connection as AioConnection
    from azure.servicebus._pyamqp.cbs import CBSAuthenticator
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
    """What to say about a version that is not supported; None if it is."""
    found = installed()
    if OLDEST <= _numbers(found)[:2] <= NEWEST:
        return None
    return (
        f"{PACKAGE} {found} was not tested with this twinbus, which uses private parts of it; supported is "
        f'{_SUPPORTED}: pip install "{RANGE}", or run the tests of twinbus with it'
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
        client: Any = made.from_connection_string(_NOWHERE)  # connects to nothing
        yield from _missing(client, _OF_CLIENT)
        yield from _missing(client.get_queue_sender("nowhere"), _OF_SENDER)
        yield from _missing(client.get_queue_receiver("nowhere"), _OF_RECEIVER)
    yield from _missing(PyamqpTransportAsync, ("set_batch_envelope_properties", "to_outgoing_amqp_message"))
    yield from _missing(ServiceBusReceiver, ("_inner_next",))
    yield from _missing(AioServiceBusReceiver, ("_inner_anext",))
    yield from _missing(ServiceBusMessageBatch(1), ("_add", "_message", "_size", "_count", "_max_size_in_bytes"))
    yield from _missing(ServiceBusMessage("").raw_amqp_message, ("_data_body", "_sequence_body", "_value_body"))
    yield from _missing(SendClient, ("client_ready", "close", "_transfer_message", "_keep_alive"))
    yield from _missing(SendClientAsync, ("client_ready_async", "close_async", "_transfer_message_async"))
    yield from _missing(SendClientAsync, ("_keep_alive_async",))
    yield from _missing(ReceiveClient, ("_client_ready",))
    yield from _missing(ReceiverLink, ("_incoming_transfer",))
    for authenticator in (CBSAuthenticator, AioCBSAuthenticator):
        yield from _missing(authenticator, ("_on_execute_operation_complete",))
    for connection in (Connection, AioConnection):
        yield from _missing(connection, ("_incoming_open",))
        parameters = list(inspect.signature(getattr(connection, "_incoming_open", refuse)).parameters)
        if parameters[1:] != ["channel", "frame"]:
            yield f"{connection.__module__}.Connection._incoming_open(channel, frame)"


def _missing(owner: Any, names: tuple[str, ...]) -> Iterator[str]:
    name = owner.__qualname__ if isinstance(owner, type) else type(owner).__qualname__
    yield from (f"{name}.{each}" for each in names if not hasattr(owner, each))
