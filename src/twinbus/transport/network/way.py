"""The way to a peer: straight or through an HTTP proxy, with TLS or without, as AMQP or inside a WebSocket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twinbus.transport.network.http_tunnel import joined, open_tunnel
from twinbus.transport.network.websocket_client import WebSocketClient

if TYPE_CHECKING:
    from twinbus.transport.dial import Dial


async def connect(dial: Dial, stream: asyncio.Protocol) -> None:
    """Connect the stream to the peer. Raises `OSError`; leaves nothing behind if it fails or is cancelled."""
    if dial.connect is not None:
        await dial.connect(lambda: stream)
        return
    websocket = WebSocketClient(stream, _host_header(dial)) if dial.over_websocket else None
    protocol = stream if websocket is None else websocket
    transport = await (_connect_straight(dial, protocol) if dial.proxy is None else _connect_by_proxy(dial, protocol))
    if websocket is not None:
        try:
            await websocket.upgraded
        except BaseException:
            transport.abort()
            raise


async def _connect_straight(dial: Dial, protocol: asyncio.Protocol) -> asyncio.Transport:
    transport, _ = await asyncio.get_running_loop().create_connection(
        lambda: protocol, dial.host, dial.port, ssl=dial.tls, server_hostname=_certified_name(dial)
    )
    return transport


async def _connect_by_proxy(dial: Dial, protocol: asyncio.Protocol) -> asyncio.Transport:
    assert dial.proxy is not None
    transport = await open_tunnel(dial.proxy, dial.host, dial.port)
    if dial.tls is None:
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.resume_reading()
        return transport
    try:
        found = await asyncio.get_running_loop().start_tls(
            transport, protocol, dial.tls, server_hostname=_certified_name(dial)
        )
    except BaseException:
        transport.abort()
        raise
    if found is None:
        raise ConnectionResetError(f"{dial.host} closed the connection in the TLS handshake")
    protocol.connection_made(found)
    return found


def _certified_name(dial: Dial) -> str | None:
    return None if dial.tls is None else dial.server_hostname or dial.hostname or dial.host


def _host_header(dial: Dial) -> str:
    usual = 80 if dial.tls is None else 443
    return joined(dial.host, dial.port).removesuffix(f":{usual}")
