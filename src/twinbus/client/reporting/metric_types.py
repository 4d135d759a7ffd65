"""What a metric is, and how one is made from a part of a client's status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from math import isfinite

from twinbus.client.reporting.order_status import OrderStatus
from twinbus.client.reporting.status import EntityStatus, SecondaryStatus, Status, SyphonStatus

LABELS = ("client", "primary", "secondary")
"""Every metric has them: the client's number in its process, and the names of both namespaces."""

Sample = tuple[tuple[str, ...], float]
_UNITS = {"_seconds": "s", "_bytes": "By"}


class MetricKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. What is unknown at the moment has no sample, so that it cannot be taken for zero."""

    name: str
    """As Prometheus writes it, unit and `_total` included."""
    kind: MetricKind
    help: str
    labels: tuple[str, ...]
    """Beside those that every metric has."""
    read: Callable[[Status], Iterator[Sample]]

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


def of_pair(name: str, help_text: str, value: Callable[[Status], float], kind: MetricKind = MetricKind.GAUGE) -> Metric:
    def read(status: Status) -> Iterator[Sample]:
        yield (), value(status)

    return Metric(name, kind, help_text, (), read)


def of_moment(name: str, help_text: str, moment: Callable[[Status], datetime | None]) -> Metric:
    def read(status: Status) -> Iterator[Sample]:
        found = moment(status)
        if found is not None:
            yield (), found.timestamp()

    return Metric(name, MetricKind.GAUGE, help_text, (), read)


def of_entity(name: str, help_text: str, value: Callable[[EntityStatus], float | None], kind: MetricKind) -> Metric:
    def read(status: Status) -> Iterator[Sample]:
        for entity in status.entities:
            number = value(entity)
            if number is not None:
                yield (entity.entity,), number

    return Metric(name, kind, help_text, ("entity",), read)


def of_secondary(name: str, help_text: str, value: Callable[[SecondaryStatus], float | None]) -> Metric:
    def read(status: Status) -> Iterator[Sample]:
        number = value(status.secondary_status)
        if number is not None and isfinite(number):
            yield (), number

    return Metric(name, MetricKind.GAUGE, help_text, (), read)


def of_order(name: str, help_text: str, value: Callable[[OrderStatus], float]) -> Metric:
    def read(status: Status) -> Iterator[Sample]:
        if status.order is not None:
            yield (), value(status.order)

    return Metric(name, MetricKind.GAUGE, help_text, (), read)


def of_syphon(
    name: str, help_text: str, value: Callable[[SyphonStatus], float | None], kind: MetricKind = MetricKind.COUNTER
) -> Metric:
    def read(status: Status) -> Iterator[Sample]:
        number = None if status.syphon is None else value(status.syphon)
        if number is not None:
            yield (), number

    return Metric(name, kind, help_text, (), read)
