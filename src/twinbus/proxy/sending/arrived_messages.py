"""Messages that an application sent through the proxy, as flows and the ledger use them."""

from __future__ import annotations

from functools import cached_property

from twinbus.broker.message import Arrival
from twinbus.pairing.sending.encoded_messages import pack_for_backlog


class ArrivedMessages:
    """One transfer of an application, or one request to schedule messages. They stay as they were encoded."""

    def __init__(self, arrivals: tuple[Arrival, ...], path: str, *, is_scheduled: bool = False) -> None:
        """`is_scheduled`: by a request, and not by the messages themselves."""
        self.arrivals = arrivals
        self.path = path
        self._is_scheduled = is_scheduled
        self._packed_sizes: tuple[int, ...] = ()

    @cached_property
    def message_ids(self) -> tuple[str, ...]:
        return ids_of(self.arrivals)

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return sizes_of(self.arrivals)

    @property
    def sizes_in_backlog(self) -> tuple[int, ...]:
        return self._packed_sizes or self.sizes

    @property
    def due_ms(self) -> tuple[int, ...]:
        return due_times(self.arrivals)

    @property
    def payloads(self) -> list[bytes]:
        return [arrival.payload for arrival in self.arrivals]

    @property
    def session_ids(self) -> frozenset[str | None]:
        return frozenset([arrival.session_id for arrival in self.arrivals])

    @property
    def has_order(self) -> bool:
        return not self._is_scheduled

    def batches(self, limit_bytes: int) -> tuple[tuple[bytes, ...], ...]:
        """In envelopes, packed; raises `ReservedProperty` or `TooLargeForDetour` before anything was sent."""
        batches = pack_for_backlog(self.payloads, self.path, limit_bytes)
        self._packed_sizes = tuple([len(message) for batch in batches for message in batch])
        return batches


def ids_of(arrivals: tuple[Arrival, ...]) -> tuple[str, ...]:
    return tuple([arrival.message_id or "" for arrival in arrivals])


def sizes_of(arrivals: tuple[Arrival, ...]) -> tuple[int, ...]:
    return tuple([len(arrival.payload) for arrival in arrivals])


def due_times(arrivals: tuple[Arrival, ...]) -> tuple[int, ...]:
    """When each message is to be enqueued: UTC ms, 0 for at once. Empty: all of them at once."""
    due = tuple([arrival.due_at_ms or 0 for arrival in arrivals])
    return due if any(due) else ()
