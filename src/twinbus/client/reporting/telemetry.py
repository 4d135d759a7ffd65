"""The numbers of paired clients, for Prometheus and OpenTelemetry.

Nothing is counted here: whoever wants numbers asks, and gets them from the status of each client at that moment. So a
send pays nothing for being watched. Neither library is imported before it is needed.

One `Telemetry` serves all clients of a process, because both libraries want a name registered once; the label `client`
(1, 2, ... as they were made) keeps clients of the same pair apart.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from twinbus.client.reporting.metric_types import LABELS, Metric, Sample
from twinbus.client.reporting.metrics import METRICS
from twinbus.client.reporting.status import Status

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    Family = CounterMetricFamily | GaugeMetricFamily

PICTURE_S = 0.2
"""OpenTelemetry asks instrument by instrument: for so long all of them get their numbers from one picture."""

ReadStatus = Callable[[], Status]
Picture = list[tuple[int, Status]]
"""Clients, by their numbers, and how each is doing."""
_log = logging.getLogger("twinbus.telemetry")


class Watch:
    """One client that is watched, until `stop`."""

    def __init__(self, number: int, read: ReadStatus, forget: Callable[[Watch], None]) -> None:
        self.number = number
        # A bound method is held weakly: being watched must not keep a forgotten client alive.
        self._read: Callable[[], ReadStatus | None] = (
            weakref.WeakMethod(read) if inspect.ismethod(read) else lambda: read
        )
        self._forget = forget

    def stop(self) -> None:
        """The client's numbers end here; calling it again is fine."""
        self._forget(self)

    def text(self) -> str:
        """The numbers of this client alone as Prometheus would scrape them; also after `stop`."""
        from prometheus_client import generate_latest

        return generate_latest(Families(self.picture())).decode()

    def picture(self) -> Picture:
        """The client and its status; empty if the client is gone or cannot say."""
        read = self._read()
        if read is None:
            self._forget(self)
            return []
        try:
            return [(self.number, read())]
        except Exception:  # a scrape gets the numbers of the other clients; this one shows up as missing
            _log.warning("client %s has no status", self.number, exc_info=True)
            return []


class Telemetry:
    """All watched clients of a process. A Prometheus collector: `REGISTRY.register(TELEMETRY)`."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._watches: dict[int, Watch] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._is_instrumented = False
        self._clock = clock
        self._picture: Picture = []
        self._picture_at = float("-inf")

    def watch(self, read: ReadStatus) -> Watch:
        """Have the client behind this status among the numbers."""
        self._instrument_once()
        with self._lock:
            watch = Watch(next(self._numbers), read, self._forget)
            self._watches[watch.number] = watch
            self._picture_at = float("-inf")
        return watch

    def collect(self) -> Iterator[Family]:
        """What Prometheus asks for: every metric once, with the numbers of all clients."""
        return Families(self._fresh_picture()).collect()

    def describe(self) -> Iterator[Family]:
        """The same without numbers, for registering."""
        return Families([]).collect()

    def instrument(self, provider: MeterProvider | None = None) -> bool:
        """Have OpenTelemetry ask for the numbers, once for each provider; False if it is not installed.

        Without a provider it is the global one, also if that is set later; the first `watch` does that by itself.
        """
        try:
            from opentelemetry.metrics import get_meter
        except ImportError:
            return False
        meter = get_meter("twinbus", meter_provider=provider)
        for metric in METRICS:
            create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            create(metric.dotted_name, [partial(self._observe, metric)], unit=metric.unit, description=metric.help)
        return True

    def _instrument_once(self) -> None:
        with self._lock:
            is_first, self._is_instrumented = not self._is_instrumented, True
        try:
            if is_first:
                self.instrument()
        except Exception:  # somebody else's meter provider is no reason not to pair
            _log.warning("OpenTelemetry takes no instruments", exc_info=True)

    def _observe(self, metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
        from opentelemetry.metrics import Observation

        labels = (*LABELS, *metric.labels)
        samples = _samples(metric, self._recent_picture())
        return [Observation(value, dict(zip(labels, values, strict=True))) for values, value in samples]

    def _recent_picture(self) -> Picture:
        now = self._clock()
        if now - self._picture_at > PICTURE_S:
            self._picture, self._picture_at = self._fresh_picture(), now
        return self._picture

    def _fresh_picture(self) -> Picture:
        with self._lock:
            watches = tuple(self._watches.values())
        return [each for watch in watches for each in watch.picture()]

    def _forget(self, watch: Watch) -> None:
        with self._lock:
            self._watches.pop(watch.number, None)
            self._picture_at = float("-inf")


TELEMETRY = Telemetry()
"""Every paired client of this process."""


class Families:
    """A picture in the shape of `prometheus_client`."""

    def __init__(self, picture: Picture, metrics: Sequence[Metric] = METRICS) -> None:
        self._picture = picture
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for metric in self._metrics:
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = make(metric.name, metric.help, labels=[*LABELS, *metric.labels])
            for values, value in _samples(metric, self._picture):
                family.add_metric(values, value)
            yield family


def _samples(metric: Metric, picture: Picture) -> Iterator[Sample]:
    for number, status in picture:
        whose = (str(number), status.primary, status.secondary)
        for values, value in metric.read(status):
            yield (*whose, *values), value
