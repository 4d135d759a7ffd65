"""A connection: bytes in, events out; calls in, bytes out. It never touches a socket or a clock.

    events = connection.receive(data, now_ms)      # from the socket
    data = connection.take_output()                # to the socket, after whatever was called
    events = connection.tick(now_ms)               # no later than next_tick_ms()

The engine answers open, begin, detach, end and close itself, keeps windows open and sends keep-alives. What it cannot
decide - whether to accept a link, what to do with a message - it reports as events.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING

from twinbus.amqp.codec.composites import read_descriptor
from twinbus.amqp.codec.decoding import count_elements
from twinbus.amqp.codec.frame_codec import read_disposition
from twinbus.amqp.codec.frames import AMQP_FRAME, EMPTY_FRAME, HEADER, SASL_FRAME, FrameReader
from twinbus.amqp.codec.outcomes import ConnectionViolation, Error, SessionViolation, error_of
from twinbus.amqp.codec.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Fields,
    Flow,
    Open,
    Performative,
    decode_performative,
)
from twinbus.amqp.events import ConnectionClosed, Opened, SessionBegun, SessionEnded
from twinbus.amqp.idle import IdleWatch
from twinbus.amqp.limits import FRAME_BYTES_MIN, ConnectionLimits
from twinbus.amqp.outbox import Outbox
from twinbus.amqp.peer_memory import ELEMENT_COST, Account
from twinbus.amqp.sasl import ClientHandshake, ClientSasl, Handshake, ServerHandshake, ServerSasl
from twinbus.amqp.session import OUTGOING_WINDOW, Session
from twinbus.errors import AmqpError

if TYPE_CHECKING:
    from twinbus.amqp.events import Event

TOO_MUCH = Error("amqp:resource-limit-exceeded", "this connection holds too much memory: read what was requested")

_TRANSFER = b"\x00\x53\x14"
_TRANSFER_CODE = 0x14
_DISPOSITION_CODE = 0x15
_SHORT_DISPOSITION = 1024
"""Bytes; a longer one is counted before it is decoded."""


class Role(Enum):
    CLIENT = "client"
    SERVER = "server"


class Connection:
    def __init__(
        self,
        *,
        role: Role,
        container_id: str,
        hostname: str | None = None,
        sasl: ServerSasl | ClientSasl | None = None,
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - frozen
        account: Account | None = None,
        idle_timeout_ms: int = 240_000,
        properties: Fields | None = None,
        offered_capabilities: tuple[str, ...] = (),
    ) -> None:
        """`account` is charged for the memory held for the peer; without one `limits.held_bytes_max` applies."""
        self.role = role
        self.container_id = container_id
        self.hostname = hostname
        self.limits = limits
        self.properties = properties
        self.offered_capabilities = offered_capabilities
        self.closed = False
        """Both directions are finished or failed: flush the output, then close the socket."""
        self.remote_open: Open | None = None
        self.outbox = Outbox()
        self.frame_bytes_out = FRAME_BYTES_MIN
        """The largest frame to send."""
        self.account = account or Account(limits.held_bytes_max)
        self.pending_events: list[Event] = []
        """Events caused by a call, not by bytes: the next receive or tick returns them."""
        self._idle_timeout_ms = idle_timeout_ms
        self._idle = IdleWatch(idle_timeout_ms)
        self._reader = FrameReader(limits.frame_bytes_max)
        self._input_cost = 0
        self._unfinished: Iterator[list[Event]] | None = None
        """The rest of a frame that takes a lot of work."""
        self._handshake = self._make_handshake(sasl)
        self._sessions: dict[int, Session] = {}
        self._sessions_by_remote_channel: dict[int, Session] = {}
        self._link_count = 0
        self._open_sent = False
        self._close_sent_ms: int | None = None

    # -- for the user of the engine

    @property
    def authenticated_as(self) -> str | None:
        """The user of SASL PLAIN, or "anonymous"; None before it is known."""
        return self._handshake.user

    @property
    def sessions(self) -> list[Session]:
        """The sessions that have not ended; after the close, those that had not ended by then."""
        return list(self._sessions.values())

    def open(self) -> None:
        """Start a client's connection; sessions and links may be opened at once."""
        if self.role is Role.SERVER:
            raise AmqpError("only a client opens a connection")
        if isinstance(self._handshake, ClientHandshake) and not self._open_sent:
            self._handshake.start()
            self._send_open()

    def begin(self) -> Session:
        """Begin a session; links may be attached to it at once."""
        if not self._open_sent or self.closed or self._close_sent_ms is not None:
            raise AmqpError("the connection is not open")
        session = Session(self, self._free_channel())
        self._sessions[session.channel] = session
        self._send_begin(session, None)
        return session

    def close(self, error: Error | None = None) -> None:
        """Send close; `closed` follows when the peer has answered, or after `limits.close_wait_ms`."""
        if self.closed or self._close_sent_ms is not None:
            return
        if not self._open_sent:
            self._stop()
            return
        self.outbox.add(0, Close(error))
        self._close_sent_ms = self._idle.now_ms or 0
        self._drop_sessions()

    def receive(self, data: bytes, now_ms: int, frames_max: int | None = None) -> list[Event]:
        """Handle bytes of the peer. A protocol error leads to a close frame and ConnectionClosed, never an exception.

        With `frames_max` at most that many frames are handled, fewer if they take a lot of work: then `has_more` is
        true and the next call, possibly without bytes, continues.
        """
        events = self._take_pending_events()
        self._idle.set_time(now_ms)
        if self.closed:
            return events
        if data:
            self._idle.received()
            self._reader.feed(data)
        try:
            self._handle_frames(events, frames_max)
            while frames_max is None and self._unfinished is not None and not self.closed:
                self._handle_frames(events, None)
            self.account.charge(self._reader.held - self._input_cost)
            self._input_cost = self._reader.held
            self._check_account()
        except AmqpError as mistake:
            self._fail(error_of(mistake), events)
        return events

    @property
    def has_more(self) -> bool:
        """Whether there is input left to handle without further bytes."""
        return not self.closed and (self._unfinished is not None or self._reader.has_more)

    def check_account(self) -> None:
        """Close the connection if the account is over its limit after a call."""
        if self.account.is_over and not self.closed:
            self._fail(TOO_MUCH, self.pending_events)

    def forget(self) -> None:
        """Release everything: the socket is gone.

        Sessions and links refer to each other, so without this they would wait for the garbage collector.
        """
        self.closed = True
        self._drop_sessions()
        for session in self._sessions.values():
            session.forget_links()
        self._sessions.clear()
        self._sessions_by_remote_channel.clear()
        self._reader = FrameReader(self.limits.frame_bytes_max)
        self._unfinished = self.remote_open = None
        self.pending_events.clear()
        self.outbox.chunks.clear()

    def take_output(self) -> bytes:
        """The bytes to write to the socket now; may be empty."""
        data = self.outbox.take()
        if data:
            self._idle.sent()
        return data

    def tick(self, now_ms: int, *, is_reading: bool = True) -> list[Event]:
        """Send keep-alives and notice timeouts. The first call starts the clocks.

        While nothing is read from the peer, it is not taken for gone.
        """
        events = self._take_pending_events()
        self._idle.set_time(now_ms)
        if not is_reading:
            self._idle.received()
        if self.closed:
            return events
        if self._close_sent_ms is not None and now_ms >= self._close_sent_ms + self.limits.close_wait_ms:
            self._stop()
            events.append(ConnectionClosed(None))
        elif self._idle.peer_is_gone():
            text = f"nothing was received for {self._idle_timeout_ms} ms"
            self._fail(Error("amqp:resource-limit-exceeded", text), events)
        elif self._open_sent and self._idle.keep_alive_is_due():
            self.outbox.chunks.append(EMPTY_FRAME)
        return events

    def next_tick_ms(self) -> int | None:
        """When to call `tick`; None: never, 0: before the first call. May become earlier with every `receive`."""
        if self.pending_events or self._idle.now_ms is None:
            return self._idle.now_ms or 0
        if self.closed:
            return None
        due = [self._idle.next_ms()]
        if self._close_sent_ms is not None:
            due.append(self._close_sent_ms + self.limits.close_wait_ms)
        return min((moment for moment in due if moment is not None), default=None)

    # -- for sessions

    def reserve_link(self) -> None:
        """Count one more link. Raises SessionViolation if there are too many."""
        if self._link_count >= self.limits.links_max:
            raise SessionViolation("amqp:resource-limit-exceeded", f"at most {self.limits.links_max} links")
        self._link_count += 1

    def release_links(self, count: int) -> None:
        self._link_count -= count

    # -- frames of the peer

    def _check_account(self) -> None:
        if self.account.is_over and not self.closed:
            raise ConnectionViolation(TOO_MUCH.condition, TOO_MUCH.description or "")

    def _handle_frames(self, events: list[Event], frames_max: int | None) -> None:
        if self._unfinished is not None:
            part = next(self._unfinished, None)
            if part is not None:
                events += part
                return
            self._unfinished = None
        by_channel, handshake, left = self._sessions_by_remote_channel, self._handshake, frames_max or -1
        for kind, channel, buffer, start, end in self._reader.frames():
            if kind == AMQP_FRAME and handshake.done:
                session = by_channel.get(channel)
                try:
                    if session is not None and buffer.startswith(_TRANSFER, start):
                        if not session.ended:
                            session.handle_transfer(buffer, start + 3, end, events)
                    elif start != end:
                        self._handle_body(channel, session, buffer[start:end], events)
                except SessionViolation as violation:
                    self._end_session(session, violation, events)
            elif kind == HEADER:
                handshake.handle_header(buffer[start:end])
            elif kind == SASL_FRAME and not handshake.done:
                handshake.handle_sasl(buffer[start:end], events)
            else:
                raise ConnectionViolation("amqp:connection:framing-error", f"unexpected frame of type {kind}")
            left -= 1
            if self.closed or left == 0 or self._unfinished is not None:
                return
            if self.account.is_over:
                self._check_account()

    def _handle_body(self, channel: int, session: Session | None, body: bytes, events: list[Event]) -> None:
        code, at = read_descriptor(body)
        if session is not None and not session.ended and self.remote_open is not None:
            if code == _DISPOSITION_CODE:
                if len(body) > _SHORT_DISPOSITION:
                    count_elements(body, 0, self.limits.elements_max)
                self._unfinished = session.handle_disposition(read_disposition(body), events)
                return
            if code == _TRANSFER_CODE:
                session.handle_transfer(body, at, len(body), events)
                return
        elif code == _TRANSFER_CODE and self.remote_open is not None:
            return  # the session has ended meanwhile
        # Nothing is decoded that the account cannot hold: a byte on the wire can be a hundred in memory.
        most = min(self.limits.elements_max, self.account.room // ELEMENT_COST)
        cost = len(body) + ELEMENT_COST * count_elements(body, 0, most)
        self._handle_performative(channel, session, decode_performative(body), cost, events)

    def _handle_performative(
        self, channel: int, session: Session | None, received: Performative, cost: int, events: list[Event]
    ) -> None:
        if isinstance(received, Open):
            self.account.charge(cost)
            self._handle_open(received, events)
            return
        if self.remote_open is None:
            raise ConnectionViolation("amqp:illegal-state", f"{type(received).__name__.lower()} before open")
        if isinstance(received, Close):
            self._handle_close(received, events)
        elif self._close_sent_ms is not None:
            return  # sent before the peer saw our close
        elif isinstance(received, Begin):
            self._handle_begin(channel, received, events)
        elif isinstance(received, End):
            self._handle_end(session, received, events)
        elif isinstance(received, (Attach, Flow, Detach)) and session is not None and not session.ended:
            session.handle(received, cost, events)

    def _handle_open(self, received: Open, events: list[Event]) -> None:
        if self.remote_open is not None:
            raise ConnectionViolation("amqp:illegal-state", "open was sent twice")
        if received.max_frame_size < FRAME_BYTES_MIN:
            raise ConnectionViolation("amqp:invalid-field", f"max-frame-size must be {FRAME_BYTES_MIN} or more")
        self.remote_open = received
        self.frame_bytes_out = min(received.max_frame_size, self.limits.frame_bytes_max)
        self._idle.set_peer_timeout(received.idle_time_out)
        self._send_open()
        events.append(Opened(received))

    def _handle_begin(self, channel: int, received: Begin, events: list[Event]) -> None:
        if channel >= self.limits.sessions_max:
            raise ConnectionViolation("amqp:connection:framing-error", f"channel {channel} is above channel-max")
        if channel in self._sessions_by_remote_channel:
            raise ConnectionViolation("amqp:not-allowed", f"channel {channel} is in use")
        session = self._session_begun_by(channel, received)
        self._sessions_by_remote_channel[channel] = session
        session.handle_begin(received, channel)
        events.append(SessionBegun(session))

    def _session_begun_by(self, channel: int, received: Begin) -> Session:
        if received.remote_channel is not None:
            session = self._sessions.get(received.remote_channel)
            if session is None or session.begun:
                raise ConnectionViolation(
                    "amqp:not-allowed", f"begin answers unknown channel {received.remote_channel}"
                )
            return session
        session = Session(self, channel if channel not in self._sessions else self._free_channel())
        self._sessions[session.channel] = session
        self._send_begin(session, channel)
        return session

    def _handle_end(self, session: Session | None, received: End, events: list[Event]) -> None:
        if session is None or session.remote_channel is None:
            return
        session.handle_end(received, events)
        self._sessions_by_remote_channel.pop(session.remote_channel, None)
        self._sessions.pop(session.channel, None)

    def _handle_close(self, received: Close, events: list[Event]) -> None:
        if self._close_sent_ms is None:
            self.outbox.add(0, Close())
        self._stop()
        events.append(ConnectionClosed(received.error))

    # -- sending

    def _send_open(self) -> None:
        if self._open_sent:
            return
        self._open_sent = True
        self.outbox.add(
            0,
            Open(
                container_id=self.container_id,
                hostname=self.hostname,
                max_frame_size=self.limits.frame_bytes_max,
                channel_max=self.limits.sessions_max - 1,
                idle_time_out=self._idle_timeout_ms or None,
                offered_capabilities=self.offered_capabilities or None,
                properties=self.properties,
            ),
        )

    def _send_begin(self, session: Session, remote_channel: int | None) -> None:
        session.send_frame(
            Begin(
                remote_channel=remote_channel,
                next_outgoing_id=0,
                incoming_window=self.limits.incoming_window,
                outgoing_window=OUTGOING_WINDOW,
                handle_max=self.limits.links_per_session_max - 1,
            )
        )

    # -- ends

    def _end_session(self, session: Session | None, violation: SessionViolation, events: list[Event]) -> None:
        if session is not None:
            session.end(violation.error)
            session.reported = True
            events.append(SessionEnded(session, violation.error))

    def _fail(self, error: Error, events: list[Event]) -> None:
        if self._handshake.done and self._close_sent_ms is None:
            self._send_open()  # a close must follow an open
            self.outbox.add(0, Close(error))
        self._stop()
        events.append(ConnectionClosed(error))

    def _stop(self) -> None:
        self.closed = True
        self._drop_sessions()

    def _drop_sessions(self) -> None:
        for session in self._sessions.values():
            session.drop()

    def _make_handshake(self, sasl: ServerSasl | ClientSasl | None) -> Handshake:
        if self.role is Role.SERVER and not isinstance(sasl, ClientSasl):
            return ServerHandshake(sasl, self._reader, self.outbox)
        if self.role is Role.CLIENT and not isinstance(sasl, ServerSasl):
            return ClientHandshake(sasl, self.hostname, self._reader, self.outbox)
        raise AmqpError(f"a {self.role.value} cannot use {type(sasl).__name__}")

    def _free_channel(self) -> int:
        highest = min(self.remote_open.channel_max if self.remote_open else 65_535, self.limits.sessions_max - 1)
        for channel in range(highest + 1):
            if channel not in self._sessions:
                return channel
        raise ConnectionViolation("amqp:resource-limit-exceeded", f"all {highest + 1} channels are in use")

    def _take_pending_events(self) -> list[Event]:
        events, self.pending_events = self.pending_events, []
        return events
