"""Applies changes of the fault table to a running server.

Most faults are decisions on operations and need nothing else. Three things must be done actively: close the port of a
namespace that cannot be reached, stop deliveries to open receivers, and write the dump before a restart. There is no
timer here: the server calls `apply` at `next_change_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from twinbus.broker.faults.catalogue import RESTART, read_fault
from twinbus.broker.faults.effects import OutageMode
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.errors import TwinbusError


class FaultableServer(Protocol):
    """What faults do to a running server. All calls are made in the thread of its loop and do not block."""

    def pause_listening(self) -> None:
        """Refuse new connections; the port stays bound."""

    def resume_listening(self) -> None: ...

    def drop_connections(self) -> None:
        """Reset every open connection."""

    def go_silent(self) -> None:
        """Accept new connections, and send nothing to any, old or new."""

    def speak_again(self) -> None: ...

    def faults_changed(self) -> None:
        """Decide again on `Operation.DELIVER` for each open receiver, and set the timer."""


class NoPort:
    """A `FaultableServer` without a port: faults of the port do nothing."""

    def pause_listening(self) -> None: ...

    def resume_listening(self) -> None: ...

    def drop_connections(self) -> None: ...

    def go_silent(self) -> None: ...

    def speak_again(self) -> None: ...

    def faults_changed(self) -> None: ...


class FaultSwitch:
    def __init__(
        self,
        table: FaultTable,
        server: FaultableServer,
        *,
        write_dump: Callable[[str], object],
        entity_names: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`write_dump` is called with the reason; `entity_names` are used to warn about unknown entities."""
        self.table = table
        self._server = server
        self._write_dump = write_dump
        self._entity_names = entity_names
        self._outage: OutageMode | None = None
        self._seen_version = table.version

    def add(self, values: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        """Put a fault in force and describe it; raises `OptionsError` with all problems of the values.

        The dump of a restart is written before it takes effect.
        """
        fault = read_fault(values)
        if fault.kind == RESTART:
            self._write_dump(RESTART)
        added = self.table.add(fault, now_ms)
        self.apply(now_ms)
        known = {name.lower() for name in self._entity_names()}
        notes = [f"there is no entity {name} yet" for name in fault.scope.entities if name.lower() not in known]
        return {**added.to_values(now_ms), "notes": notes}

    def in_force(self, now_ms: int) -> list[dict[str, Any]]:
        """The faults in force, the oldest first."""
        self.apply(now_ms)
        return [one.to_values(now_ms) for one in self.table.active(now_ms)]

    def clear(self, fault_id: str | None, now_ms: int) -> list[str]:
        """End one fault, or all with None, and return their ids; raises `TwinbusError` if there is no such fault."""
        self.apply(now_ms)
        ended = self.table.clear(fault_id)
        if fault_id is not None and not ended:
            ids = ", ".join(one.id for one in self.table.active(now_ms))
            others = f"; in force are {ids}" if ids else ": there are no faults"
            raise TwinbusError(f"no fault {fault_id!r:.60} is in force{others}")
        self.apply(now_ms)
        return ended

    def apply(self, now_ms: int) -> None:
        """Apply the current faults. Cheap if nothing has changed.

        Raises if another process took the port while it was closed; the next `apply` tries again.
        """
        self.table.advance(now_ms)
        if self.table.version == self._seen_version:
            return
        self._set_outage(self.table.outage())
        self._seen_version = self.table.version
        self._server.faults_changed()

    def next_change_ms(self) -> int | None:
        """When to call `apply`; None: not before something is added or cleared."""
        return self.table.next_change_ms()

    def _set_outage(self, wanted: OutageMode | None) -> None:
        before = self._outage
        if before is wanted:
            return
        if before is OutageMode.REFUSE:
            self._server.resume_listening()
        elif before is OutageMode.SILENT:
            self._server.speak_again()
        if wanted is OutageMode.REFUSE:
            self._server.pause_listening()
        elif wanted is OutageMode.SILENT:
            self._server.go_silent()
        if wanted in (OutageMode.REFUSE, OutageMode.DROP):
            self._server.drop_connections()
        self._outage = wanted
