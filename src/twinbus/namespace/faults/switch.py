"""Turns changes of the book into what a running server must do, at the right times.

Most faults are rulings on operations and need nothing else. Three things cannot wait to be asked: the port of a
namespace that cannot be reached, receivers that nothing more may be delivered to, and the dump before a restart. There
is no timer here: the server calls `apply` at `next_change_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from twinbus.errors import TwinbusError
from twinbus.namespace.faults.book import FaultBook, Reach
from twinbus.namespace.faults.vocabulary import RESTART, read_fault


class Premises(Protocol):
    """What faults can do to a running server. All calls are made in the thread of its loop and do not wait."""

    def pause_listening(self) -> None:
        """Close the port: who connects is refused."""

    def resume_listening(self) -> None: ...

    def drop_connections(self) -> None:
        """Reset every open connection."""

    def go_silent(self) -> None:
        """Take new connections, and say nothing to anybody, old or new."""

    def speak_again(self) -> None: ...

    def faults_changed(self) -> None:
        """Rule again over `Operation.DELIVER` for each open receiver, and set the timer."""


class FaultSwitch:
    def __init__(
        self,
        book: FaultBook,
        premises: Premises,
        *,
        write_dump: Callable[[str], object],
        entity_names: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`write_dump` is given the reason; `entity_names` are there to notice a fault for an entity that is not."""
        self.book = book
        self._premises = premises
        self._write_dump = write_dump
        self._entity_names = entity_names
        self._reach = Reach.OPEN
        self._seen_version = book.version

    def add(self, values: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        """Put a fault in force and tell about it; raises `OptionsError` with everything that is wrong with the values.

        A restart's dump is written before anything of it can be felt.
        """
        fault = read_fault(values)
        if fault.kind == RESTART:
            self._write_dump(RESTART)
        added = self.book.add(fault, now_ms)
        self.apply(now_ms)
        return {**added.to_values(now_ms), "notes": self._notes(fault.scope.entities)}

    def in_force(self, now_ms: int) -> list[dict[str, Any]]:
        """The faults in force, the oldest first."""
        self.apply(now_ms)
        return [one.to_values(now_ms) for one in self.book.active(now_ms)]

    def clear(self, fault_id: str | None, now_ms: int) -> list[str]:
        """End one fault, or with None all, and return their ids; raises `TwinbusError` if there is no such fault."""
        self.apply(now_ms)
        ended = self.book.clear(fault_id)
        if fault_id is not None and not ended:
            raise TwinbusError(f"no fault {fault_id!r:.60} is in force{self._ids_text(now_ms)}")
        self.apply(now_ms)
        return ended

    def apply(self, now_ms: int) -> None:
        """Do what the faults of this moment ask for. Cheap when nothing has changed.

        A port that somebody else took while it was closed raises; the next `apply` tries again.
        """
        self.book.turn(now_ms)
        if self.book.version == self._seen_version:
            return
        self._set_reach(self.book.reach())
        self._seen_version = self.book.version
        self._premises.faults_changed()

    def next_change_ms(self) -> int | None:
        """When to call `apply`; None: not before something is added or cleared."""
        return self.book.next_change_ms()

    def _set_reach(self, wanted: Reach) -> None:
        before = self._reach
        if before is wanted:
            return
        if before is Reach.REFUSING:
            self._premises.resume_listening()
        elif before is Reach.SILENT:
            self._premises.speak_again()
        if wanted is Reach.REFUSING:
            self._premises.pause_listening()
        elif wanted is Reach.SILENT:
            self._premises.go_silent()
        if wanted in (Reach.REFUSING, Reach.DROPPING):
            self._premises.drop_connections()
        self._reach = wanted

    def _notes(self, entities: Iterable[str]) -> list[str]:
        known = {name.lower() for name in self._entity_names()}
        return [f"there is no entity {name} yet" for name in entities if name.lower() not in known]

    def _ids_text(self, now_ms: int) -> str:
        ids = [one.id for one in self.book.active(now_ms)]
        return f"; these are: {', '.join(ids)}" if ids else ": there is none at all"
