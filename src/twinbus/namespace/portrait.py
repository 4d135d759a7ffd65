"""What a running namespace can tell of itself: to a scraper, to whoever asks over the control socket, in a dump."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

from twinbus import __version__
from twinbus.ledger import LedgerHealth
from twinbus.namespace.dump import connection_facts, queue_facts
from twinbus.namespace.faults.switch import FaultSwitch
from twinbus.namespace.limits import ServerLimits
from twinbus.namespace.metrics import Snapshot, gauge_of
from twinbus.namespace.reception import Reception
from twinbus.namespace.seam import CommitSeam
from twinbus.namespace.wire import Wire
from twinbus.options import NamespaceOptions


class Sitter(Protocol):
    """The server, as far as it is portrayed."""

    options: NamespaceOptions
    port: int
    clock: Callable[[], int]
    server_limits: ServerLimits
    wires: set[Wire]
    seam: CommitSeam
    reception: Reception

    @property
    def switch(self) -> FaultSwitch: ...

    @property
    def ledger_health(self) -> LedgerHealth | None: ...


def snapshot(server: Sitter) -> Snapshot:
    """The numbers of this moment."""
    queues = [gauge_of(queue) for queue in server.seam.machine.registry.queues()]
    readings = server.reception.meter.readings()
    seam = server.seam
    return Snapshot(server.options.name, readings, queues, len(server.wires), seam.unwritten_bytes, seam.full_disk)


def status(server: Sitter) -> dict[str, Any]:
    """What anybody may know who can open the control socket."""
    health = server.ledger_health
    return {
        "version": __version__,
        "namespace": server.options.name,
        "port": server.port,
        "connections": len(server.wires),
        "unwritten_bytes": server.seam.unwritten_bytes,
        "store_failure": server.seam.failure,
        "full_disk": server.seam.full_disk,
        "ledger": None if health is None else asdict(health),
        "faults": server.switch.in_force(server.clock()),
    }


def facts(server: Sitter) -> dict[str, Any]:
    """Everything a dump tells."""
    return {
        **status(server),
        "limits": {"traffic": server.options.limits, "server": server.server_limits},
        "queues": [queue_facts(queue) for queue in server.seam.machine.registry.queues()],
        "links": [connection_facts(wire.connection) for wire in server.wires],
    }
