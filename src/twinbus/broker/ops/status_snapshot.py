"""The state of a running namespace: for metrics, for the control socket, for dumps."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from twinbus import __version__
from twinbus.broker.ops.dump import connection_facts, queue_facts
from twinbus.broker.ops.metrics import Snapshot, queue_gauge

if TYPE_CHECKING:
    from twinbus.broker.server import NamespaceServer


def snapshot(server: NamespaceServer) -> Snapshot:
    """The numbers of this moment."""
    queues = [queue_gauge(queue) for queue in server.gate.machine.registry.queues()]
    readings = server.context.meter.readings()
    gate = server.gate
    return Snapshot(
        server.options.name, readings, queues, len(server.amqp.connections), gate.unwritten_bytes, gate.full_disk
    )


def status(server: NamespaceServer) -> dict[str, Any]:
    """What the control socket reports."""
    health = server.ledger.health()
    return {
        "version": __version__,
        "namespace": server.options.name,
        "port": server.port,
        "connections": len(server.amqp.connections),
        "unwritten_bytes": server.gate.unwritten_bytes,
        "store_failure": server.gate.failure,
        "full_disk": server.gate.full_disk,
        "ledger": None if health is None else asdict(health),
        "faults": server.switch.in_force(server.clock()),
    }


def facts(server: NamespaceServer) -> dict[str, Any]:
    """Everything that a dump contains."""
    return {
        **status(server),
        "limits": {"traffic": server.options.limits, "server": server.server_limits},
        "queues": [queue_facts(queue) for queue in server.gate.machine.registry.queues()],
        "links": [connection_facts(connection.connection) for connection in server.amqp.connections],
    }
