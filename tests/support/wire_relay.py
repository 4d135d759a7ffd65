"""A relay in front of a server that can misbehave in ways no server does on purpose: at the level of bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType


class Relay:
    """Forwards connections to a port of this machine. Answers can be held back and others put in their place."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._clients: list[socket.socket] = []
        self._ends: list[socket.socket] = []
        self.said = bytearray()
        """All that clients have said so far."""
        self.swap: tuple[bytes, bytes] | None = None
        """What to replace in all that the server says, and by what; of the same length."""
        self._is_silent = threading.Event()
        self._left: list[socket.socket] = []
        self._first_words: dict[socket.socket, bytes] = {}
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def connections(self) -> int:
        """How many clients have come and not left. A server's own count has the connections of others in it."""
        return len(self._clients) - len(self._left)

    def wait_until_all_left(self, within_s: float = 60.0) -> None:
        """A bound, not a pace. If somebody stays, the error shows what that one said first."""
        deadline = time.monotonic() + within_s
        while self.connections:
            here = [self._first_words.get(client, b"") for client in self._clients if client not in self._left]
            assert time.monotonic() < deadline, f"still connected: {here}"
            time.sleep(0.01)

    def go_silent(self) -> None:
        """From now on nothing that the server says gets through."""
        self._is_silent.set()

    def say(self, data: bytes) -> None:
        """Say something to all clients in the server's stead."""
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.sendall(data)

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in (self._listener, *self._clients, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._clients.append(client)
            self._ends.append(server)
            for ends in ((client, server), (server, client)):
                thread = threading.Thread(target=self._forward, args=ends, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        is_answer = target in self._clients
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._first_words[source] = (self._first_words.get(source, b"") + data)[:500]
                self.said += b"" if is_answer else data
                if is_answer and self.swap is not None:
                    data = data.replace(*self.swap)
                if not (is_answer and self._is_silent.is_set()):
                    target.sendall(data)
        if not is_answer:
            self._left.append(source)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
