"""Throttling: the thresholds above which a namespace answers *server busy* (S3), with the hint to wait 10 seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from twinbus.broker.faults.effects import ATTACHING, REQUESTS
from twinbus.broker.faults.scope import entity_of
from twinbus.broker.operations import Operation
from twinbus.errors import OptionsError, ServerBusy

ENTITIES_REMEMBERED = 10_000
WAIT_AND_RETRY = "wait 10 seconds and try again"


class Bucket:
    """A token bucket: `per_second` operations a second, at most one second's worth at once."""

    __slots__ = ("_at_ms", "_capacity", "_level", "per_second")

    def __init__(self, per_second: float, now_ms: int) -> None:
        self.per_second = per_second
        self._capacity = max(1.0, per_second) if per_second > 0 else 0.0
        self._level = self._capacity
        self._at_ms = now_ms

    def has_room(self, now_ms: int) -> bool:
        if now_ms > self._at_ms:
            self._level = min(self._capacity, self._level + (now_ms - self._at_ms) * self.per_second / 1000)
            self._at_ms = now_ms
        return self._level >= 1

    def take(self) -> None:
        """Count one operation; only after `has_room`."""
        self._level -= 1

    @property
    def is_full(self) -> bool:
        return self._level >= self._capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleLimits:
    """Thresholds of a namespace; None: no threshold."""

    operations_per_second: float | None = None
    """All entities together."""
    entity_operations_per_second: float | None = None
    """Each entity on its own."""
    partitioned_factor: float = 4.0
    """How many times the entity threshold a partitioned entity has."""
    connections: int | None = None
    unwritten_bytes: int | None = None
    """Accepted and not yet on disk."""
    memory_bytes: int | None = None
    """Memory of the whole process. Above it, no messages are accepted."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be above 0, got {value!r}"
            for name, value in (
                ("operations_per_second", self.operations_per_second),
                ("entity_operations_per_second", self.entity_operations_per_second),
                ("connections", self.connections),
                ("unwritten_bytes", self.unwritten_bytes),
                ("memory_bytes", self.memory_bytes),
            )
            if value is not None and not (value > 0 and math.isfinite(value))
        ]
        if not (self.partitioned_factor >= 1 and math.isfinite(self.partitioned_factor)):
            problems.append(f"partitioned_factor must be 1 or more, got {self.partitioned_factor!r}")
        OptionsError.raise_for(problems)

    @property
    def limits_operations(self) -> bool:
        return self.operations_per_second is not None or self.entity_operations_per_second is not None


class Throttle:
    def __init__(self, limits: ThrottleLimits, is_partitioned: Callable[[str], bool] | None = None) -> None:
        """`is_partitioned`: whether an entity (lower-case path) has the higher threshold; None: no entity has."""
        self.limits = limits
        self._is_partitioned = is_partitioned
        self._namespace: Bucket | None = None
        self._entities: dict[str, Bucket] = {}

    def refusal(self, operation: Operation, path: str | None, now_ms: int) -> ServerBusy | None:
        """None if the operation may proceed, which counts it; attaching a link is not counted, but may be refused."""
        if operation not in REQUESTS:
            return None
        buckets = self._buckets(path, now_ms)
        full = next((bucket for bucket in buckets if not bucket.has_room(now_ms)), None)
        if full is not None:
            whose = "the namespace" if full is self._namespace else f"'{path}'"
            return too_many_operations(whose, full.per_second)
        if operation not in ATTACHING:
            for bucket in buckets:
                bucket.take()
        return None

    def connection_refusal(self, open_connections: int) -> ServerBusy | None:
        """None if one more connection may be opened."""
        limit = self.limits.connections
        if limit is None or open_connections < limit:
            return None
        return ServerBusy(f"the namespace is busy: it has {limit} connections already; {WAIT_AND_RETRY}")

    def bytes_refusal(self, unwritten_bytes: int) -> ServerBusy | None:
        """None if a message may be accepted while this much waits to be written."""
        limit = self.limits.unwritten_bytes
        if limit is None or unwritten_bytes <= limit:
            return None
        return ServerBusy(f"the namespace is busy: more is being sent than can be written to disk; {WAIT_AND_RETRY}")

    def memory_refusal(self, memory_bytes: Callable[[], int]) -> ServerBusy | None:
        """None if a message may be accepted; the memory is read only if there is a threshold."""
        limit = self.limits.memory_bytes
        if limit is None or memory_bytes() <= limit:
            return None
        return ServerBusy(f"the namespace is busy: it uses more than {limit} bytes of memory; {WAIT_AND_RETRY}")

    def _buckets(self, path: str | None, now_ms: int) -> list[Bucket]:
        buckets = []
        if self.limits.operations_per_second is not None:
            if self._namespace is None:
                self._namespace = Bucket(self.limits.operations_per_second, now_ms)
            buckets.append(self._namespace)
        if self.limits.entity_operations_per_second is not None and path is not None:
            buckets.append(self._entity_bucket(entity_of(path), self.limits.entity_operations_per_second, now_ms))
        return buckets

    def _entity_bucket(self, entity: str, per_second: float, now_ms: int) -> Bucket:
        bucket = self._entities.get(entity)
        if bucket is None:
            if len(self._entities) >= ENTITIES_REMEMBERED:
                self._forget_idle(now_ms)
            factor = self.limits.partitioned_factor if self._is_partitioned and self._is_partitioned(entity) else 1.0
            bucket = self._entities[entity] = Bucket(per_second * factor, now_ms)
        return bucket

    def _forget_idle(self, now_ms: int) -> None:
        """Drop full buckets, which equal new ones. If none is full, drop the oldest half: names are free for peers."""
        for bucket in self._entities.values():
            bucket.has_room(now_ms)
        kept = {entity: bucket for entity, bucket in self._entities.items() if not bucket.is_full}
        self._entities = dict(list(kept.items())[-ENTITIES_REMEMBERED // 2 :])


def too_many_operations(whose: str, per_second: float) -> ServerBusy:
    limit = f"more than {per_second:g} operations a second" if per_second else "it takes no operations"
    return ServerBusy(f"{whose} is busy: {limit}; {WAIT_AND_RETRY}")
