"""A connection to one namespace: opened within a deadline, with tokens that are renewed in time.

Links are opened by coroutines; what happens on them later goes to their `LinkHandler` in callbacks of the event loop,
without waiting, because that is the path of the messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Self, TypeVar, assert_never

from twinbus.amqp.codec.outcomes import ConnectionViolation, Error
from twinbus.amqp.codec.performatives import Coordinator, Fields, Source
from twinbus.amqp.codec.types import Symbol, Value
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import (
    Attached,
    AttachRequested,
    Authenticated,
    ConnectionClosed,
    CreditChanged,
    Detached,
    DispositionArrived,
    Drained,
    Event,
    LinkRefused,
    Opened,
    SessionBegun,
    SessionEnded,
    TransferArrived,
)
from twinbus.amqp.limits import ConnectionLimits
from twinbus.amqp.link import Link
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sasl import ClientSasl
from twinbus.amqp.sending_link import SendingLink
from twinbus.amqp.session import Session
from twinbus.errors import AmqpError
from twinbus.pairing.sending.failure import Failure
from twinbus.transport.failures import ConnectionFailed, connection_failure, failure_of, no_answer, unreachable
from twinbus.transport.links.link_handler import LinkHandler
from twinbus.transport.links.requests import RequestLink, RequestLinks, Response
from twinbus.transport.network.amqp_stream import AmqpStream
from twinbus.transport.network.way import connect
from twinbus.transport.tokens import TokenRenewer

if TYPE_CHECKING:
    from twinbus.transport.dial import Dial

R = TypeVar("R")

_ABOUT_OTHER_MESSAGES = (DispositionArrived, CreditChanged)
"""Events that may be handled before messages that came before them."""
IDLE_MS = 60_000
SESSION_FILTER = Symbol("com.microsoft:session-filter")
LINKS_PER_SESSION = 200
TOKENS_MAX = 500
"""Entities that one connection should be used for: a namespace takes a limited number of tokens from each."""
_LIMITS = ConnectionLimits(
    frame_bytes_max=1024 * 1024,
    incoming_window=20_000,
    message_bytes_max=128 * 1024 * 1024,
    held_bytes_max=256 * 1024 * 1024,
)
"""Large enough for any message of the service: the engine rejects larger ones, and rejecting one dead-letters it."""


def monotonic_ms() -> int:
    return int(time.monotonic() * 1000)


class NamespaceConnection:
    """Use it in an `async with` block, or `open` and `close` it."""

    def __init__(
        self,
        dial: Dial,
        *,
        attempt_s: float,
        name: str = "syphon",
        clock: Callable[[], int] = monotonic_ms,
        after_events: Callable[[], None] = lambda: None,
        on_lost: Callable[[Failure], None] = lambda _failure: None,
        on_error: Callable[[Exception], None] = lambda _error: None,
        on_peek: Callable[[str, Sequence[bytes]], None] = lambda _path, _messages: None,
    ) -> None:
        """`name` says who connects: it is in the names of the container and of links, which peers show to people.

        `after_events` is called after all events of one read are handled; `on_lost` once, if we did not close it.
        `on_error` gets what a link handler raises: that is our bug, and must not look like an outage.
        `on_peek` gets every peek with the messages it returned, because peeks are charged.
        """
        self._dial = dial
        self._name = name
        self._attempt_s = attempt_s
        self._after_events = after_events
        self._on_lost = on_lost
        self._on_error = on_error
        self.on_peek = on_peek
        self._connection = Connection(
            role=Role.CLIENT,
            container_id=f"twinbus-{name}-{uuid.uuid4().hex}",
            hostname=dial.hostname or dial.host,
            sasl=ClientSasl(),
            limits=_LIMITS,
            idle_timeout_ms=IDLE_MS,
        )
        self._stream = AmqpStream(self._connection, clock, self._handle_events, self._socket_lost)
        self._failure: Failure | None = None
        self._is_closing = False
        self._opened: asyncio.Future[None] | None = None
        self._attaching: dict[Link, asyncio.Future[None]] = {}
        self._sessions: dict[str, Session] = {}
        self._request_links = RequestLinks(self._open_request_link)
        self._tokens = TokenRenewer(dial, lambda properties, token: self._request("$cbs", properties, token), name)

    @property
    def is_open(self) -> bool:
        return self._failure is None and not self._connection.closed

    @property
    def offers(self) -> frozenset[str]:
        """The capabilities that the peer offered when it opened."""
        remote = self._connection.remote_open
        return frozenset() if remote is None else frozenset(map(str, remote.offered_capabilities or ()))

    @property
    def attempt_s(self) -> float:
        """How long one attempt at anything may take."""
        return self._attempt_s

    @property
    def unsent_bytes(self) -> int:
        """What the peer has not taken; `after_events` is called when much of it has gone."""
        return self._stream.unsent_bytes

    def has_room_for(self, path: str, tokens_max: int = TOKENS_MAX) -> bool:
        """Whether it should be used for this entity, too; where it should not, open another one."""
        return self._tokens.has(path) or self._tokens.count < tokens_max

    def has_received_since(self, moment_ms: int) -> bool:
        """Whether the peer has sent anything since then, by the clock of this connection."""
        return self._stream.received_ms >= moment_ms

    # --- opening and closing ---

    async def open(self) -> None:
        """Connect. Raises `ConnectionFailed` after `attempt_s` at the latest."""
        self._opened = asyncio.get_running_loop().create_future()
        self._connection.open()
        dial = self._dial
        try:
            async with asyncio.timeout(self._attempt_s):
                await connect(dial, self._stream)
                await self._opened
        except TimeoutError:
            self._stream.abort()
            text = f"{dial.host}:{dial.port} did not open a connection in time"
            raise ConnectionFailed(no_answer(text, is_connection=True)) from None
        except OSError as error:
            raise ConnectionFailed(unreachable(error)) from None
        except BaseException:
            self._is_closing = True  # its end is not reported
            self._stream.abort()
            raise

    async def close(self) -> None:
        """Close, and wait a moment for the peer's close; abort at once if this is cancelled."""
        self._is_closing = True
        try:
            await self._tokens.close()
            self._connection.close()
            self._stream.flush()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, self._attempt_s)):
                    while not self._connection.closed and self._failure is None:
                        await asyncio.sleep(0.005)
        finally:
            self._stream.abort()

    def flush(self) -> None:
        self._stream.flush()

    def pause_reading(self) -> None:
        self._stream.pause_reading()

    def resume_reading(self) -> None:
        self._stream.resume_reading()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    # --- links ---

    async def open_receiver(self, path: str, handler: LinkHandler, *, session_id: str | None = None) -> ReceivingLink:
        """A peek-lock link. Each path has a session of its own, so that its delivery ids are consecutive.

        `session_id`: only messages of this session, which is locked meanwhile.
        """
        await self.log_in(path)
        link = self._attach_receiver(f"from {path}", path, session_id)
        await self._await_attach(link, self._expect(link, handler), path)
        return link

    async def open_receiver_as(
        self,
        path: str,
        handler: LinkHandler,
        *,
        name: str,
        deletes: bool,
        filters: Fields | None,
        properties: Fields | None,
        wait_s: float,
    ) -> ReceivingLink:
        """A link with this name, in a session of its own: as somebody else asked for it. It ends with `end_receiver`.

        `deletes`: receive-and-delete, else peek-lock; `wait_s`: added to the time that an answer may take.
        """
        await self.log_in(path)
        source = Source(path, filter=filters)
        modes = (1, 0) if deletes else (0, 1)
        link = self._begin().attach_receiver(
            name, source, snd_settle_mode=modes[0], rcv_settle_mode=modes[1], properties=properties
        )
        try:
            await self._await_attach(link, self._expect(link, handler), path, wait_s)
        except BaseException:
            self.end_receiver(link)
            raise
        return link

    def end_receiver(self, link: ReceivingLink) -> None:
        """Detach, and end the session of the link; nothing more is reported of it."""
        link.context = None
        if self._failure is None and not self._connection.closed:
            link.detach()
            link.session.end()
            self.flush()

    async def probe_receiver(self, path: str) -> None:
        """Check that we may receive. Raises `ConnectionFailed` with the reason if not.

        All probes share one session; no credit is granted, so nothing arrives and nothing is charged.
        """
        await self.log_in(path)
        await self._probe(self._attach_receiver("tries", path), path)

    async def probe_sender(self, path: str) -> None:
        """The same for sending."""
        await self.log_in(path)
        await self._probe(self._session("tries").attach_sender(self._link_name(path), path, snd_settle_mode=0), path)

    async def _probe(self, link: Link, path: str) -> None:
        await self._await_attach(link, self._expect(link, LinkHandler()), path)
        link.context = None
        link.detach()
        self.flush()

    async def open_coordinator(self, handler: LinkHandler) -> SendingLink:
        """A link with credit to the coordinator of transactions, in a session of its own."""
        link = self._session("transactions").attach_sender(self._link_name("transactions"), Coordinator())
        return await self._with_credit(link, handler, "the coordinator of transactions")

    async def open_sender(self, path: str, handler: LinkHandler, via: str | None = None) -> SendingLink:
        """A link with credit, on which every message is settled by the peer. `via`: the entity through which it sends
        there."""
        await self.log_in(path)
        if via is not None:
            await self.log_in(via)
        return await self._with_credit(self._attach_sender(path, via), handler, path)

    async def _with_credit(self, link: SendingLink, handler: LinkHandler, path: str) -> SendingLink:
        await self._await_attach(link, self._expect(link, handler), path)
        try:
            await handler.wait_for_credit(link, self._attempt_s, path)
        except (ConnectionFailed, asyncio.CancelledError):
            link.context = None
            if link.attached:
                link.detach()
                self.flush()
            raise
        return link

    async def request(
        self, path: str, operation: str, body: dict[str, Value], properties: Mapping[str, Value] | None = None
    ) -> Response:
        """The response of an entity's `$management`. Raises `ConnectionFailed` after `attempt_s` at the latest."""
        await self.log_in(path)
        asked = {**(properties or {}), "operation": f"com.microsoft:{operation}"}
        return await self._request(f"{path}/$management", asked, body)

    def _attach_sender(self, path: str, via: str | None = None) -> SendingLink:
        """On the first session that has room: peers limit the links of a session."""
        for number in count():
            session = self._session(f"to {number}")
            if len(session.links) < LINKS_PER_SESSION:
                try:
                    properties = None if via is None else {Symbol("com.microsoft:transfer-destination-address"): path}
                    target, name = via or path, self._link_name(path)
                    return session.attach_sender(name, target, snd_settle_mode=0, properties=properties)
                except AmqpError as error:
                    raise ConnectionFailed(unreachable(error)) from None
        raise AssertionError("sessions are counted without end")

    async def find_management(self, path: str) -> None:
        """Open the links for requests to an entity, unless they are open. Raises `ConnectionFailed`."""
        await self.log_in(path)
        await self._request_links.find(f"{path}/$management")

    async def exchange(self, path: str, payload: bytes, wait_s: float, transaction: bytes | None = None) -> bytes:
        """The encoded response of an entity's `$management` to an encoded request. Raises `ConnectionFailed`."""
        await self.log_in(path)
        address = f"{path}/$management"
        link = await self._request_links.find(address)
        return await _within(wait_s, link.exchange(payload, transaction), address)

    def _attach_receiver(self, session: str, path: str, session_id: str | None = None) -> ReceivingLink:
        wanted = None if session_id is None else {SESSION_FILTER: session_id}
        return self._session(session).attach_receiver(
            self._link_name(path),
            path if wanted is None else Source(path, filter=wanted),
            snd_settle_mode=0,
            rcv_settle_mode=1,
            properties={"com.microsoft:receiver-name": f"twinbus-{self._name}"},
        )

    def _link_name(self, path: str) -> str:
        return f"{self._name}-{path}-{uuid.uuid4().hex}"

    def _expect(self, link: Link, handler: LinkHandler) -> asyncio.Future[None]:
        """Be ready for the answer to an attach; must be called before anybody can flush it."""
        link.context = handler
        future = self._attaching[link] = asyncio.get_running_loop().create_future()
        return future

    async def _await_attach(self, link: Link, answer: asyncio.Future[None], path: str, wait_s: float = 0.0) -> None:
        self.flush()
        try:
            async with asyncio.timeout(self._attempt_s + wait_s):
                await answer
        except (TimeoutError, asyncio.CancelledError) as error:
            link.context = None
            link.detach()
            self.flush()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise ConnectionFailed(no_answer(f"{path} did not answer a link in time")) from None
        finally:
            self._attaching.pop(link, None)

    def _session(self, name: str) -> Session:
        if self._failure is not None:
            raise ConnectionFailed(self._failure)
        session = self._sessions.get(name)
        if session is None or session.ended:
            session = self._sessions[name] = self._begin()
        return session

    def _begin(self) -> Session:
        if self._failure is not None:
            raise ConnectionFailed(self._failure)
        try:
            return self._connection.begin()
        except ConnectionViolation as error:  # it has as many sessions as the peer, or we, allow
            raise ConnectionFailed(failure_of(error.error)) from None
        except AmqpError as error:
            raise ConnectionFailed(unreachable(error)) from None

    # --- requests and tokens ---

    async def log_in(self, path: str = "") -> None:
        """Prove who we are, for an entity or for the namespace as a whole. Raises `ConnectionFailed`."""
        try:
            async with asyncio.timeout(self._attempt_s):
                await self._tokens.provide(path)
        except TimeoutError:
            raise ConnectionFailed(no_answer(f"no token for {path} was put in time")) from None

    async def _request(self, address: str, properties: dict[str, Value], body: Value) -> Response:
        link = await self._request_links.find(address)
        return await _within(self._attempt_s, link.request(properties, body), address)

    async def _open_request_link(self, address: str) -> RequestLink:
        session, handler = self._session("requests"), RequestLink(address, self.flush, self._attempt_s, self._name)
        receiver = session.attach_receiver(handler.name, address, target=handler.name)
        sender = session.attach_sender(f"{handler.name}-asks", address, source=handler.name)
        expected = [(link, self._expect(link, handler)) for link in (receiver, sender)]
        await asyncio.gather(*[self._await_attach(link, answer, address) for link, answer in expected])
        handler.attached(sender, receiver)
        return handler

    # --- events of the engine ---

    def _handle_events(self, events: list[Event]) -> None:
        try:
            together: list[TransferArrived] = []
            for event in events:
                if type(event) is TransferArrived:
                    if together and together[0].link is not event.link:
                        _hand_over(together)
                        together = []
                    together.append(event)
                    continue
                if together and type(event) not in _ABOUT_OTHER_MESSAGES:
                    _hand_over(together)  # it came before: a link that ends, or is drained, has delivered it
                    together = []
                self._handle(event)
            if together:
                _hand_over(together)
            self._after_events()
        except Exception as error:
            self._on_error(error)
            raise

    def _handle(self, event: Event) -> None:
        match event:
            case DispositionArrived(link=link):
                if link.context is not None:
                    link.context.on_disposition(event)
            case CreditChanged(link=link):
                if link.context is not None:
                    link.context.on_credit(link)
            case Drained(link=link):
                if link.context is not None:
                    link.context.on_drained()
            case Attached(link=link):
                self._answer_attach(link, None)
            case LinkRefused(link=link, error=error):
                self._answer_attach(link, error or Error("amqp:link:detach-forced", "refused without a reason"))
            case Detached(link=link, error=error):
                self._detached(link, failure_of(error))
            case SessionEnded(session=session, error=error):
                for link in session.links:
                    self._detached(link, failure_of(error))
            case Opened():
                if self._opened is not None and not self._opened.done():
                    self._opened.set_result(None)
            case ConnectionClosed(error=error):
                self._end(connection_failure(error))
            case Authenticated() | SessionBegun() | AttachRequested() | TransferArrived():
                pass  # a namespace attaches no links to us, and transfers are handed over together
            case _:
                assert_never(event)

    def _answer_attach(self, link: Link, error: Error | None) -> None:
        future = self._attaching.get(link)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(ConnectionFailed(failure_of(error)))

    def _detached(self, link: Link, failure: Failure) -> None:
        future, handler = self._attaching.get(link), link.context
        if future is not None and not future.done():
            future.set_exception(ConnectionFailed(failure))
        elif handler is not None and not self._is_closing:
            link.context = None
            handler.on_detached(failure)

    def _socket_lost(self, error: Exception | None) -> None:
        self._end(unreachable(error or ConnectionError("the connection was closed"), in_doubt=True))
        self._after_events()

    def _end(self, failure: Failure) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(ConnectionFailed(failure))
            self._opened.exception()  # retrieved: the waiting task may have been cancelled
        for link in [link for session in self._connection.sessions for link in session.links]:
            self._detached(link, failure)
        self._tokens.stop()
        if not self._is_closing:
            self._on_lost(failure)


async def _within(seconds: float, answer: Awaitable[R], address: str) -> R:
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise ConnectionFailed(no_answer(f"{address} did not answer a request in time")) from None


def _hand_over(transfers: list[TransferArrived]) -> None:
    handler = transfers[0].link.context
    if handler is not None:
        handler.on_transfers(transfers)
