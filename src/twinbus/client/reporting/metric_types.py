"""What a metric is, and how one is made from a part of a client's status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Literal

from twinbus.client.reporting.order_status import OrderStatus
from twinbus.client.reporting.status import (
    BoardStatus,
    EntityStatus,
    SecondaryStatus,
    SpoolStatus,
    Status,
    SyphonStatus,
)

LABELS = ("client", "primary", "secondary")
"""Every metric has them: the client's number in its process, and the names of both namespaces."""

Sample = tuple[tuple[str, ...], float]
_UNITS = {"_seconds": "s", "_bytes": "By"}


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. What is unknown at the moment has no sample, so that it cannot be taken for zero."""

    name: str
    """As Prometheus writes it: with its unit, and `_total` if it is a counter; others are gauges."""
    help: str
    labels: tuple[str, ...]
    """Beside those that every metric has."""
    read: Callable[[Status], Iterator[Sample]]

    @property
    def kind(self) -> Literal["counter", "gauge"]:
        return "counter" if self.name.endswith("_total") else "gauge"

    @property
    def unit(self) -> str:
        return next((unit for suffix, unit in _UNITS.items() if self.name.endswith(suffix)), "")

    @property
    def dotted_name(self) -> str:
        """As OpenTelemetry writes it: unit and kind are not part of a name there."""
        name = self.name.removesuffix("_total")
        for suffix in _UNITS:
            name = name.removesuffix(suffix)
        return name.replace("twinbus_pair_", "twinbus.pair.", 1)


def of_pair(name: str, help_text: str, value: Callable[[Status], float | None]) -> Metric:
    def read(status: Status) -> Iterator[Sample]:
        number = value(status)
        if number is not None:
            yield (), number

    return Metric(name, help_text, (), read)


def of_entity(name: str, help_text: str, value: Callable[[EntityStatus], float | None]) -> Metric:
    def read(status: Status) -> Iterator[Sample]:
        for entity in status.entities:
            number = value(entity)
            if number is not None:
                yield (entity.entity,), number

    return Metric(name, help_text, ("entity",), read)


def of_secondary(name: str, help_text: str, value: Callable[[SecondaryStatus], float | None]) -> Metric:
    def finite(status: Status) -> float | None:
        number = value(status.secondary_status)
        return number if number is not None and isfinite(number) else None

    return of_pair(name, help_text, finite)


def of_order(name: str, help_text: str, value: Callable[[OrderStatus], float]) -> Metric:
    return of_pair(name, help_text, lambda status: None if status.order is None else value(status.order))


def of_syphon(name: str, help_text: str, value: Callable[[SyphonStatus], float | None]) -> Metric:
    return of_pair(name, help_text, lambda status: None if status.syphon is None else value(status.syphon))


def of_board(name: str, help_text: str, value: Callable[[BoardStatus], float | None]) -> Metric:
    return of_pair(name, help_text, lambda status: None if status.board is None else value(status.board))


def of_spool(name: str, help_text: str, value: Callable[[SpoolStatus], float]) -> Metric:
    return of_pair(name, help_text, lambda status: None if status.spool is None else value(status.spool))


def timestamp(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
