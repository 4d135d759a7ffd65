"""Ports for servers of tests that cannot choose one themselves."""

from __future__ import annotations

import socket

from twinbus.broker.net.ports import reserve_port

_reserved: list[socket.socket] = []


def free_port() -> int:
    """One that nobody else picks as long as this process lives, also while its server is away.

    It stays bound without listening. A server that is given it can take it: both let others bind it, too; servers that
    pick a port by chance do not share.
    """
    bound = reserve_port()
    assert bound is not None, "only Linux lets a server bind a reserved port"
    _reserved.append(bound)
    return int(bound.getsockname()[1])
