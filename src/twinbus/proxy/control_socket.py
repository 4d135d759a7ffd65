"""The control socket of a running proxy, like that of a namespace, and its entry in the local register."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinbus.control.control_server import RegisteredControls
from twinbus.errors import OptionsError

PROXY = "proxy"
"""Kind of process in the register."""
REQUESTS = ("ping", "status")


class ProxyControls(RegisteredControls):
    """`start` it when the proxy serves, `stop` it before it ends."""

    def __init__(self, name: str, directory: Path | None, status: Callable[[], dict[str, Any]]) -> None:
        """Without a `directory` the socket is in a temporary folder that ends with `stop`."""
        self._status = status
        super().__init__(PROXY, name, self._handle, directory=directory)

    def _handle(self, request: str, _: dict[str, Any]) -> Any:
        match request:
            case "ping":
                return "pong"
            case "status":
                return self._status()
            case _:
                raise OptionsError(f"unknown request {request!r:.60}: a proxy knows {', '.join(REQUESTS)}")
