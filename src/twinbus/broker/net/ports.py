"""Sockets bound to a port, and which port: one that stays free while nobody listens on it."""

from __future__ import annotations

import errno
import random
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

FIRST, LAST = 10_240, 65_535
ENOUGH = 1_000
"""To choose from: fewer are soon all taken."""
SYSTEM_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_RANGE = 32_768, LAST
PORT_TRIES = 8

Address: TypeAlias = tuple[int, Any]
"""A family and what `bind` takes for it."""


def lasting_port() -> int:
    """A random port outside the range from which the system picks ports; 0 if that range leaves too few.

    So a namespace that is killed finds it free when it comes back.
    """
    low, high = _system_range()
    outside = [*range(FIRST, min(low, LAST + 1)), *range(max(high + 1, FIRST), LAST + 1)]
    return random.choice(outside) if len(outside) >= ENOUGH else 0  # noqa: S311  # not a secret


def ports_to_try(asked: int) -> Iterator[int]:
    """The port that is asked for; if that is 0, several, and at last those of the system's own choice."""
    if asked:
        yield asked
        return
    for _ in range(PORT_TRIES):
        yield lasting_port()
    for _ in range(PORT_TRIES):
        yield 0


def _system_range() -> tuple[int, int]:
    try:
        low, high = map(int, SYSTEM_RANGE.read_text().split())
    except (OSError, ValueError):  # not Linux, or a sandbox that hides it
        return USUAL_RANGE
    return low, high


def bind_sockets(addresses: Sequence[Address]) -> list[socket.socket]:
    """A socket for each of these addresses, bound and not listening. All have the same port, also when 0 picks it."""
    problem: OSError | None = None
    asked = addresses[0][1][1]
    for port in ports_to_try(asked):
        try:
            named = [(family, (host, port, *rest)) for family, (host, _, *rest) in addresses]
            return _bind_all(named, is_shared=asked != 0)
        except OSError as error:
            problem = error
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                break
    assert problem is not None, "there is at least one port to try"
    raise problem


def reserve_port() -> socket.socket | None:
    """Bind a port of 127.0.0.1 without listening, so that no other process takes it while its server is away.

    A server can bind it as well. None where the system allows only one socket per port.
    """
    if sys.platform != "linux":
        return None
    (bound,) = bind_sockets([(socket.AF_INET, ("127.0.0.1", 0))])
    let_restarts_in(bound)
    return bound


def let_restarts_in(sock: socket.socket) -> None:
    """Let another process bind this port while our old connections still end; they inherit this option."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _bind_all(addresses: Sequence[Address], *, is_shared: bool) -> list[socket.socket]:
    made: list[socket.socket] = []
    port = addresses[0][1][1]
    try:
        for family, (host, _, *rest) in dict.fromkeys(addresses):
            sock = _bind(family, (host, port, *rest), may_be_absent=bool(made), is_shared=is_shared)
            if sock is not None:
                made.append(sock)
                port = sock.getsockname()[1]
    except BaseException:
        for sock in made:
            sock.close()
        raise
    return made


def _bind(family: int, address: Any, *, may_be_absent: bool, is_shared: bool) -> socket.socket | None:
    """A socket on this address; None for one that `may_be_absent` and is, as the IPv6 address of localhost can be.

    `is_shared`: others may bind it as well, until one of them listens. Not needed for a port that nobody asked for.
    """
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if is_shared:
            let_restarts_in(sock)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        if may_be_absent and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise
    return sock
