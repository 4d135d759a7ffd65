"""Limits of one connection: they keep a peer from using up memory."""

from __future__ import annotations

from dataclasses import dataclass

from twinbus.ranges import check_ranges

FRAME_BYTES_MIN = 512
"""Every AMQP peer accepts frames of this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of one connection; the first four are sent to the peer."""

    frame_bytes_max: int = 65_536
    sessions_max: int = 1024
    links_per_session_max: int = 1024
    incoming_window: int = 5000
    """Transfer frames a session accepts before it sends another flow."""
    links_max: int = 4096
    """Links of all sessions together."""
    message_bytes_max: int = 1024 * 1024 + 64 * 1024
    """A larger delivery is not kept: it is rejected when its last frame arrives."""
    held_bytes_max: int = 64 * 1024 * 1024
    """Memory held for the peer, see `peer_memory`; more closes the connection. Not used if an account is given."""
    elements_max: int = 50_000
    """Values in one frame that is not a transfer."""
    unsettled_max: int = 65_536
    """Unsettled deliveries of a sending link; it gets no credit beyond them."""
    close_wait_ms: int = 10_000
    """How long to wait for the peer's answer to our close."""

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES)


_UINT_MAX = 2**32 - 1
_RANGES = {
    "frame_bytes_max": (FRAME_BYTES_MIN, _UINT_MAX),
    "sessions_max": (1, 65_536),
    "links_per_session_max": (1, _UINT_MAX),
    "incoming_window": (2, 2**31 - 1),
    "links_max": (1, _UINT_MAX),
    "message_bytes_max": (1, _UINT_MAX),
    "held_bytes_max": (1, 2**40),
    "elements_max": (100, 2**31),
    "unsettled_max": (1, 2**31 - 1),
    "close_wait_ms": (0, _UINT_MAX),
}
