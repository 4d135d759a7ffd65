"""The official Python clients over WebSocket, to a namespace and through a proxy: over TLS and without."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.exceptions import ServiceBusConnectionError
from local_proxy import LocalProxy

from twinbus.connection_string import ConnectionString
from twinbus.testing import LocalNamespace

WAIT_S = 30
LARGE = "x" * 200_000


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", data=tmp_path_factory.mktemp("contoso")) as running:
        for name in ("orders", "proxied"):
            running.create_queue(name)
        yield running


def options_for(connection_string: str, *, is_tls: bool) -> tuple[str, dict[str, Any]]:
    """How the official client is told the port of a WebSocket: by another address than that of its string."""
    said = ConnectionString.parse(connection_string)
    options: dict[str, Any] = {
        "transport_type": TransportType.AmqpOverWebsocket,
        "custom_endpoint_address": f"sb://{said.host}:{said.port}",
        "retry_total": 0,
    }
    if not is_tls:
        return connection_string, options
    options["connection_verify"] = str(said.ca_file)
    return connection_string.replace("UseDevelopmentEmulator=true", "UseDevelopmentEmulator=false"), options


def send_and_receive(connection_string: str, options: dict[str, Any], queue: str) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(connection_string, **options) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, max_wait_time=WAIT_S) as receiver,
    ):
        sender.send_messages([ServiceBusMessage("42"), ServiceBusMessage("43")])
        sender.send_messages(ServiceBusMessage(LARGE))
        got: list[str] = []
        while len(got) < 3:
            for message in receiver.receive_messages(3, max_wait_time=WAIT_S):
                got.append(str(message))
                receiver.complete_message(message)
        return got


@pytest.mark.parametrize("is_tls", [False, True])
def test_the_client_on_threads_sends_and_receives(namespace: LocalNamespace, is_tls: bool) -> None:
    text, options = options_for(namespace.connection_string, is_tls=is_tls)
    assert send_and_receive(text, options, "orders") == ["42", "43", LARGE]


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated")  # the client says it to its own library
@pytest.mark.parametrize("is_tls", [False, True])
async def test_the_client_on_tasks_sends_and_receives(namespace: LocalNamespace, is_tls: bool) -> None:
    text, options = options_for(namespace.connection_string, is_tls=is_tls)
    async with AioClient.from_connection_string(text, **options) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages([ServiceBusMessage("42"), ServiceBusMessage(LARGE)])
        async with client.get_queue_receiver("orders", max_wait_time=WAIT_S) as receiver:
            got: list[str] = []
            while len(got) < 2:
                for message in await receiver.receive_messages(2, max_wait_time=WAIT_S):
                    got.append(str(message))
                    await receiver.complete_message(message)
    assert got == ["42", LARGE]


def test_through_a_proxy_it_is_the_same(namespace: LocalNamespace) -> None:
    with LocalNamespace("backup") as secondary:
        strings = namespace.connection_string, secondary.connection_string
        with LocalProxy(*strings, backlog_queue_count=1, primary_name="contoso") as proxy:
            text, options = options_for(proxy.connection_string, is_tls=False)
            assert send_and_receive(text, options, "proxied") == ["42", "43", LARGE]


def test_a_wrong_key_is_refused(namespace: LocalNamespace) -> None:
    text, options = options_for(namespace.connection_string, is_tls=False)
    said = ConnectionString.parse(text)
    with (
        ServiceBusClient.from_connection_string(text.replace(said.key, "d3Jvbmc="), **options) as client,
        pytest.raises(ServiceBusConnectionError),  # so the client says if it was given another address
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("42"))


@pytest.mark.parametrize("how", ["refuse", "drop"])
def test_an_unreachable_namespace_is_a_connection_error(tmp_path: Path, how: str) -> None:
    with LocalNamespace("contoso", data=tmp_path) as away, contextlib.ExitStack() as stack:
        away.create_queue("orders")
        text, options = options_for(away.connection_string, is_tls=False)
        client = stack.enter_context(ServiceBusClient.from_connection_string(text, **options))
        away.faults.add("unreachable", how=how)
        with pytest.raises(ServiceBusConnectionError), client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("42"))
        away.faults.clear()
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("43"))
