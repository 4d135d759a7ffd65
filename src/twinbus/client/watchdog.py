"""The watchdog: no call of the sync SDK hangs for ever, even where its `timeout=` does not reach.

The SDK waits without any bound, among others, while it negotiates SASL, while it renews its token in the middle of a
send, after the server has ended its session, and when bytes drip in one by one. All of these end when the connection is
taken from under them. One thread per bus looks a few times a second whether somebody waits for longer than he wanted
to, and shuts such a connection down; the hanging call then ends with an error by itself.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

LOOK_EVERY_S = 0.25
GRACE_S = 0.25
"""How long after its time a call may still end by itself."""
STOP_WAIT_S = 3.0


class Watched(Protocol):
    busy_until: float | None
    """On the monotonic clock; None while nobody waits."""

    def cut(self) -> None:
        """Take the connection from under the call; returns at once, never raises, may be repeated."""


class Watchdog:
    """Cuts the connections of calls that take too long."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._watched: set[Watched] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopping = False

    def watch(self, link: Watched) -> None:
        """Look after a link from now on; the thread starts with the first one."""
        with self._changed:
            self._watched.add(link)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="twinbus-watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()

    def forget(self, link: Watched) -> None:
        with self._changed:
            self._watched.discard(link)
            self._changed.notify()

    def stop(self) -> None:
        """Cut whatever is still busy, and end. What is watched later is looked after all the same."""
        with self._changed:
            thread, self._is_stopping = self._thread, True
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(STOP_WAIT_S)

    def look(self) -> None:
        """Cut what is overdue, once."""
        now = self._clock()
        for link in self._taken():
            until = link.busy_until
            if until is not None and (self._is_stopping or now > until + GRACE_S):
                link.cut()

    def _taken(self) -> list[Watched]:
        with self._changed:
            return list(self._watched)

    def _run(self) -> None:
        while self._is_needed():
            self.look()

    def _is_needed(self) -> bool:
        """Waits for the time of the next look; False when there will be none."""
        with self._changed:
            # Whoever is being opened when it stops has to be cut again and again until that ends: a connection that
            # is not there yet cannot be cut. So the thread may outlive stop() by as long as the SDK takes to connect.
            if not self._watched and not self._is_stopping:
                self._changed.wait()
            elif self._is_busy() or not self._is_stopping:
                self._changed.wait(LOOK_EVERY_S)
            if self._is_stopping and not self._is_busy():
                self._thread, self._is_stopping = None, False
                return False
            return True

    def _is_busy(self) -> bool:
        return any(link.busy_until is not None for link in self._watched)


class Wire:
    """The connections that one sender or receiver of the SDK makes, within reach of others."""

    def __init__(self, handler: Any) -> None:
        """`handler` must not be open yet: what it makes from now on is noted."""
        self._clients: list[Any] = []
        create = handler._create_handler

        def create_and_note(auth: Any) -> None:
            create(auth)
            self._clients.append(handler._handler)

        handler._create_handler = create_and_note

    @property
    def is_connected(self) -> bool:
        """Whether the server has answered as one: what is missing then is missing on the link."""
        return any(_is_open(client) for client in self._clients)

    @property
    def has_ended(self) -> bool:
        """Whether the peer has hung up, as far as the sockets know without waiting."""
        sockets = [_socket(client) for client in self._clients]
        return any(sock is not None and _is_at_end(sock) for sock in sockets)

    def cut(self) -> None:
        """Shut the connections down under whoever uses them."""
        for sock in [_socket(client) for client in self._clients]:
            if sock is not None:
                _shut(sock)

    def close(self) -> None:
        """Give the sockets back that the SDK forgets when it fails half-way."""
        clients, self._clients = self._clients, []
        for sock in [_socket(client) for client in clients]:
            if sock is not None:
                _shut(sock)
                sock.close()


def _is_open(client: Any) -> bool:
    return bool(getattr(getattr(client, "_connection", None), "_remote_max_frame_size", None))


def _socket(client: Any) -> socket.socket | None:
    connection = getattr(client, "_connection", None)
    found = getattr(getattr(connection, "_transport", None), "sock", None)
    inner = getattr(found, "sock", found)  # a WebSocket has one inside
    return inner if isinstance(inner, socket.socket) else None


def _is_at_end(sock: socket.socket) -> bool:
    try:
        poll = select.poll()  # first: a socket with a time-out would wait for it in recv, whatever the flags
        poll.register(sock, select.POLLIN)
        if not poll.poll(0):
            return False
        # Not the method of an SSLSocket, which knows no flags; what lies there is not taken.
        return socket.socket.recv(sock, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except (OSError, ValueError):  # closed, or broken
        return True


def _shut(sock: socket.socket) -> None:
    # Not the method of an SSLSocket: that one turns it into a plain socket, and whoever reads from it would take
    # ciphertext for frames.
    with contextlib.suppress(OSError):  # not connected yet, or not any more
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
