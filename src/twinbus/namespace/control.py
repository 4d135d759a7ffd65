"""The control socket: how a running namespace is switched from outside, whatever became of its port.

A unix socket that only its owner can open. Each request is one line of JSON, and so is each answer:

    {"request": "fault.add", "arguments": {"fault": "no-send", "entities": ["orders"], "length_ms": 30000}}
    {"ok": true, "result": {"id": "no-send-1", ...}}
    {"ok": false, "error": "no fault is called 'no-sent': did you mean no-send?", "is_usage": true}
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinbus.control_client import CONTROL_SOCKET, SocketAddress
from twinbus.errors import AddressInUse, OptionsError, TwinbusError
from twinbus.namespace.faults.switch import FaultSwitch

__all__ = ["CONTROL_SOCKET", "ControlDesk", "ControlServer"]

logger = logging.getLogger("twinbus.namespace")

REQUEST_BYTES_MAX = 256 * 1024
CLIENTS_MAX = 64
IDLE_S = 300.0
"""A client that says nothing for so long is hung up on, so that nobody can hold all the places."""

REQUESTS = ("fault.add", "fault.list", "fault.clear", "dump", "status", "ping")

Handler = Callable[[str, dict[str, Any]], Any]


class ControlDesk:
    """Answers the requests of one namespace; made to be the handler of a `ControlServer`."""

    def __init__(
        self,
        switch: FaultSwitch,
        *,
        clock: Callable[[], int],
        write_dump: Callable[[str], Path],
        status: Callable[[], dict[str, Any]],
    ) -> None:
        """`write_dump` is given the reason; `status` is what anybody may know, as plain values."""
        self._switch = switch
        self._clock = clock
        self._write_dump = write_dump
        self._status = status

    def __call__(self, request: str, arguments: dict[str, Any]) -> Any:
        """The result; raises `OptionsError` if the request makes no sense, `TwinbusError` if it cannot be done."""
        match request:
            case "ping":
                return "pong"
            case "status":
                return self._status()
            case "dump":
                return {"file": str(self._write_dump("asked"))}
            case "fault.add":
                return self._switch.add(arguments, self._clock())
            case "fault.list":
                return self._switch.in_force(self._clock())
            case "fault.clear":
                return self._clear(arguments)
            case _:
                raise OptionsError(f"no request is called {request!r:.60}: there are {', '.join(REQUESTS)}")

    def _clear(self, arguments: dict[str, Any]) -> list[str]:
        fault_id = arguments.get("id")
        if not isinstance(fault_id, str | None):
            raise OptionsError(f"id must be the id of a fault, got {fault_id!r:.60}")
        return self._switch.clear(fault_id, self._clock())


class ControlServer:
    """Serves a handler on a unix socket. The handler is called in the loop and must not block for long."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self.path = path
        self._handler = handler
        self._listener: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> None:
        """Listen, taking the place of a socket that a killed process left; raises `TwinbusError`."""
        listening = _bind(self.path)
        try:
            self._listener = await asyncio.start_unix_server(self._serve, sock=listening, limit=REQUEST_BYTES_MAX)
        except BaseException:
            listening.close()
            self.path.unlink(missing_ok=True)
            raise

    async def stop(self) -> None:
        """Hang up on everybody and remove the socket; harmless when it is stopped."""
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        listener.close()
        with contextlib.suppress(OSError):
            self.path.unlink()
        for writer in self._clients.values():
            writer.transport.abort()
        tasks = list(self._clients)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._listener is None or len(self._clients) >= CLIENTS_MAX:
            await _say_last(writer, _failure(f"{CLIENTS_MAX} clients are connected already: try again later"))
            return
        self._clients[task] = writer
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                await self._converse(reader, writer)
        finally:
            del self._clients[task]
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                line = await asyncio.wait_for(reader.readline(), IDLE_S)
            except ValueError:  # what asyncio makes of a line beyond the limit
                await _say_last(writer, _failure(f"a request has at most {REQUEST_BYTES_MAX} bytes", is_usage=True))
                return
            if not line.endswith(b"\n"):
                return
            writer.write(self._answer(line))
            await asyncio.wait_for(writer.drain(), IDLE_S)

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
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise OptionsError("a request is one line of JSON") from None
    request = said.get("request") if isinstance(said, dict) else None
    arguments = said.get("arguments", {}) if isinstance(said, dict) else None
    if not isinstance(request, str) or not isinstance(arguments, dict):
        raise OptionsError('a request is an object with the text "request" and, if it needs them, the map "arguments"')
    return request, arguments


def _failure(text: str, *, is_usage: bool = False) -> bytes:
    error = " ".join(text.split())
    return json.dumps({"ok": False, "error": error, "is_usage": is_usage}).encode() + b"\n"


async def _say_last(writer: asyncio.StreamWriter, line: bytes) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(line)
        await asyncio.wait_for(writer.drain(), 5)
        writer.close()


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
            raise TwinbusError(f"{path} is in the way: it is no socket")
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
