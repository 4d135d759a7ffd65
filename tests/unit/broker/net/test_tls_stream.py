"""TLS of one connection takes little memory, and gives it back when it fails."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl

import pytest

from twinbus.broker.net.tls_stream import accept_tls

NONSENSE = b"\x16\x03\x01\x00\x05hello"


async def test_a_handshake_that_fails_leaves_nothing_of_openssl_to_the_garbage_collector() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    gc.collect()
    gc.disable()
    try:
        before = handshakes()
        for _ in range(5):
            ours, theirs = socket.socketpair()
            with theirs:
                theirs.sendall(NONSENSE)
                ours.setblocking(False)
                with pytest.raises(OSError, match=r"(?i)ssl|tls"):
                    await accept_tls(ours, asyncio.Protocol(), context, handshake_s=60, shutdown_s=60)
                await asyncio.sleep(0)  # the end of the connection is reported in the next turn
        assert handshakes() == before
    finally:
        gc.enable()


def handshakes() -> int:
    return sum([isinstance(each, ssl.SSLObject) for each in gc.get_objects()])
