"""What peers may take of a server: connections, time, memory and traffic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twinbus.amqp.limits import FRAME_BYTES_MIN, ConnectionLimits
from twinbus.ranges import check_ranges

_LARGE_BYTES = 16 * 1024 * 1024
"""By default, four messages of this size are kept for a peer."""
_REQUEST_BYTES = 64 * 1024
"""What a message to be scheduled may have around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Every bound that keeps one peer from using up what all of them need."""

    connections: int = 5_000
    """Of one namespace, of any protocol. Further ones are refused with a reason."""
    unauthenticated_connections: int = 1_000
    """Those of them that are not authenticated. Beyond that, the oldest one of the address that has most is closed, so
    that new ones get in."""
    unauthenticated_s: float = 20.0
    """From the first sign of a connection until it is open (AMQP), or its first request has arrived whole (HTTP)."""
    tls_handshake_s: float = 10.0
    unread_s: float = 60.0
    """How long a peer may take nothing while its output is piled up; then it is cut off."""
    http_idle_s: float = 75.0
    """From one answer over HTTP until the head of the next request has arrived whole."""
    frame_bytes: int = 65_536
    sessions: int = 1_024
    """Of one connection."""
    links: int = 4_096
    """Of one connection."""
    unauthenticated_bytes: int = 64 * 1024
    """What is kept for one unauthenticated peer; its connection is closed if it needs more."""
    unauthenticated_bytes_all: int = 64 * 1024 * 1024
    """The same for all of them together; beyond it, the connection that takes most is closed."""
    held_bytes: int = 64 * 1024 * 1024
    """What is kept for any other peer: unfinished messages, links, what waits for it to take it. Deliveries stop long
    before; a peer whose requests pile up more is disconnected."""
    held_bytes_all: int = 512 * 1024 * 1024

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES)

    def for_messages_of(self, message_bytes_max: int) -> ServerLimits:
        """The same, but enough is kept for a peer that sends and receives messages of this size."""
        if message_bytes_max <= _LARGE_BYTES:
            return self
        held_bytes = max(self.held_bytes, 4 * message_bytes_max)
        return replace(self, held_bytes=held_bytes, held_bytes_all=max(self.held_bytes_all, 4 * held_bytes))

    def of_a_connection(self, message_bytes_max: int) -> ConnectionLimits:
        """The part that the AMQP engine keeps, for peers that may send messages of this size."""
        usual = ConnectionLimits()
        return ConnectionLimits(
            message_bytes_max=max(usual.message_bytes_max, message_bytes_max + _REQUEST_BYTES),
            frame_bytes_max=self.frame_bytes,
            sessions_max=self.sessions,
            links_max=self.links,
        )


_DAY_S = 86_400
_RANGES: dict[str, tuple[float, float]] = {
    "connections": (1, 1_000_000),
    "unauthenticated_connections": (1, 1_000_000),
    "unauthenticated_s": (0.01, _DAY_S),
    "tls_handshake_s": (0.01, _DAY_S),
    "unread_s": (0.01, _DAY_S),
    "http_idle_s": (0.01, _DAY_S),
    "frame_bytes": (FRAME_BYTES_MIN, 2**24),
    "sessions": (1, 65_536),
    "links": (1, 1_000_000),
    "unauthenticated_bytes": (16 * 1024, 2**40),
    "unauthenticated_bytes_all": (16 * 1024, 2**40),
    "held_bytes": (64 * 1024, 2**40),
    "held_bytes_all": (64 * 1024, 2**40),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficLimits:
    """How much may be under way before a sender has to wait, and then is refused."""

    message_bytes_max: int = 256 * 1024
    batch_messages_max: int = 4_500
    """However small they are; a batch with more is refused as too large."""
    unwritten_bytes_per_connection: int = 8 * 1024 * 1024
    unwritten_bytes: int = 64 * 1024 * 1024
    """Accepted but not yet written, of all connections together. Above it no socket of a sender is read;
    at twice this senders get *server busy*."""
    sender_credit: int = 1_000

    def __post_init__(self) -> None:
        check_ranges(self, _TRAFFIC_RANGES)


_TRAFFIC_RANGES = {
    "message_bytes_max": (1024, 100 * 1024 * 1024),
    "batch_messages_max": (1, 1_000_000),
    "unwritten_bytes_per_connection": (1024, 2**40),
    "unwritten_bytes": (1024, 2**40),
    "sender_credit": (1, 1_000_000),
}
