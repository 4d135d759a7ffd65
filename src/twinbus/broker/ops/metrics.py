"""What can be watched of a namespace, as Prometheus text or JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from twinbus.broker.entities.queue import Queue
from twinbus.broker.ops.meter import Reading

PROMETHEUS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class QueueGauge(NamedTuple):
    """How full a queue is at the moment."""

    path: str
    active: int
    scheduled: int
    deferred: int
    dead_letters: int
    stored_bytes: int
    transfer_dead_letters: int = 0


def queue_gauge(queue: Queue) -> QueueGauge:
    dead, transfers = _size_of(queue.dead_letter), _size_of(queue.transfer_dead_letter)
    counts = (queue.active, queue.scheduled, queue.deferred, dead)
    return QueueGauge(queue.row.path, *counts, queue.stored_bytes, transfers)


def _size_of(queue: Queue | None) -> int:
    return 0 if queue is None else queue.active + queue.deferred


class Snapshot(NamedTuple):
    namespace: str
    readings: list[Reading]
    queues: list[QueueGauge]
    connections: int
    unwritten_bytes: int
    full_disk: str | None = None
    """Why the disk takes nothing new; None while it does."""


class NamespaceMetric(NamedTuple):
    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    """Beside `namespace`."""


_OPERATIONS = NamespaceMetric(
    "twinbus_operations_total", "counter", "Operations, by entity and kind.", ("entity", "kind")
)
_BYTES = NamespaceMetric(
    "twinbus_operation_bytes_total", "counter", "Bytes of the messages in those operations.", ("entity", "kind")
)
_STEPS = NamespaceMetric(
    "twinbus_operation_steps_total", "counter", "Steps of 64 KB, at least one an operation.", ("entity", "kind")
)
_MESSAGES = NamespaceMetric("twinbus_queue_messages", "gauge", "Messages in a queue, by state.", ("entity", "state"))
_STORED = NamespaceMetric("twinbus_queue_bytes", "gauge", "Bytes a queue holds, dead letters included.", ("entity",))
_CONNECTIONS = NamespaceMetric("twinbus_connections", "gauge", "Open connections.")
_UNWRITTEN = NamespaceMetric("twinbus_unwritten_bytes", "gauge", "Bytes taken in and not yet on disk.")
_DISK_FULL = NamespaceMetric(
    "twinbus_disk_full", "gauge", "1 while the disk is full: messages can be received, nothing new is stored; else 0."
)
NAMESPACE_METRICS = (_OPERATIONS, _BYTES, _STEPS, _MESSAGES, _STORED, _CONNECTIONS, _UNWRITTEN, _DISK_FULL)


def as_prometheus(snapshot: Snapshot) -> str:
    namespace = {"namespace": snapshot.namespace}
    lines: list[str] = []
    for metric, field in ((_OPERATIONS, "operations"), (_BYTES, "size"), (_STEPS, "steps")):
        labelled = (
            ({**namespace, "entity": reading.entity, "kind": reading.kind.value}, getattr(reading, field))
            for reading in snapshot.readings
        )
        lines += _metric_lines(metric, labelled)
    states = ("active", "scheduled", "deferred", "dead_letters", "transfer_dead_letters")
    by_state = (
        ({**namespace, "entity": queue.path, "state": state}, getattr(queue, state))
        for queue in snapshot.queues
        for state in states
    )
    lines += _metric_lines(_MESSAGES, by_state)
    lines += _metric_lines(
        _STORED, (({**namespace, "entity": queue.path}, queue.stored_bytes) for queue in snapshot.queues)
    )
    lines += _metric_lines(_CONNECTIONS, [(namespace, snapshot.connections)])
    lines += _metric_lines(_UNWRITTEN, [(namespace, snapshot.unwritten_bytes)])
    lines += _metric_lines(_DISK_FULL, [(namespace, int(snapshot.full_disk is not None))])
    return "\n".join(lines) + "\n"


def _metric_lines(metric: NamespaceMetric, values: Iterable[tuple[dict[str, str], int]]) -> list[str]:
    lines = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
    for labels, value in values:
        text = ",".join(f'{name}="{_escape(label)}"' for name, label in labels.items())
        lines.append(f"{metric.name}{{{text}}} {value}")
    return lines


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def as_json(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "namespace": snapshot.namespace,
        "connections": snapshot.connections,
        "unwritten_bytes": snapshot.unwritten_bytes,
        "full_disk": snapshot.full_disk,
        "queues": [queue._asdict() for queue in snapshot.queues],
        "operations": [
            {
                "entity": reading.entity,
                "kind": reading.kind.value,
                "operations": reading.operations,
                "bytes": reading.size,
                "steps": reading.steps,
            }
            for reading in snapshot.readings
        ],
    }
