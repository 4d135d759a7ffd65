"""A pair whose namespaces are reached over WebSockets and through an HTTP proxy: sends, an outage, and the way home."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage
from connect_proxy import ConnectProxy
from paired import Heard, PairHarness, wait_until
from served import Served

from twinbus import NamespaceSide
from twinbus.client.namespace import Namespace

WEBSOCKET = "TransportType=AmqpWebSockets"


def reached(served: Served, *ways: str, is_tls: bool) -> Namespace:
    text = served.connection_string.replace("UseDevelopmentEmulator=true", f"UseDevelopmentEmulator={not is_tls}")
    return Namespace.from_connection_string(";".join((text, *ways)))


@pytest.mark.filterwarnings("ignore:.*(ssl=None|BasicAuth|proxy_auth)")  # the SDK says it to its own library
@pytest.mark.parametrize("is_proxied", [False, True], ids=["straight", "proxied"])
def test_a_pair_over_websockets_sends_fails_over_and_brings_its_backlog_home(
    both: PairHarness, is_proxied: bool
) -> None:
    with ConnectProxy(user="me", password="p@ss") as proxy:
        ways = [WEBSOCKET, f"TwinbusProxy=http://me:p%40ss@127.0.0.1:{proxy.port}"][: 1 + is_proxied]
        # The SDK for asyncio asks a proxy for a connection only if there is TLS behind it.
        ends = [reached(side, *ways, is_tls=is_proxied) for side in (both.primary, both.secondary)]
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
