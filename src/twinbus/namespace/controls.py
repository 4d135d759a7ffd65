"""How a running namespace is made to fail and looked into: the switch, the control socket and the dumps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from twinbus.control_client import CONTROL_SOCKET
from twinbus.namespace.control import ControlDesk, ControlServer
from twinbus.namespace.dump import write_dump
from twinbus.namespace.faults.book import FaultBook
from twinbus.namespace.faults.switch import FaultSwitch, Premises


class Controls:
    def __init__(
        self,
        book: FaultBook,
        premises: Premises,
        *,
        home: Path | None,
        clock: Callable[[], int],
        facts: Callable[[], dict[str, Any]],
        status: Callable[[], dict[str, Any]],
        entity_names: Callable[[], Iterable[str]],
        secrets: Callable[[], Iterable[str]],
    ) -> None:
        """Without a `home` the socket and the dumps are in a temporary folder that ends with `stop`."""
        self._clock = clock
        self._facts = facts
        self._secrets = secrets
        self._own_home = tempfile.TemporaryDirectory(prefix="twinbus-") if home is None else None
        self.home = Path(self._own_home.name) if self._own_home is not None else home or Path()
        self.switch = FaultSwitch(book, premises, write_dump=self.dump, entity_names=entity_names)
        desk = ControlDesk(self.switch, clock=clock, write_dump=self.dump, status=status)
        self._server = ControlServer(self.home / CONTROL_SOCKET, desk)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        """Harmless when it is stopped."""
        await self._server.stop()
        if self._own_home is not None:
            self._own_home.cleanup()

    def dump(self, reason: str) -> Path:
        return write_dump(self.home, reason, self._facts(), self._clock(), secrets=[*self._secrets()])
