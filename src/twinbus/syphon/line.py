"""Our connection to one namespace: opened within a deadline, with tokens that are renewed in time.

Links are asked for and awaited; what then happens on them is told to the `Linked` they belong to, from the event loop
and without waiting, because that is where the messages go through.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import (
    Attached,
    ConnectionClosed,
    CreditChanged,
    Detached,
    DispositionArrived,
    Drained,
    Event,
    LinkRefused,
    Opened,
    SessionEnded,
    TransferArrived,
)
from twinbus.amqp.limits import ConnectionLimits
from twinbus.amqp.link import Link, ReceivingLink, SendingLink
from twinbus.amqp.outcomes import Error
from twinbus.amqp.sasl import ClientSasl
from twinbus.amqp.session import Session
from twinbus.amqp.types import Value
from twinbus.errors import AmqpError
from twinbus.pairing.failure import Failure
from twinbus.syphon.conversation import Conversation
from twinbus.syphon.failures import connection_failure, failure_of, no_answer, unreachable
from twinbus.syphon.linked import LineFailed, Linked
from twinbus.syphon.requests import PREFIX, Answer
from twinbus.syphon.tokens import TokenKeeper
from twinbus.syphon.wire import Wire

if TYPE_CHECKING:
    from twinbus.dial import Dial

IDLE_MS = 60_000
_LIMITS = ConnectionLimits(
    frame_bytes_max=1024 * 1024,
    incoming_window=20_000,
    message_bytes_max=128 * 1024 * 1024,
    held_bytes_max=256 * 1024 * 1024,
)
"""Large enough for any message of the service: the engine rejects a larger one, and a rejected one is a dead letter."""


class Line:
    def __init__(
        self,
        dial: Dial,
        *,
        attempt_s: float,
        clock: Callable[[], int],
        after: Callable[[], None] = lambda: None,
        lost: Callable[[Failure], None] = lambda _failure: None,
        broken: Callable[[Exception], None] = lambda _error: None,
        peeked: Callable[[str, Sequence[bytes]], None] = lambda _path, _letters: None,
    ) -> None:
        """`after` is called when everything that came in one piece has been told; `lost` once, at an unwished end.

        `broken` is called with what those who are told raise: a mistake of ours, which must not pass for an outage.
        `peeked` hears of every look into a queue, with what it found: that costs something.
        """
        self._dial = dial
        self._attempt_s = attempt_s
        self._after = after
        self._lost = lost
        self._broken = broken
        self.peeked = peeked
        self._connection = Connection(
            role=Role.CLIENT,
            container_id=f"twinbus-syphon-{uuid.uuid4().hex}",
            hostname=dial.hostname or dial.host,
            sasl=ClientSasl(),
            limits=_LIMITS,
            idle_timeout_ms=IDLE_MS,
        )
        self._wire = Wire(self._connection, clock, self._take, self._socket_lost)
        self._failure: Failure | None = None
        self._is_leaving = False
        self._opened: asyncio.Future[None] | None = None
        self._attaching: dict[Link, asyncio.Future[None]] = {}
        self._sessions: dict[str, Session] = {}
        self._conversations: dict[str, Conversation] = {}
        self._beginning: dict[str, asyncio.Lock] = {}
        """Address -> who begins a conversation there now; the others wait and share it."""
        self._tokens = TokenKeeper(dial, self._put_token)

    @property
    def is_open(self) -> bool:
        return self._failure is None and not self._connection.closed

    # --- opening and closing ---

    async def open(self) -> None:
        """Connect. Raises `LineFailed` within the time of an attempt."""
        loop = asyncio.get_running_loop()
        self._opened = loop.create_future()
        self._connection.open()
        dial = self._dial
        name = None if dial.tls is None else dial.server_hostname or dial.hostname or dial.host
        try:
            async with asyncio.timeout(self._attempt_s):
                await loop.create_connection(
                    lambda: self._wire, dial.host, dial.port, ssl=dial.tls, server_hostname=name
                )
                await self._opened
        except TimeoutError:
            self._wire.abort()
            raise LineFailed(no_answer(f"{dial.host}:{dial.port} did not open a connection in time")) from None
        except OSError as error:
            raise LineFailed(unreachable(error)) from None
        except BaseException:
            self._is_leaving = True  # nobody waits for it any more: its end is no news
            self._wire.abort()
            raise

    async def close(self) -> None:
        """Say goodbye, and hang up when it has been heard, or after a moment; at once if this is cancelled."""
        self._is_leaving = True
        try:
            await self._tokens.close()
            self._connection.close()
            self._wire.flush()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, self._attempt_s)):
                    while not self._connection.closed and self._failure is None:
                        await asyncio.sleep(0.005)
        finally:
            self._wire.abort()

    def flush(self) -> None:
        self._wire.flush()

    # --- links ---

    async def receiver(self, path: str, linked: Linked) -> ReceivingLink:
        """A link on which messages come under lock, each path in a session of its own: ids follow each other there."""
        await self._authorise(path)
        session = self._session(f"from {path}")
        link = session.attach_receiver(
            _link_name(path), path, snd_settle_mode=0, rcv_settle_mode=1, properties=_RECEIVER_PROPERTIES
        )
        await self._attached(link, linked, path)
        return link

    async def try_receiver(self, path: str) -> None:
        """See whether we would be let in to receive, and leave. Raises `LineFailed` with what was said instead.

        All such links share one session; no credit is given, so nothing comes and nothing is charged.
        """
        await self._authorise(path)
        link = self._session("tries").attach_receiver(
            _link_name(path), path, snd_settle_mode=0, rcv_settle_mode=1, properties=_RECEIVER_PROPERTIES
        )
        await self._tried(link, path)

    async def try_sender(self, path: str) -> None:
        """The same for sending."""
        await self._authorise(path)
        await self._tried(self._session("tries").attach_sender(_link_name(path), path, snd_settle_mode=0), path)

    async def _tried(self, link: Link, path: str) -> None:
        await self._attached(link, Linked(), path)
        link.context = None
        link.detach()
        self.flush()

    async def sender(self, path: str, linked: Linked) -> SendingLink:
        """A link with credit, on which every message is answered."""
        await self._authorise(path)
        link = self._session("to").attach_sender(_link_name(path), path, snd_settle_mode=0)
        await self._attached(link, linked, path)
        try:
            async with asyncio.timeout(self._attempt_s):
                await linked.credit_granted(link)
        except TimeoutError:
            link.detach()
            self.flush()
            raise LineFailed(no_answer(f"{path} gave no credit in time")) from None
        return link

    async def ask(self, path: str, operation: str, body: dict[str, Value]) -> Answer:
        """The answer of an entity's management. Raises `LineFailed` within the time of an attempt."""
        await self._authorise(path)
        return await self._ask(f"{path}/$management", {"operation": PREFIX + operation}, body)

    async def _attached(self, link: Link, linked: Linked, path: str) -> None:
        await self._answered(link, self._expect(link, linked), path)

    def _expect(self, link: Link, linked: Linked) -> asyncio.Future[None]:
        """Be ready for the answer to an attach. To be called before anybody can flush it: answers may come at once."""
        link.context = linked
        future = self._attaching[link] = asyncio.get_running_loop().create_future()
        return future

    async def _answered(self, link: Link, answer: asyncio.Future[None], path: str) -> None:
        self.flush()
        try:
            async with asyncio.timeout(self._attempt_s):
                await answer
        except TimeoutError:
            link.context = None
            link.detach()
            self.flush()
            raise LineFailed(no_answer(f"{path} did not answer a link in time")) from None
        finally:
            self._attaching.pop(link, None)

    def _session(self, name: str) -> Session:
        if self._failure is not None:
            raise LineFailed(self._failure)
        session = self._sessions.get(name)
        if session is None or session.ended:
            try:
                session = self._sessions[name] = self._connection.begin()
            except AmqpError as error:
                raise LineFailed(unreachable(error)) from None
        return session

    # --- requests and tokens ---

    async def _authorise(self, path: str) -> None:
        try:
            async with asyncio.timeout(self._attempt_s):
                await self._tokens.provide(path)
        except TimeoutError:
            raise LineFailed(no_answer(f"no token for {path} was put in time")) from None

    async def _put_token(self, properties: dict[str, Value], token: str) -> Answer:
        return await self._ask("$cbs", properties, token)

    async def _ask(self, address: str, properties: dict[str, Value], body: Value) -> Answer:
        # One for all who ask at the same time: a namespace keeps few links for a peer that has shown no token yet.
        async with self._beginning.setdefault(address, asyncio.Lock()):
            conversation = self._conversations.get(address)
            if conversation is None or not conversation.is_open:
                conversation = await self._converse(address)
        try:
            async with asyncio.timeout(self._attempt_s):
                return await conversation.ask(properties, body)
        except TimeoutError:
            raise LineFailed(no_answer(f"{address} did not answer a request in time")) from None

    async def _converse(self, address: str) -> Conversation:
        session, conversation = self._session("requests"), Conversation(self.flush)
        answers = session.attach_receiver(conversation.name, address, target=conversation.name)
        asking = session.attach_sender(f"{conversation.name}-asks", address, source=conversation.name)
        expected = [(link, self._expect(link, conversation)) for link in (answers, asking)]
        await asyncio.gather(*[self._answered(link, answer, address) for link, answer in expected])
        conversation.begin(asking, answers)
        self._conversations[address] = conversation
        return conversation

    # --- what the engine has seen ---

    def _take(self, events: list[Event]) -> None:
        try:
            self._tell(events)
        except Exception as error:
            self._broken(error)
            raise

    def _tell(self, events: list[Event]) -> None:
        together: list[TransferArrived] = []
        for event in events:
            if type(event) is TransferArrived:
                if together and together[0].link is not event.link:
                    _tell_transfers(together)
                    together = []
                together.append(event)
            else:
                self._take_one(event)
        if together:
            _tell_transfers(together)
        self._after()

    def _take_one(self, event: Event) -> None:
        match event:
            case DispositionArrived(link=link):
                if link.context is not None:
                    link.context.disposition(event)
            case CreditChanged(link=link):
                if link.context is not None:
                    link.context.credit(link)
            case Drained(link=link):
                if link.context is not None:
                    link.context.drained()
            case Attached(link=link):
                self._answer_attach(link, None)
            case LinkRefused(link=link, error=error):
                self._answer_attach(link, error or Error("amqp:link:detach-forced", "refused without a reason"))
            case Detached(link=link, error=error):
                self._gone(link, failure_of(error))
            case SessionEnded(session=session, error=error):
                for link in session.links:
                    self._gone(link, failure_of(error))
            case Opened():
                if self._opened is not None and not self._opened.done():
                    self._opened.set_result(None)
            case ConnectionClosed(error=error):
                self._end(connection_failure(error))

    def _answer_attach(self, link: Link, error: Error | None) -> None:
        future = self._attaching.get(link)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(LineFailed(failure_of(error)))

    def _gone(self, link: Link, failure: Failure) -> None:
        future, linked = self._attaching.get(link), link.context
        if future is not None and not future.done():
            future.set_exception(LineFailed(failure))
        elif linked is not None and not self._is_leaving:
            link.context = None
            linked.gone(failure)

    def _socket_lost(self, error: Exception | None) -> None:
        self._end(unreachable(error or ConnectionError("the connection was closed"), in_doubt=True))
        self._after()

    def _end(self, failure: Failure) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(LineFailed(failure))
            self._opened.exception()  # who waited for it may have been interrupted: then nobody asks, and that is fine
        for link in [link for session in self._connection.sessions for link in session.links]:
            self._gone(link, failure)
        self._tokens.stop()
        if not self._is_leaving:
            self._lost(failure)


def _tell_transfers(together: list[TransferArrived]) -> None:
    linked = together[0].link.context
    if linked is not None:
        linked.transfers(together)


_RECEIVER_PROPERTIES: dict[str, str] = {"com.microsoft:receiver-name": "twinbus-syphon"}


def _link_name(path: str) -> str:
    return f"syphon-{path}-{uuid.uuid4().hex}"
