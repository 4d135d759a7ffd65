"""Links to one namespace on one shared connection, one link for each path, on which many messages travel at a time.

A connection or link that stopped answering is *retired*: nothing new uses it, what is on its way on it may still be
answered, and it is closed after that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic

from twinbus.amqp.codec.types import Value
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.sending_link import SendingLink
from twinbus.client.core.link_rules import CLOSED
from twinbus.client.native.failures import for_caller, is_doubtful_answer
from twinbus.client.native.send_window import PendingTransfer, SendWindow
from twinbus.client.sdk.failures import LinkFailed
from twinbus.earliest_timer import EarliestTimer
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.transport.connection import NamespaceConnection, monotonic_ms
from twinbus.transport.dial import Dial
from twinbus.transport.failures import ConnectionFailed, failure_of
from twinbus.transport.links.link_handler import LinkHandler
from twinbus.transport.links.requests import Response
from twinbus.transport.shared_connection import SharedConnection

LOGGER = logging.getLogger("twinbus.pairing")


class StoreTransfer(PendingTransfer):
    """A transfer whose sender awaits the answer."""

    __slots__ = ("_answer",)

    def __init__(self, size: int, at: float, answer: asyncio.Future[None]) -> None:
        super().__init__(size, at)
        self._answer = answer

    def stored(self, _at: float) -> None:
        if not self._answer.done():
            self._answer.set_result(None)

    def failed(self, failure: Failure, _at: float) -> None:
        if not self._answer.done():
            self._answer.set_exception(LinkFailed(failure))


class WindowLink(LinkHandler):
    """Passes what happens on a link to its window, once it is open."""

    def __init__(self, on_lost: Callable[[SendWindow], None]) -> None:
        super().__init__()
        self.window: SendWindow | None = None
        self._on_lost = on_lost

    def on_disposition(self, event: DispositionArrived) -> None:
        if self.window is not None:
            self.window.settled(event, monotonic())

    def on_credit(self, link: SendingLink) -> None:
        super().on_credit(link)
        if self.window is not None:
            self.window.fill(monotonic())
            if link.drain:
                link.drained()

    def on_detached(self, failure: Failure) -> None:
        super().on_detached(failure)
        if self.window is not None:
            self.window.lost(failure, monotonic())
            self._on_lost(self.window)


class NativeLinks:
    def __init__(
        self,
        dial: Dial,
        name: str,
        attempt_s: float,
        *,
        after_events: Callable[[], None] = lambda: None,
        on_offers: Callable[[frozenset[str]], None] = lambda _offers: None,
    ) -> None:
        """`after_events` is called when answers may have been handed on; `on_offers` with what the peer offers."""
        self._dial, self._name, self._attempt_s = dial, name, attempt_s
        self._after_events, self._on_offers = after_events, on_offers
        self._shared = SharedConnection(self._make)
        self._windows: dict[NamespaceConnection, set[SendWindow]] = {}
        """Of every connection that is not closed, retired ones included."""
        self._in_use: Counter[NamespaceConnection] = Counter()
        """Links that are being opened on a connection, and requests."""
        self._ready: dict[str, SendWindow] = {}
        self._opening: dict[str, asyncio.Task[SendWindow]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._timer = EarliestTimer(self._look)
        self._is_flush_due = False
        self._has_ended = False

    # --- links ---

    def ready(self, path: str) -> SendWindow | None:
        """The link to this path, if one is open that may be used."""
        window = self._ready.get(path)
        return None if window is None or window.is_retired else window

    @property
    def count(self) -> int:
        """How many links are open, or being opened."""
        return sum(map(len, self._windows.values())) + len(self._opening)

    def is_known(self, path: str) -> bool:
        """Whether a link to it is open, or being opened."""
        return path in self._opening or self.ready(path) is not None

    async def get(self, path: str, deadline_s: float) -> SendWindow:
        """The link to this path, opened if there is none; all callers share one attempt. Raises `LinkFailed`."""
        window = self.ready(path)
        if window is not None:
            return window
        if self._has_ended:
            raise LinkFailed(for_caller(CLOSED))
        opening = self._opening.get(path)
        if opening is None:
            opening = self._opening[path] = asyncio.get_running_loop().create_task(self._open_shared(path))
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(deadline_s):
                return await asyncio.shield(opening)
        except TimeoutError:
            raise LinkFailed(for_caller(self._silence(path, self._shared.current is None))) from None
        except LinkFailed as problem:  # others wait for the same: each gets an exception of its own
            raise LinkFailed(for_caller(problem.failure)) from None
        except asyncio.CancelledError:
            if self._has_ended and opening.cancelled():
                raise LinkFailed(for_caller(CLOSED)) from None
            raise

    async def open_anew(self, path: str, deadline_s: float) -> SendWindow:
        """A link on a new connection, which replaces the shared one; that is retired. Raises `LinkFailed`."""
        connection = self._make()
        is_open = False
        try:
            async with asyncio.timeout(deadline_s):
                await connection.open()
                is_open = True
                window = await self._attach(connection, path)
        except TimeoutError:
            self._close_later(connection)
            raise LinkFailed(for_caller(self._silence(path, not is_open))) from None
        except ConnectionFailed as problem:
            self._close_later(connection)
            raise LinkFailed(for_caller(problem.failure)) from None
        except BaseException:
            self._close_later(connection)
            raise
        before = self._shared.replace(connection)
        if before is not None:
            self._retire_connection(before)
        self._ready[path] = window
        return window

    def retire(self, window: SendWindow) -> None:
        """Send nothing more on it; it is closed once everything on it is answered."""
        window.is_retired = True
        if self._ready.get(window.path) is window:
            del self._ready[window.path]
        self._close_unused()

    async def store(self, window: SendWindow, payload: bytes, message_format: int) -> None:
        """Send one transfer and wait until it is stored; raises `LinkFailed`."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        window.send(payload, message_format, StoreTransfer(len(payload), monotonic(), answer))
        self.flush_soon()
        await answer

    async def request(
        self, path: str, operation: str, body: dict[str, Value], properties: Mapping[str, Value], deadline_s: float
    ) -> Response:
        """The response of an entity's `$management`; raises `LinkFailed` if there is none, or it reports a failure."""
        has_left = False
        try:
            async with asyncio.timeout(deadline_s):
                async with self._connection_for(path) as connection:
                    has_left = True
                    response = await connection.request(path, operation, body, properties)
        except TimeoutError:
            silence = Failure(FailureKind.NO_ANSWER, f"{path} did not answer a request within {deadline_s:g} s")
            raise LinkFailed(for_caller(silence, in_doubt=has_left)) from None
        except ConnectionFailed as problem:
            in_doubt = has_left and problem.failure.condition is None
            raise LinkFailed(for_caller(problem.failure, in_doubt=in_doubt)) from None
        if not response.is_ok:
            failure = failure_of(response.error)
            raise LinkFailed(for_caller(failure, in_doubt=is_doubtful_answer(failure)))
        return response

    # --- output ---

    def flush_soon(self) -> None:
        """Write what was sent, together with what is sent in the same round of the event loop."""
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        for connection in self._windows:
            connection.flush()

    # --- the end ---

    def end(self) -> None:
        """Open no more links, and fail everything that is on its way."""
        self._has_ended = True
        for opening in tuple(self._opening.values()):
            opening.cancel()
        now = monotonic()
        for windows in tuple(self._windows.values()):
            for window in tuple(windows):
                window.link.context = None
                window.lost(CLOSED, now)
        self._timer.cancel()

    async def close(self) -> None:
        """After `end`."""
        await self._shared.close()
        for connection in tuple(self._windows):
            self._close_later(connection)
        while self._closing:
            await asyncio.wait(self._closing)

    # --- opening ---

    def _make(self) -> NamespaceConnection:
        return NamespaceConnection(
            self._dial,
            attempt_s=self._attempt_s,
            name=self._name,
            after_events=self._after_events,
            on_lost=lambda _failure: self._close_unused(),
            on_error=lambda error: LOGGER.error("event=internal_error reason=%r", "a link failed", exc_info=error),
        )

    async def _open_shared(self, path: str) -> SendWindow:
        try:
            window = self._ready[path] = await self.open_alone(path, self._attempt_s)
            return window
        finally:
            del self._opening[path]

    async def open_alone(self, path: str, deadline_s: float) -> SendWindow:
        """A link of its own to this path, on the shared connection; `retire` it. Raises `LinkFailed`."""
        connection, began_ms = None, monotonic_ms()
        try:
            async with asyncio.timeout(deadline_s), self._connection_for(path) as connection:
                return await self._attach(connection, path)
        except TimeoutError:
            is_silent = connection is None or not connection.has_received_since(began_ms)
            if connection is not None and is_silent:
                self._distrust(connection)
            raise LinkFailed(for_caller(self._silence(path, is_silent))) from None
        except ConnectionFailed as problem:
            raise LinkFailed(for_caller(problem.failure)) from None

    @asynccontextmanager
    async def _connection_for(self, path: str) -> AsyncIterator[NamespaceConnection]:
        """The shared connection, kept open meanwhile; a new one if it has no room for another path.

        Links that are open on the one before stay in use.
        """
        connection = await self._shared.get()
        if not connection.has_room_for(path):
            if self._shared.current is connection:
                self._shared.replace(None)
            connection = await self._shared.get()
        self._windows.setdefault(connection, set())
        self._in_use[connection] += 1
        try:
            yield connection
        finally:
            self._in_use[connection] -= 1
            if not self._in_use[connection]:
                del self._in_use[connection]
                self._close_unused()

    async def _attach(self, connection: NamespaceConnection, path: str) -> SendWindow:
        self._on_offers(connection.offers)
        windows = self._windows.setdefault(connection, set())
        handler = WindowLink(self._link_lost)
        link = await connection.open_sender(path, handler)
        window = handler.window = SendWindow(path, link, self._attempt_s, monotonic(), self._look_at)
        windows.add(window)
        return window

    def _silence(self, path: str, is_connection: bool) -> Failure:
        who = "nobody answered" if is_connection else f"{path} did not answer"
        return Failure(FailureKind.NO_ANSWER, f"{who} while a link was opened", is_connection=is_connection)

    # --- time-outs and silent peers ---

    def _look_at(self, at: float) -> None:
        if not self._has_ended:
            self._timer.set(at, at - monotonic())

    def _look(self) -> None:
        now = monotonic()
        for connection, windows in tuple(self._windows.items()):
            for window in tuple(windows):
                window.look(now)
                if window.is_silent and not connection.has_received_since(monotonic_ms() - int(self._attempt_s * 1000)):
                    self._distrust(connection)
        due = [at for windows in self._windows.values() for each in windows if (at := each.due_at()) is not None]
        if due:
            self._look_at(max(min(due), now + 0.001))
        self._close_unused()
        self._after_events()

    def _distrust(self, connection: NamespaceConnection) -> None:
        """The peer is silent: the next user opens another connection."""
        if self._shared.current is connection:
            self._shared.replace(None)
        self._retire_connection(connection)

    def _retire_connection(self, connection: NamespaceConnection) -> None:
        for window in self._windows.get(connection, ()):
            window.is_retired = True
        self._close_unused()

    def _link_lost(self, window: SendWindow) -> None:
        if self._ready.get(window.path) is window:
            del self._ready[window.path]
        for windows in self._windows.values():
            windows.discard(window)

    def _close_unused(self) -> None:
        """Close links that are retired and empty, and connections that nobody will use again."""
        current = self._shared.current
        for connection, windows in tuple(self._windows.items()):
            for window in [each for each in windows if each.is_retired and each.is_empty]:
                windows.discard(window)
                if not window.has_ended:
                    window.has_ended = True
                    window.link.context = None
                    window.link.detach()
                    self.flush_soon()
            if connection is not current and not windows and connection not in self._in_use:
                self._close_later(connection)

    def _close_later(self, connection: NamespaceConnection) -> None:
        self._windows.pop(connection, None)
        task = asyncio.get_running_loop().create_task(connection.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
