"""Two namespaces to pair, and a proxy, each in a process of its own: to be broken, killed and started again."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.processes import LOOPBACK, Process, Processes, free_port
from twinbus import Namespace
from twinbus.connection_string import ConnectionString
from twinbus.control import control_client

QUEUE = "orders"
START_WAIT_S = 30
SIZE_MB = 81_920


class ServedNamespace:
    """`twinbus serve` for one namespace. Killed and started again it has the same port, key and data."""

    def __init__(
        self,
        name: str,
        folder: Path,
        processes: Processes,
        core: int | None,
        queues: Sequence[str] = (QUEUE,),
        detecting: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Those of the queues that are `detecting` drop a second message with the same id.

        `properties`: of every queue, as a file of entities names them.
        """
        self.name = name
        self._queues = queues
        self._queue_properties = {"MaxSizeInMegabytes": SIZE_MB, **(properties or {})}
        self._detecting = detecting
        self.port = free_port()
        self._folder = folder
        self.processes = processes
        self._core = core
        self.key = secrets.token_hex(16)
        self.process: Process | None = None
        self.connection_string = str(ConnectionString(host=LOOPBACK, port=self.port, namespace=name, key=self.key))

    def start(self) -> None:
        """Returns when it takes connections."""
        address = ("--namespace", f"{self.name}:{self.port}", "--data", str(self._folder))
        command = (sys.executable, "-m", "twinbus", "serve", *address, *self._entities(), "--json")
        log = self._folder / f"{self.name}.log"
        self.process = self.processes.start(command, self._core, log, {"TWINBUS_KEY": self.key})
        self.process.wait_for_port(self.port, START_WAIT_S)
        self.connection_string = self._printed_string(log)

    def _entities(self) -> tuple[str, ...]:
        """Queues that take more than anything here sends: they are never emptied."""
        if not self._queues:
            return ()
        file = self._folder / f"{self.name}.json"
        queues = [{"Name": name, "Properties": self._properties(name)} for name in self._queues]
        file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": self.name, "Queues": queues}]}}))
        return ("--entities", str(file))

    def _properties(self, queue: str) -> dict[str, Any]:
        detection = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT1H"}
        return self._queue_properties | (detection if queue in self._detecting else {})

    def kill(self) -> None:
        """As kill -9 does."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def namespace(self) -> Namespace:
        return Namespace.from_connection_string(self.connection_string)

    def memory_mb(self) -> int:
        return 0 if self.process is None else self.process.memory_mb()

    def break_(self, fault: str, *entities: str, **parameters: Any) -> None:
        """Make something fail, of these entities or of the whole namespace, until `clear`."""
        self._control("fault.add", {"fault": fault, "entities": list(entities), **parameters})

    def clear(self) -> None:
        """End all faults."""
        self._control("fault.clear", {})

    def _control(self, request: str, arguments: dict[str, Any]) -> None:
        control_client.ask(self._folder / self.name / control_client.CONTROL_SOCKET, request, arguments)

    def _printed_string(self, log: Path) -> str:
        """As `serve` printed it: with the certificate to trust, which the administration needs."""
        ready = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        return next(str(line["connection_string"]) for line in reversed(ready) if "connection_string" in line)


class ServedProxy:
    """`twinbus proxy` in front of two namespaces. Killed and started again it has the same port, key and folders."""

    def __init__(
        self,
        primary: ServedNamespace,
        secondary: ServedNamespace,
        folder: Path,
        processes: Processes,
        core: int | None,
        *options: str,
    ) -> None:
        self.port = free_port()
        self.key = secrets.token_hex(16)
        self._options = ("--listen", f"{LOOPBACK}:{self.port}", "--data", str(folder), *options)
        self._folder = folder
        self._sides = {"TWINBUS_PRIMARY": primary, "TWINBUS_SECONDARY": secondary}
        self._processes = processes
        self._core = core
        self.process: Process | None = None
        self.connection_string = str(ConnectionString(host=LOOPBACK, port=self.port, namespace="proxy", key=self.key))

    def start(self) -> Process:
        """Returns when it takes connections."""
        command = (sys.executable, "-m", "twinbus", "proxy", *self._options, "--json")
        strings = {name: side.connection_string for name, side in self._sides.items()}
        log = self._folder / "proxy.log"
        self.process = self._processes.start(command, self._core, log, {**strings, "TWINBUS_KEY": self.key})
        self.process.wait_for_port(self.port, START_WAIT_S)
        return self.process

    def kill(self) -> None:
        """As kill -9 does."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    def stop(self) -> None:
        """In good order."""
        if self.process is not None:
            self.process.stop()
            self.process = None

    def entity_status(self, entity: str) -> dict[str, Any]:
        """What `twinbus status` knows of it; empty before the first send."""
        facts = control_client.ask(self._folder / "proxy" / control_client.CONTROL_SOCKET, "status")
        found: list[dict[str, Any]] = [each for each in facts["pair"]["entities"] if each["entity"] == entity]
        return found[0] if found else {}

    @property
    def namespace(self) -> Namespace:
        """As an application sees it."""
        return Namespace.from_connection_string(self.connection_string)


@contextmanager
def served_pair(
    folder: Path,
    core: int | None,
    queues: Sequence[str] = (QUEUE,),
    detecting: Sequence[str] = (),
    properties: Mapping[str, Any] | None = None,
) -> Iterator[tuple[ServedNamespace, ServedNamespace]]:
    """The primary `contoso` with these queues, and the secondary `backup` with none; gone when the block ends."""
    folder.mkdir(exist_ok=True)
    with Processes() as processes:
        primary = ServedNamespace("contoso", folder, processes, core, queues, detecting, properties)
        secondary = ServedNamespace("backup", folder, processes, core, ())
        for each in (primary, secondary):
            each.start()
        yield primary, secondary
