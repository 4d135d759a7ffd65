"""A pair whose namespaces are reached over WebSockets and through an HTTP proxy: sends, an outage, and the way home."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.management import ServiceBusAdministrationClient
from connect_proxy import ConnectProxy
from local_proxy import LocalProxy
from paired import Heard, PairHarness, wait_until
from served import Served

from twinbus import NamespaceSide
from twinbus.client.namespace import Namespace

WEBSOCKET = "TransportType=AmqpWebSockets"


# What the SDK says to its own library:
pytestmark = pytest.mark.filterwarnings("ignore:.*(ssl=None|BasicAuth|proxy_auth)")


def written(served: Served, *ways: str, is_tls: bool) -> str:
    text = served.connection_string.replace("UseDevelopmentEmulator=true", f"UseDevelopmentEmulator={not is_tls}")
    return ";".join((text, *ways))


@pytest.mark.parametrize("is_proxied", [False, True], ids=["straight", "proxied"])
def test_a_pair_over_websockets_sends_fails_over_and_brings_its_backlog_home(
    both: PairHarness, is_proxied: bool
) -> None:
    with ConnectProxy(user="me", password="p@ss") as proxy:
        ways = [WEBSOCKET, f"TwinbusProxy=http://me:p%40ss@127.0.0.1:{proxy.port}"][: 1 + is_proxied]
        # The SDK for asyncio asks a proxy for a connection only if there is TLS behind it.
        sides = both.primary, both.secondary
        ends = [Namespace.from_connection_string(written(side, *ways, is_tls=is_proxied)) for side in sides]
        with both.client_of(ends[0], ends[1], enable_syphon=True) as bus, bus.get_queue_sender(both.orders) as sender:
            heard = Heard(bus)
            assert sender.send_messages(ServiceBusMessage("one")).side is NamespaceSide.PRIMARY
            fault = both.primary.break_("unreachable", how="drop")
            assert sender.send_messages(ServiceBusMessage("two")).side is NamespaceSide.BACKLOG
            heard.wait_for("failed_over")
            both.primary.clear(fault)
            wait_until(lambda: sorted(both.primary.texts(both.orders)) == ["one", "two"])
            wait_until(lambda: sender.send_messages(ServiceBusMessage("three")).side is NamespaceSide.PRIMARY)
        asked = set(proxy.asked)
    expected = {f"{end.host}:{end.port}" for end in ends}
    assert asked == (expected if is_proxied else set())
    assert both.in_backlog() == []


def test_twinbus_proxy_goes_over_websockets_and_through_an_http_proxy(harness: PairHarness) -> None:
    with ConnectProxy(user="me", password="p@ss") as gate:
        ways = WEBSOCKET, f"TwinbusProxy=http://me:p%40ss@127.0.0.1:{gate.port}"
        strings = [written(side, *ways, is_tls=True) for side in (harness.primary, harness.secondary)]
        with (
            LocalProxy(
                *strings, primary_name=harness.name, backlog_queue_count=1, failover_interval=timedelta(0)
            ) as proxy,
            ServiceBusClient.from_connection_string(proxy.connection_string) as bus,
            ServiceBusAdministrationClient.from_connection_string(
                proxy.connection_string, connection_verify=str(proxy.server.ca_file)
            ) as admin,
            bus.get_queue_sender(harness.orders) as sender,
            bus.get_queue_receiver(harness.orders, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver,
        ):
            sender.send_messages(ServiceBusMessage("one"))
            assert [str(message) for message in receiver.receive_messages(max_wait_time=30)] == ["one"]
            assert admin.get_queue(harness.orders).name == harness.orders
            harness.primary.break_("unreachable", how="drop")
            sender.send_messages(ServiceBusMessage("two"))
        asked = set(gate.asked)
    assert asked == {f"127.0.0.1:{side.port}" for side in (harness.primary, harness.secondary)}
    assert harness.backlog_texts(1) == ["two"]
