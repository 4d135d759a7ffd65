"""The meter: every operation counted per entity and kind, as a bill would count it.

An operation is one message sent, one delivered, one settled, one grant of credit, one request. Its size is counted in
bytes and in steps of 64 KB, at least one each: a message of 96 KB is two steps. A grant is the AMQP form of a receive
call: a receiver that waits and renews its credit every 15 minutes makes four an hour, whether messages come or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from twinbus.broker.message import Arrival

STEP_BYTES = 64 * 1024
ENTITIES_MAX = 20_000
OTHERS = "(others)"
"""Where entities beyond the bound are counted together."""


class Metered(Enum):
    SEND = "send"
    RECEIVE_GRANT = "receive-grant"
    DELIVERY = "delivery"
    SETTLE = "settle"
    RENEW = "renew"
    PEEK = "peek"
    MANAGE = "manage"
    PING = "ping"
    FORWARD = "forward"


class Reading(NamedTuple):
    entity: str
    kind: Metered
    operations: int
    size: int
    steps: int


class Meter:
    def __init__(self) -> None:
        self._counts: dict[tuple[str, Metered], list[int]] = {}
        self._entities: set[str] = set()

    def count(self, kind: Metered, entity: str, size: int = 0, operations: int = 1) -> None:
        """Count operations of the same size. `entity` is a path in lower case; empty for the namespace itself."""
        counts = self._counts.get((entity, kind))
        if counts is None:
            counts = self._first_count(kind, entity)
        counts[0] += operations
        counts[1] += size * operations
        counts[2] += operations if size <= STEP_BYTES else operations * -(-size // STEP_BYTES)

    def count_each(self, kind: Metered, entity: str, sizes: Sequence[int]) -> None:
        """Count one operation for each of these sizes."""
        if not sizes:
            return
        counts = self._counts.get((entity, kind))
        if counts is None:
            counts = self._first_count(kind, entity)
        counts[0] += len(sizes)
        counts[1] += sum(sizes)
        counts[2] += len(sizes) if max(sizes) <= STEP_BYTES else sum([max(1, -(-size // STEP_BYTES)) for size in sizes])

    def count_sends(self, entity: str, arrivals: Iterable[Arrival]) -> None:
        """Count messages that were stored, and pings."""
        sizes: dict[bool, list[int]] = {False: [], True: []}
        for arrival in arrivals:
            sizes[arrival.is_ping].append(len(arrival.payload))
        self.count_each(Metered.SEND, entity, sizes[False])
        self.count_each(Metered.PING, entity, sizes[True])

    def _first_count(self, kind: Metered, entity: str) -> list[int]:
        if entity not in self._entities and len(self._entities) >= ENTITIES_MAX:
            entity = OTHERS
        self._entities.add(entity)
        return self._counts.setdefault((entity, kind), [0, 0, 0])

    def readings(self) -> list[Reading]:
        """What was counted since the start, by entity and kind."""
        found = [Reading(entity, kind, *counts) for (entity, kind), counts in self._counts.items()]
        return sorted(found, key=lambda reading: (reading.entity, reading.kind.value))
