"""Ports for servers of tests that have to be told which to take."""

from __future__ import annotations

import socket

from twinbus.namespace.listener import bound_sockets


def free_port() -> int:
    """One that stays free, whatever other tests do meanwhile."""
    (bound,) = bound_sockets([(socket.AF_INET, ("127.0.0.1", 0))])
    with bound:
        return int(bound.getsockname()[1])
