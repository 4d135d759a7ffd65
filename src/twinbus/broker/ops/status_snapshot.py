"""The state of a running namespace: for metrics, for the control socket, for dumps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

from twinbus import __version__
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.faults.switch import FaultSwitch
from twinbus.broker.limits import ServerLimits
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.net.amqp_connection import AmqpConnection
from twinbus.broker.ops.dump import connection_facts, queue_facts
from twinbus.broker.ops.metrics import Snapshot, gauge_of
from twinbus.ledger import LedgerHealth
from twinbus.options import NamespaceOptions


class StatusSource(Protocol):
    """The server, as far as its status needs it."""

    options: NamespaceOptions
    port: int
    clock: Callable[[], int]
    server_limits: ServerLimits
    amqp_connections: set[AmqpConnection]
    gate: CommitGate
    context: ConnectionContext

    @property
    def switch(self) -> FaultSwitch: ...

    @property
    def ledger_health(self) -> LedgerHealth | None: ...


def snapshot(server: StatusSource) -> Snapshot:
    """The numbers of this moment."""
    queues = [gauge_of(queue) for queue in server.gate.machine.registry.queues()]
    readings = server.context.meter.readings()
    gate = server.gate
    return Snapshot(
        server.options.name, readings, queues, len(server.amqp_connections), gate.unwritten_bytes, gate.full_disk
    )


def status(server: StatusSource) -> dict[str, Any]:
    """What the control socket reports."""
    health = server.ledger_health
    return {
        "version": __version__,
        "namespace": server.options.name,
        "port": server.port,
        "connections": len(server.amqp_connections),
        "unwritten_bytes": server.gate.unwritten_bytes,
        "store_failure": server.gate.failure,
        "full_disk": server.gate.full_disk,
        "ledger": None if health is None else asdict(health),
        "faults": server.switch.in_force(server.clock()),
    }


def facts(server: StatusSource) -> dict[str, Any]:
    """Everything that a dump contains."""
    return {
        **status(server),
        "limits": {"traffic": server.options.limits, "server": server.server_limits},
        "queues": [queue_facts(queue) for queue in server.gate.machine.registry.queues()],
        "links": [connection_facts(connection.connection) for connection in server.amqp_connections],
    }
