"""The server's end of a control socket: how a running process is asked and switched from outside.

A unix socket that only its owner can open. Each request is one line of JSON, and so is each answer:

    {"request": "fault.add", "arguments": {"fault": "no-send", "entities": ["orders"], "length_ms": 30000}}
    {"ok": true, "result": {"id": "no-send-1", ...}}
    {"ok": false, "error": "no fault is called 'no-sent': did you mean no-send?", "is_usage": true}

`control/control_client.py` has the other end. What requests mean is up to the handler of each kind of process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinbus.control.control_client import CONTROL_SOCKET, SocketAddress
from twinbus.control.local_register import Registration
from twinbus.errors import AddressInUse, OptionsError, TwinbusError

logger = logging.getLogger("twinbus.control")

REQUEST_BYTES_MAX = 256 * 1024
NESTING_MAX = 100
CLIENTS_MAX = 64
IDLE_S = 300.0
"""A client that sends nothing for this long is disconnected, so that none can hold all connections."""
ACCEPT_PAUSE_S = 1.0

Handler = Callable[[str, dict[str, Any]], Any]


class ControlServer:
    """Serves a handler on a unix socket. The handler is called in the loop and must not block for long."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self.path = path
        self._handler = handler
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._clients: dict[asyncio.Task[None], socket.socket] = {}

    async def start(self) -> None:
        """Listen, taking the place of a socket that a killed process left; raises `TwinbusError`."""
        self._listening = _bind(self.path)
        self._listening.listen()
        self._accepting = asyncio.get_running_loop().create_task(self._accept(self._listening))

    async def stop(self) -> None:
        """Hang up on everybody and remove the socket; harmless when it is stopped."""
        if self._listening is None or self._accepting is None:
            return
        with contextlib.suppress(OSError):
            self.path.unlink()
        clients, self._clients = self._clients, {}
        for task in (self._accepting, *clients):
            task.cancel()
        await asyncio.gather(self._accepting, *clients, return_exceptions=True)
        for link in (self._listening, *clients.values()):
            link.close()
        self._listening = self._accepting = None

    async def _accept(self, listening: socket.socket) -> None:
        """Take connections. Not asyncio's own server: it can forget one that comes while it is being closed."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                link, _ = await loop.sock_accept(listening)
            except OSError:  # too many open files: others may be closed soon
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            task = loop.create_task(self._serve(link, has_place=len(self._clients) < CLIENTS_MAX))
            self._clients[task] = link
            task.add_done_callback(lambda done: self._clients.pop(done, None))

    async def _serve(self, link: socket.socket, has_place: bool) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=link, limit=REQUEST_BYTES_MAX)
        try:
            with contextlib.suppress(OSError, TimeoutError):
                if has_place:
                    await self._converse(reader, writer)
                else:
                    writer.write(_failure(f"{CLIENTS_MAX} clients are connected already: try again later"))
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    line = await reader.readline()
            except ValueError:  # what asyncio makes of a line beyond the limit
                writer.write(_failure(f"a request has at most {REQUEST_BYTES_MAX} bytes", is_usage=True))
                return
            if not line.endswith(b"\n"):
                return
            writer.write(self._answer(line))
            async with asyncio.timeout(IDLE_S):
                await writer.drain()

    def _answer(self, line: bytes) -> bytes:
        try:
            result = self._handler(*_read_request(line))
        except OptionsError as error:
            return _failure(str(error), is_usage=True)
        except TwinbusError as error:
            return _failure(str(error))
        except Exception as error:  # a mistake of ours must not end the conversation
            logger.exception("a control request failed")
            return _failure(f"unexpected {type(error).__name__}: {error}")
        return json.dumps({"ok": True, "result": result}).encode() + b"\n"


def _read_request(line: bytes) -> tuple[str, dict[str, Any]]:
    if line.count(b"[") + line.count(b"{") > NESTING_MAX:  # before the parser's recursion is put to the test
        raise OptionsError(f"a request has at most {NESTING_MAX} lists and maps")
    try:
        document = json.loads(line)
    except ValueError:
        raise OptionsError("a request is one line of JSON") from None
    request = document.get("request") if isinstance(document, dict) else None
    arguments = document.get("arguments", {}) if isinstance(document, dict) else None
    if not isinstance(request, str) or not isinstance(arguments, dict):
        raise OptionsError('a request is an object with the text "request" and, if it needs them, the map "arguments"')
    return request, arguments


def _failure(text: str, *, is_usage: bool = False) -> bytes:
    error = " ".join(text.split())
    return json.dumps({"ok": False, "error": error, "is_usage": is_usage}).encode() + b"\n"


def _bind(path: Path) -> socket.socket:
    """A socket at the path, not listening yet: until its mode is set nobody can connect."""
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with SocketAddress(path) as address:
            listening.bind(address)
        path.chmod(0o600)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise TwinbusError(f"the control socket {path} cannot be made: {error.strerror or error}") from None
    return listening


def _remove_stale(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise TwinbusError(f"{path} is in the way: it is not a socket")
        if _is_answered(path):
            raise AddressInUse(f"the control socket {path} is in use by another process")
        path.unlink()


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, SocketAddress(path) as address:
        probe.settimeout(1)
        try:
            probe.connect(address)
        except TimeoutError:
            return True
        except OSError:
            return False
        return True


class RegisteredControls:
    """A control socket that others on this machine find in the local register: `start` it, and `stop` it at the end."""

    def __init__(
        self, kind: str, name: str, handler: Handler, *, directory: Path | None = None, number: int = 0
    ) -> None:
        """Without a `directory` the socket is in a temporary folder that ends with `stop`.

        `number`: see `Registration`.
        """
        self._kind, self._name, self._number = kind, name, number
        self._own_directory = tempfile.TemporaryDirectory(prefix="twinbus-") if directory is None else None
        folder = Path(self._own_directory.name) if self._own_directory is not None else directory or Path()
        self._server = ControlServer(folder / CONTROL_SOCKET, handler)
        self._registration: Registration | None = None

    async def start(self) -> None:
        """Raises `TwinbusError`."""
        await self._server.start()
        self._registration = Registration(self._kind, self._name, self._server.path, number=self._number)

    async def stop(self) -> None:
        """Harmless if it is stopped already."""
        if self._registration is not None:
            self._registration.end()
        await self._server.stop()
        if self._own_directory is not None:
            self._own_directory.cleanup()
