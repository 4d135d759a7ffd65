"""One connection from its acceptance to its end, whoever turns out to be there.

A guest says a first word, perhaps goes through a TLS handshake, and is then handed to whoever speaks its language.
Until it has shown who it is (an open AMQP connection, a whole HTTP request) it is on a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Protocol

from twinbus.amqp.account import Account, Pool
from twinbus.namespace.limits import ServerLimits
from twinbus.namespace.small_tls import accept_tls
from twinbus.namespace.sniff import TLS_HANDSHAKE, Language, language_of

TURNED_AWAY_S = 5.0
"""How long a guest for whom there is no room may take to hear that."""
TLS_SHUTDOWN_S = 1.0
TLS_ONLY = "this namespace takes connections over TLS only: use TLS, or serve it with --no-tls-only"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Voice(asyncio.Protocol):
    """Whoever talks to a guest. It tells the guest when it is known (`admit`) and when it is gone (`leave`)."""

    def hush(self) -> None:
        """Neither hear nor say anything until `speak`."""

    def speak(self) -> None:
        """Go on."""


class Host(Protocol):
    """What a guest needs of the listener that took it in."""

    limits: ServerLimits
    is_silent: bool

    @property
    def is_tls_only(self) -> bool:
        """Whether guests without TLS are refused."""

    voices: dict[Language, Callable[[Guest], Voice]]
    """Who talks to guests of which language."""

    unauthenticated: Pool
    """What is kept for guests that have not shown who they are."""
    authenticated: Pool

    def tls_context(self) -> ssl.SSLContext: ...

    def forget(self, guest: Guest) -> None: ...

    def recognise(self, guest: Guest) -> None:
        """It has shown who it is."""


class Guest:
    def __init__(self, sock: socket.socket, host: Host, *, is_turned_away: bool) -> None:
        """`is_turned_away`: there is no room; it is let in only to be told so."""
        self.is_turned_away = is_turned_away
        self.address = _address(sock)
        self.transport: asyncio.Transport | None = None
        self._socket = sock
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._voice: Voice | None = None
        self._meeting: asyncio.Task[None] | None = None
        self._is_tls = False
        self.is_known = False
        """Whether it has shown who it is."""
        self.account = Account(host.limits.unauthenticated_bytes, host.unauthenticated, close=self.abort)
        self._patience: asyncio.TimerHandle | None = None
        self._be_patient()

    # --- its way in ---

    def listen(self) -> None:
        """Wait for the first word, or go on where silence stopped it."""
        if self._voice is not None:
            self._voice.speak()
        elif self._meeting is None:
            self._loop.add_reader(self._socket, self._hear_first_byte)
        if not self.is_known:
            self._be_patient()

    def hush(self) -> None:
        """Neither hear nor say anything until `listen`."""
        if self._voice is not None:
            self._voice.hush()
        elif self._meeting is None:
            self._loop.remove_reader(self._socket)

    def admit(self) -> None:
        """It is known who is there: no deadline any more."""
        if not self.is_known:
            self.account.move(self._host.limits.held_bytes, self._host.authenticated)
            self._host.recognise(self)
        self.is_known = True
        self._end_patience()

    def leave(self) -> None:
        """The connection is gone."""
        self._end_patience()
        self.account.leave()
        self._host.forget(self)

    def talk_to(self, voice: Voice) -> None:
        """This one talks to the guest from now on."""
        self._voice = voice

    def voice_for(self, language: Language) -> Voice | None:
        """Who talks to guests that speak so; None: nobody does."""
        make = self._host.voices.get(language)
        return None if make is None else make(self)

    @property
    def is_leaving(self) -> bool:
        """Whether it was hung up on; it may still be taking the last words."""
        return self.transport is not None and self.transport.is_closing()

    @property
    def must_use_tls(self) -> bool:
        """Whether it came without TLS where that is not allowed: it is told so, and nothing else."""
        return self._host.is_tls_only and not self._is_tls

    @property
    def must_be_silent(self) -> bool:
        return self._host.is_silent

    def make_room(self) -> None:
        """Cut off whoever takes most, as long as too much is kept for guests of its standing."""
        for pool in (self._host.unauthenticated, self._host.authenticated):
            while pool.is_over and (largest := pool.largest()) is not None:
                largest.leave()
                largest.close()

    def _hear_first_byte(self) -> None:
        """Look, without taking it: TLS reads its own bytes from the socket."""
        try:
            first = self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        self._loop.remove_reader(self._socket)
        if first:
            self._meeting = self._loop.create_task(self._meet(is_tls=first[0] == TLS_HANDSHAKE))
            self._meeting.add_done_callback(self._met)
        else:
            self._close_socket()

    async def _meet(self, *, is_tls: bool) -> None:
        limits = self._host.limits
        self._is_tls = is_tls
        with contextlib.suppress(OSError):  # no TLS after all, not in time, or gone
            if is_tls:
                context, handshake_s = self._host.tls_context(), limits.tls_handshake_s
                greeting = Greeting(self)
                await accept_tls(self._socket, greeting, context, handshake_s=handshake_s, shutdown_s=TLS_SHUTDOWN_S)
            else:
                await self._loop.connect_accepted_socket(lambda: Greeting(self), self._socket)

    def _met(self, _: asyncio.Task[None]) -> None:
        if self.transport is None:
            self._close_socket()

    # --- its way out ---

    def abort(self, *, reset: bool = False) -> None:
        """Hang up without a word; with `reset` the peer sees the connection break instead of end."""
        if reset:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        if self.transport is not None:
            self.transport.abort()
        elif self._meeting is not None:
            self._meeting.cancel()
        else:
            self._loop.remove_reader(self._socket)
            self._close_socket()

    def _close_socket(self) -> None:
        self._socket.close()
        self.leave()

    def _be_patient(self) -> None:
        self._end_patience()
        limit_s = self._host.limits.unauthenticated_s
        self._patience = self._loop.call_later(
            min(limit_s, TURNED_AWAY_S) if self.is_turned_away else limit_s, self._lose_patience
        )

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        if not self._host.is_silent:  # else it is us who do not answer
            self.abort()


class Greeting(Voice):
    """Hears the first word of a guest, inside TLS if there is TLS, and hands it on."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = self._guest.transport = transport
        self._guest.talk_to(self)
        if self._guest.must_be_silent:
            self.hush()

    def data_received(self, data: bytes) -> None:
        self._heard += data
        language = language_of(self._heard)
        if language is None:
            return
        voice = self._guest.voice_for(language)
        if voice is None:
            self._transport.close()
            return
        self._guest.talk_to(voice)
        self._transport.set_protocol(voice)
        voice.connection_made(self._transport)
        voice.data_received(self._heard)

    def connection_lost(self, error: Exception | None) -> None:
        self._guest.leave()

    def hush(self) -> None:
        self._transport.pause_reading()

    def speak(self) -> None:
        self._transport.resume_reading()


class UnreadWatch:
    """Hangs up on a peer that takes nothing although a lot waits for it."""

    def __init__(self, transport: asyncio.Transport, limit_s: float, taken: Callable[[], int]) -> None:
        """`taken`: a number that grows whenever the peer takes something."""
        self._transport = transport
        self._limit_s = limit_s
        self._taken = taken
        self._taken_before = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """A lot waits for the peer from now on."""
        self.end()
        self._taken_before = self._taken()
        self._timer = asyncio.get_running_loop().call_later(self._limit_s, self._look)

    def end(self) -> None:
        """Not so much any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._taken() > self._taken_before:
            self.begin()
        else:
            self._transport.abort()


def _address(sock: socket.socket) -> str:
    """Of the machine at the other end."""
    try:
        return str(sock.getpeername()[0])
    except OSError:  # it is gone already
        return ""
