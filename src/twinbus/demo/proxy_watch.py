"""What the demo's proxy knows: an application with an official client is not told where its messages are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twinbus.control import control_client
from twinbus.demo.journal import JournalEntry
from twinbus.demo.progress import DemoProgress

LOOK_EVERY_S = 0.1


class ProxyWatch:
    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._looked_at = 0.0
        self._entities: dict[str, dict[str, Any]] = {}

    @property
    def backlog(self) -> dict[str, int]:
        """Messages that went to the backlog, by entity, as of the last look."""
        return {name: int(entity["sent_to_backlog"]) for name, entity in self._entities.items()}

    def look(self, progress: DemoProgress, *, at_once: bool = False) -> Iterator[JournalEntry]:
        """Put the proxy's counts into the progress; its events since the last look. Raises `TwinbusError`."""
        now = time.monotonic()
        if now < self._looked_at + LOOK_EVERY_S and not at_once:
            return
        self._looked_at = now
        status = control_client.ask(self._socket, "status")["pair"]
        before, self._entities = self._entities, {entity["entity"]: entity for entity in status["entities"]}
        for name, entity in self._entities.items():
            progress.place(name, int(entity["sent_to_primary"]), int(entity["sent_to_backlog"]))
            yield from _changes(name, before.get(name, {}), entity)


def _changes(name: str, before: dict[str, Any], now: dict[str, Any]) -> Iterator[JournalEntry]:
    for _ in range(int(now["pings_sent"]) - int(before.get("pings_sent", 0))):
        yield JournalEntry(kind="event", entity=name, event="ping_sent")
    if int(now["failovers"]) > int(before.get("failovers", 0)):
        yield JournalEntry(kind="event", entity=name, event="failed_over", note=now["reason"])
    is_back = now["state"] == "healthy" and int(now["failovers"]) > 0
    if is_back and not (before.get("state") == "healthy" and int(before.get("failovers", 0)) == int(now["failovers"])):
        yield JournalEntry(kind="event", entity=name, event="recovered", note="messages go to the primary again")
