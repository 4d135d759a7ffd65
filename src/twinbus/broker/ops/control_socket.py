"""The control socket of a running namespace: faults, dumps and status; `control/control_server.py` has the protocol."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.switch import FaultableServer, FaultSwitch
from twinbus.broker.ops.dump import write_dump
from twinbus.control.control_client import CONTROL_SOCKET
from twinbus.control.control_server import ControlServer, Handler
from twinbus.errors import OptionsError

REQUESTS = ("fault.add", "fault.list", "fault.clear", "dump", "status", "ping")


def make_control_handler(
    switch: FaultSwitch,
    *,
    clock: Callable[[], int],
    write_dump: Callable[[str], Path],
    status: Callable[[], dict[str, Any]],
) -> Handler:
    """Answers the requests of one namespace: the handler of a `ControlServer`.

    `write_dump` takes the reason; `status` is what anybody may know, as plain values. The handler raises `OptionsError`
    if the request makes no sense, `TwinbusError` if it cannot be carried out.
    """

    def handle(request: str, arguments: dict[str, Any]) -> Any:
        match request:
            case "ping":
                return "pong"
            case "status":
                return status()
            case "dump":
                return {"file": str(write_dump("asked"))}
            case "fault.add":
                return switch.add(arguments, clock())
            case "fault.list":
                return switch.in_force(clock())
            case "fault.clear":
                fault_id = arguments.get("id")
                if not isinstance(fault_id, str | None):
                    raise OptionsError(f"id must be the id of a fault, got {fault_id!r:.60}")
                return switch.clear(fault_id, clock())
            case _:
                raise OptionsError(f"no request is called {request!r:.60}: there are {', '.join(REQUESTS)}")

    return handle


class Controls:
    """The fault switch, the control socket and the dumps of a running namespace."""

    def __init__(
        self,
        faults: FaultTable,
        server: FaultableServer,
        *,
        directory: Path | None,
        clock: Callable[[], int],
        facts: Callable[[], dict[str, Any]],
        status: Callable[[], dict[str, Any]],
        entity_names: Callable[[], Iterable[str]],
        secrets: Callable[[], Iterable[str]],
    ) -> None:
        """Without a `directory` the socket and the dumps are in a temporary folder that ends with `stop`."""
        self._clock = clock
        self._facts = facts
        self._secrets = secrets
        self._own_directory = tempfile.TemporaryDirectory(prefix="twinbus-") if directory is None else None
        self.directory = Path(self._own_directory.name) if self._own_directory is not None else directory or Path()
        self.switch = FaultSwitch(faults, server, write_dump=self.dump, entity_names=entity_names)
        handler = make_control_handler(self.switch, clock=clock, write_dump=self.dump, status=status)
        self._server = ControlServer(self.directory / CONTROL_SOCKET, handler)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        """Harmless when it is stopped."""
        await self._server.stop()
        if self._own_directory is not None:
            self._own_directory.cleanup()

    def dump(self, reason: str) -> Path:
        return write_dump(self.directory, reason, self._facts(), self._clock(), secrets=[*self._secrets()])
