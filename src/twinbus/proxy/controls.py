"""The control socket of a running proxy, like that of a namespace, and its entry in the local register."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinbus.broker.ops.control_socket import ControlServer
from twinbus.control_client import CONTROL_SOCKET
from twinbus.errors import OptionsError
from twinbus.local_register import Registration

PROXY = "proxy"
"""Kind of process in the register."""
REQUESTS = ("ping", "status")


class ProxyControls:
    """`start` it when the proxy serves, `stop` it before it ends."""

    def __init__(self, name: str, directory: Path | None, status: Callable[[], dict[str, Any]]) -> None:
        """Without a `directory` the socket is in a temporary folder that ends with `stop`."""
        self._name = name
        self._status = status
        self._own_directory = tempfile.TemporaryDirectory(prefix="twinbus-") if directory is None else None
        folder = Path(self._own_directory.name) if self._own_directory is not None else directory or Path()
        self._server = ControlServer(folder / CONTROL_SOCKET, self._handle)
        self._registration: Registration | None = None

    async def start(self) -> None:
        """Raises `TwinbusError`."""
        await self._server.start()
        self._registration = Registration(PROXY, self._name, self._server.path)

    async def stop(self) -> None:
        """Harmless if it is stopped already."""
        if self._registration is not None:
            self._registration.end()
        await self._server.stop()
        if self._own_directory is not None:
            self._own_directory.cleanup()

    def _handle(self, request: str, _: dict[str, Any]) -> Any:
        match request:
            case "ping":
                return "pong"
            case "status":
                return self._status()
            case _:
                raise OptionsError(f"unknown request {request!r:.60}: a proxy knows {', '.join(REQUESTS)}")
