"""TLS for one accepted connection, in little memory.

asyncio gives each TLS connection 256 KiB to read into, and lets twice that wait while the input is not read. That is
too much for peers that have only done a TLS handshake: a thousand of them would take 275 MB.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import sslproto

READ_BYTES = 32 * 1024
"""Two of the largest records of TLS."""


class SmallTls(sslproto.SSLProtocol):
    max_size = READ_BYTES

    def _set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        super()._set_read_buffer_limits(high or READ_BYTES, low)  # type: ignore[misc] # not in the stubs

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give back what OpenSSL holds now: what is left of the connection may wait for the garbage collector."""
        super().connection_lost(exc)
        self._sslobj = None
        self._incoming = self._outgoing = ssl.MemoryBIO()
        self._ssl_buffer = bytearray()
        self._ssl_buffer_view = memoryview(self._ssl_buffer)


async def accept_tls(
    sock: socket.socket, protocol: asyncio.Protocol, context: ssl.SSLContext, *, handshake_s: float, shutdown_s: float
) -> None:
    """Do the TLS handshake, then connect `protocol`; raises `OSError` if it fails or takes too long."""
    loop = asyncio.get_running_loop()
    handshake: asyncio.Future[object] = loop.create_future()
    tls = SmallTls(
        loop,
        protocol,
        context,
        handshake,
        server_side=True,
        ssl_handshake_timeout=handshake_s,  # type: ignore[arg-type] # the stubs forget fractions
        ssl_shutdown_timeout=shutdown_s,
    )
    transport, _ = await loop.connect_accepted_socket(lambda: tls, sock)
    try:
        await handshake
    except OSError as error:
        transport.close()
        problem = str(error)
        error.__traceback__ = error.__context__ = None  # their frames hold everything that the handshake used
    except BaseException:
        transport.close()
        raise
    else:
        return
    raise OSError(problem)
