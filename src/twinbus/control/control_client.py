"""Talks to a running process through its control socket; `control/control_server.py` has the protocol."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

from twinbus.errors import OptionsError, TwinbusError

CONTROL_SOCKET = "control.sock"
ANSWER_WAIT_S = 30.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024
_ADDRESS_BYTES_MAX = 100
"""Systems allow 104 to 108 bytes in the address of a unix socket."""


class SocketAddress:
    """`with SocketAddress(path) as address:` an address for a socket at the path, however long the path is.

    A path that is too long is reached through a short link that exists only inside the block.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._shortcut: str | None = None

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= _ADDRESS_BYTES_MAX:
            return str(self._path)
        self._shortcut = tempfile.mkdtemp(prefix="twinbus-")
        link = Path(self._shortcut) / "d"
        link.symlink_to(self._path.parent, target_is_directory=True)
        return str(link / self._path.name)

    def __exit__(self, *_error: object) -> None:
        if self._shortcut is not None:
            shutil.rmtree(self._shortcut, ignore_errors=True)


def ask(path: Path, request: str, arguments: dict[str, Any] | None = None, *, wait_s: float = ANSWER_WAIT_S) -> Any:
    """The result of one request to the control socket at the path.

    Raises `OptionsError` if the process says that the request makes no sense, and `TwinbusError` if it cannot be
    reached, does not answer, or cannot do it.
    """
    line = json.dumps({"request": request, "arguments": arguments or {}}).encode() + b"\n"
    try:
        answer = json.loads(_converse(path, line, wait_s))
    except TimeoutError:
        raise TwinbusError(f"the process at {path} does not answer") from None
    except OSError as error:
        raise TwinbusError(f"nothing is running at {path}: {error.strerror or error}") from None
    except ValueError:
        raise TwinbusError(f"what answers at {path} is not twinbus") from None
    if isinstance(answer, dict) and answer.get("ok") is True:
        return answer.get("result")
    text = str(answer.get("error")) if isinstance(answer, dict) else "an answer that makes no sense"
    raise (OptionsError if isinstance(answer, dict) and answer.get("is_usage") else TwinbusError)(text)


def _converse(path: Path, line: bytes, wait_s: float) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(wait_s)
        with SocketAddress(path) as address:
            link.connect(address)
        return answer_to(line, link)


def answer_to(line: bytes, link: socket.socket) -> bytes:
    """What comes back for a request; raises `OSError` if nothing does."""
    with contextlib.suppress(ConnectionError):  # a server without room for us says so and hangs up without reading
        link.sendall(line)
    with link.makefile("rb") as answers:
        answer = answers.readline(ANSWER_BYTES_MAX)
    if not answer:
        raise ConnectionAbortedError(errno.ECONNABORTED, "it hung up without an answer")
    return answer
