"""A namespace that takes TLS only: a plain connection is refused with the reason, and sends no password."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError
from proton import ConnectionException, SSLDomain
from proton import Message as ProtonMessage
from proton.utils import BlockingConnection

from twinbus.amqp.codec.frames import SASL_HEADER
from twinbus.broker.net.certificates import temporary_identity
from twinbus.broker.server import NamespaceServer
from twinbus.client.namespace import Namespace
from twinbus.connection_string import ROOT_KEY_NAME, ConnectionString
from twinbus.options import NamespaceOptions

WAIT_S = 40
TOLD = "over TLS only"


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[NamespaceServer]:
    async with NamespaceServer(
        NamespaceOptions(**{"name": "contoso", "port": 0, "queues": ("orders",), "tls_only": True, **options})
    ) as server:
        yield server


def plain_string(server: NamespaceServer) -> str:
    return f"{server.connection_string};UseDevelopmentEmulator=true"


async def test_the_printed_string_leads_over_tls_and_a_plain_one_is_refused_with_the_reason() -> None:
    def send(text: str) -> None:
        with Namespace.from_connection_string(text).sync_client(WAIT_S) as client:
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("42"))

    def send_plain(text: str) -> None:
        with (
            ServiceBusClient.from_connection_string(text, retry_total=0) as client,
            pytest.raises(ServiceBusError, match=TOLD),
        ):
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("42"))

    async with serving() as server:
        assert "UseDevelopmentEmulator" not in server.connection_string
        await asyncio.to_thread(send, server.connection_string)
        await asyncio.to_thread(send_plain, plain_string(server))


async def test_the_official_client_connects_over_tls_on_any_port_if_configured() -> None:
    def send(server: NamespaceServer) -> None:
        with ServiceBusClient.from_connection_string(
            server.connection_string,
            custom_endpoint_address=f"sb://127.0.0.1:{server.port}",
            transport_type=TransportType.Amqp,
            connection_verify=str(server.ca_file),
        ) as client:
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("42"))

    async with serving() as server:
        await asyncio.to_thread(send, server)


async def test_proton_sends_over_tls_and_is_refused_without() -> None:
    def send(server: NamespaceServer) -> None:
        trusting = SSLDomain(SSLDomain.MODE_CLIENT)
        trusting.set_trusted_ca_db(str(server.ca_file))
        trusting.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
        tls = BlockingConnection(
            f"amqps://localhost:{server.port}",
            timeout=WAIT_S,
            ssl_domain=trusting,
            user=ROOT_KEY_NAME,
            password=server.key,
            allowed_mechs="PLAIN",
        )
        tls.create_sender("orders").send(ProtonMessage(body="42"))
        tls.close()
        with pytest.raises(ConnectionException, match=TOLD):
            BlockingConnection(f"amqp://127.0.0.1:{server.port}", timeout=WAIT_S, allowed_mechs="ANONYMOUS")

    async with serving() as server:
        await asyncio.to_thread(send, server)


async def test_nobody_is_asked_for_a_password_in_clear() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(SASL_HEADER)
        async with asyncio.timeout(WAIT_S):
            await reader.readexactly(len(SASL_HEADER))
            size = await reader.readexactly(4)
            offered = await reader.readexactly(int.from_bytes(size) - 4)
        assert b"ANONYMOUS" in offered
        assert b"PLAIN" not in offered
        writer.close()


async def test_http_in_clear_is_refused_whatever_its_credentials() -> None:
    def ask(server: NamespaceServer) -> None:
        client = HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
        client.request("GET", "/orders", headers={"Authorization": "whatever"})
        answer = client.getresponse()
        assert answer.status == 403
        assert TOLD in answer.read().decode()
        client.close()

    async with serving() as server:
        await asyncio.to_thread(ask, server)


@pytest.mark.parametrize(("host", "tls_only"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
async def test_tls_is_demanded_as_soon_as_other_machines_can_connect(host: str, tls_only: bool) -> None:
    async with serving(host=host, tls_only=None) as server:
        assert server.is_tls_only is tls_only


async def test_to_do_without_is_allowed_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with serving(host="0.0.0.0", tls_only=False) as server:
            assert not server.is_tls_only
    assert "can be reached from other machines without TLS" in caplog.text


async def test_with_a_given_certificate_the_string_has_a_host_that_it_names(tmp_path: Path) -> None:
    identity = temporary_identity(tmp_path, frozenset({"bus.example", "127.0.0.1"}), datetime.now(UTC))
    async with serving(host="0.0.0.0", tls_only=None, cert=identity.certificate, key_file=identity.key) as server:
        assert ConnectionString.parse(server.connection_string).host == "bus.example"
