"""A small HTTP proxy for tests: it connects whoever asks with CONNECT, and says what was asked of it."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from types import TracebackType

WAIT_S = 60.0


class ConnectProxy:
    """Listens in a `with` block."""

    def __init__(self, *, user: str | None = None, password: str = "", answer: bytes | None = None) -> None:
        """With a `user` it wants user and password. `answer` is what everybody gets instead of a connection.

        An empty answer: it stays silent.
        """
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._wanted = None if user is None else f"Proxy-Authorization: Basic {login}"
        self._answer = answer
        self.asked: list[str] = []
        """HOST:PORT of every request, in their order."""
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])

    def __enter__(self) -> ConnectProxy:
        threading.Thread(target=self._accept, name="connect-proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections."""
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(sock)
            threading.Thread(target=self._serve, args=(sock,), name="connect-proxy", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                data = sock.recv(65536)
                if not data:
                    return
                head += data
            self._connect(sock, head.decode().split("\r\n"))

    def _connect(self, sock: socket.socket, lines: list[str]) -> None:
        method, target, _ = lines[0].split(" ")
        assert method == "CONNECT"
        self.asked.append(target)
        if self._answer is not None:
            if self._answer:
                sock.sendall(self._answer)
                sock.shutdown(socket.SHUT_WR)
            return
        if self._wanted is not None and self._wanted not in lines:
            sock.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            sock.shutdown(socket.SHUT_WR)
            return
        host, _, port = target.rpartition(":")
        there = socket.create_connection((host, int(port)), timeout=WAIT_S)
        there.settimeout(None)
        self._open.append(there)
        sock.sendall(b"HTTP/1.1 200 Connection established\r\nVia: tests\r\n\r\n")
        threading.Thread(target=_pour, args=(there, sock), name="connect-proxy", daemon=True).start()
        _pour(sock, there)


def _pour(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
