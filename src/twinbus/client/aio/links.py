"""Links of the asyncio SDK that open, send and close in bounded time, and never hold up a cancellation.

Written apart from `sync/links.py`, because what can go wrong is different: a task can be cancelled where a thread
cannot, but the SDK swallows a cancellation now and then and tidies up slowly after others. So a link is opened on a
task that can be left behind, and a call that is overdue, or goes on though it was cancelled, loses its connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from time import monotonic
from typing import Any, TypeVar

from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.client.core.link_rules import CLOSE_S, CLOSED, KEEP_ALIVE_S, NO_KEEP_ALIVE
from twinbus.client.core.weak_register import WeakRegister
from twinbus.client.sdk.failures import (
    LinkFailed,
    asked_failure,
    describe,
    failed_to_write,
    interruption,
    no_answer,
    overdue,
)
from twinbus.client.sdk.internals.connections import AioLinkConnection, Heard, LastTransfer
from twinbus.client.sdk.internals.handlers import (
    is_running,
    keep_alive_async,
    max_batch_bytes,
    never_reopen_async,
    take_handlers,
)
from twinbus.client.sdk.watchdog import GRACE_S
from twinbus.pairing.sending.failure import Failure

logger = logging.getLogger("twinbus.client")

Result = TypeVar("Result")

_closings: set[asyncio.Task[None]] = set()
"""Tasks that close what nobody waits for: the event loop alone would let them be collected half-way."""


NEVER = float("inf")


LOOK_S = 1.0
"""How long a cancellation goes unnoticed that the SDK has swallowed."""


class Guard:
    """A timer that is set for every call and nearly never goes off; so it is one timer that is late to notice.

    To set and cancel a timer of the event loop for each of them would cost a hundredth of a send.
    """

    def __init__(
        self, act: Callable[[], None], loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = monotonic
    ) -> None:
        self._act = act
        self._loop = loop
        self._clock = clock
        self._due: float | None = None
        self.count: Callable[[], int] = int
        self.before = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = NEVER

    def start(self, seconds: float, count: Callable[[], int], before: int) -> None:
        """Act when this time and a little more has passed, unless cancelled before.

        Also, and soon, if the caller was cancelled and the call goes on: `count` says more than `before`.
        """
        now = self._clock()
        self._due = due = now + seconds + GRACE_S
        self.count, self.before = count, before
        if self._timer is None or due < self._timer_due:
            self._set(due, now)

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller was cancelled while this call is under way."""
        return self.count() > self.before

    def cancel(self) -> None:
        self._due = None
        self.count, self.before = int, 0  # the task that called, and all that it holds, is not kept

    def end(self) -> None:
        """Stop the timer. A call that is still under way goes on to know whether its caller was cancelled."""
        self._due = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_due = None, NEVER

    def _set(self, due: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = min(due, now + LOOK_S)
        self._timer = self._loop.call_later(self._timer_due - now, self._look)

    def _look(self) -> None:
        self._timer, self._timer_due = None, NEVER
        if self._due is None:
            return
        now = self._clock()
        if self._due > now and not self.is_cancelled:
            self._set(self._due, now)
        else:
            self._due = None
            self._act()


class SenderLink:
    """An open sender of the asyncio SDK on one queue or topic. One task at a time: whoever has it sees to that."""

    def __init__(self, entity: str, sender: ServiceBusSender, wire: AioLinkConnection) -> None:
        """`sender` is open; `SenderLink.open` makes it so."""
        self.entity = entity
        self.sender = sender
        self._wire = wire
        self._is_discarded = False
        self._is_torn = False
        self.guard = Guard(self._tear, asyncio.get_running_loop())
        """Takes the connection away from a call that is not over in time, or goes on though it was cancelled."""
        self._last = LastTransfer(sender)
        self.max_batch_bytes = max_batch_bytes(sender)
        wire.be_patient()
        never_reopen_async(sender)
        self._keeping_alive = asyncio.get_running_loop().create_task(keep_alive_async(sender, KEEP_ALIVE_S))

    @classmethod
    async def open(
        cls,
        client: ServiceBusClient,
        entity: str,
        *,
        deadline_s: float,
        name: str | None = None,
        heard: Heard | None = None,
    ) -> SenderLink:
        """A link that is ready to send, within this time; raises `LinkFailed`.

        `name` is what the SDK calls a client identifier; `heard` is called with what the peer offers.
        """
        sender = client.get_queue_sender(entity, client_identifier=name, keep_alive=NO_KEEP_ALIVE)
        return cls(entity, sender, await _open_within(sender, entity, deadline_s, heard))

    @property
    def is_usable(self) -> bool:
        """Whether it can be used again: some errors of the SDK leave a link open, most close it."""
        return is_running(self.sender) and not self._is_discarded and not self._is_torn

    @property
    def is_alive(self) -> bool:
        """Whether it seems to be good for another send after it lay idle: nobody hung up meanwhile."""
        return self.is_usable and not self._wire.has_ended

    async def send(self, message: Any, deadline_s: float) -> None:
        """Store a message, a list of them or a batch; raises `LinkFailed`."""
        await self._call(deadline_s, self.sender.send_messages(message, timeout=deadline_s), self.failure_of)

    async def schedule(self, messages: Any, when: datetime, deadline_s: float) -> list[int]:
        """Store messages that appear later, and return the numbers by which they can be cancelled."""
        return await self._call(deadline_s, self.sender.schedule_messages(messages, when, timeout=deadline_s))

    async def cancel(self, numbers: int | list[int], deadline_s: float) -> None:
        """Take back scheduled messages; raises `LinkFailed` if one of them is not there any more."""
        await self._call(deadline_s, self.sender.cancel_scheduled_messages(numbers, timeout=deadline_s))

    def sent_sizes(self) -> tuple[int, ...]:
        """Encoded bytes of each message of the last send; to be asked before the next one begins."""
        return self._last.sizes()

    def failure_of(self, error: BaseException) -> Failure:
        """What an exception of `sender.send_messages` means, and whether its transfer had left. Ask once."""
        has_left = self._last.had_left() and not failed_to_write(error)
        failure = describe(error, sending=True, has_left=has_left)
        return overdue(failure, self.entity) if self._is_torn else failure

    def discard(self) -> None:
        """Never use it again; returns at once, whatever state it is in. Closed by a task of its own."""
        if not self._is_discarded:
            self._is_discarded = True
            self._keeping_alive.cancel()
            self.guard.end()
            _close_elsewhere(self.sender, self._wire, is_polite=not self._is_torn)

    def start_call(self, deadline_s: float) -> None:
        """Before a call of `sender` itself: it loses the connection if it is not over in time."""
        count = cancellations()
        self.guard.start(deadline_s, count, count())

    def end_call(self) -> None:
        """After it returned; raises `CancelledError` if the SDK swallowed a cancellation."""
        guard = self.guard
        is_cancelled = guard.count() > guard.before
        guard.cancel()
        if is_cancelled:
            raise asyncio.CancelledError

    def given_up(self, error: BaseException) -> BaseException | None:
        """After it raised: why the caller gave up, whatever the SDK made of that; None: the call failed."""
        is_swallowed = self.guard.is_cancelled and isinstance(error, Exception)
        self.guard.cancel()
        return asyncio.CancelledError() if is_swallowed else interruption(error)

    async def _call(
        self,
        deadline_s: float,
        act: Awaitable[Result],
        explain: Callable[[BaseException], Failure] = asked_failure,
    ) -> Result:
        self.start_call(deadline_s)
        try:
            try:
                async with asyncio.timeout(deadline_s + 2 * GRACE_S):
                    result = await act
            except Exception as error:
                given_up = self.given_up(error)
                if given_up is not None:
                    raise given_up from None
                raise self._failed(error, deadline_s, explain) from error
            self.end_call()
            return result
        except LinkFailed:
            raise
        except BaseException:  # cancelled in the middle of whatever it was writing
            self._is_torn = True
            raise
        finally:
            self.guard.cancel()

    def _failed(self, error: Exception, deadline_s: float, explain: Callable[[BaseException], Failure]) -> LinkFailed:
        if isinstance(error, TimeoutError):
            self._is_torn = True
            error = OperationTimeoutError(message=f"{self.entity} did not answer within {deadline_s:g} s")
        return LinkFailed(explain(error))

    def _tear(self) -> None:
        self._is_torn = True
        self._wire.cut()


class ClientLinks:
    """Links of one client of the SDK, open or being opened; `end` ends both at once, however silent the peer is."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Future[SenderLink]] = set()
        self._links: WeakRegister[SenderLink] = WeakRegister()
        self._has_ended = False

    async def open(self, link: Coroutine[Any, Any, SenderLink]) -> SenderLink:
        """What `SenderLink.open` returns or raises; `LinkFailed` if it is ended meanwhile, or was before."""
        if self._has_ended:
            link.close()
            raise LinkFailed(CLOSED)
        opening, count = asyncio.ensure_future(link), cancellations()
        before = count()
        self._under_way.add(opening)
        try:
            opened = await opening
        except asyncio.CancelledError:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().discard()  # it opened in the very moment in which nobody wanted it any more
            if not self._has_ended or count() > before:
                raise
            raise LinkFailed(CLOSED) from None
        finally:
            self._under_way.discard(opening)
        self._links.add(opened)
        return opened

    def end(self) -> None:
        self._has_ended = True
        for opening in tuple(self._under_way):
            opening.cancel()
        for link in self._links.all():
            link.discard()


class LinkOpener:
    """Opens links for one user, e.g. a paired client, and takes them away when that ends."""

    def __init__(self) -> None:
        self._links: dict[ServiceBusClient, ClientLinks] = {}

    async def open(
        self,
        client: ServiceBusClient,
        entity: str,
        *,
        deadline_s: float,
        name: str | None = None,
        heard: Heard | None = None,
    ) -> SenderLink:
        """As `SenderLink.open`; also raises `LinkFailed` if links of this client are ended meanwhile."""
        opening = SenderLink.open(client, entity, deadline_s=deadline_s, name=name, heard=heard)
        return await self._links.setdefault(client, ClientLinks()).open(opening)

    async def try_link(
        self, client: ServiceBusClient, entity: str, *, listens: bool, deadline_s: float
    ) -> Failure | None:
        """None if a link opens, to send or to listen; otherwise why not. Leaves nothing open."""
        try:
            if listens:
                await try_receiver(client, entity, deadline_s=deadline_s)
            else:
                (await self.open(client, entity, deadline_s=deadline_s)).discard()
        except LinkFailed as failed:
            return failed.failure
        return None

    def end(self, client: ServiceBusClient) -> None:
        """No link of this client opens any more; whoever uses one learns that it ended."""
        self._links.setdefault(client, ClientLinks()).end()

    def hang_up(self) -> None:
        """Take away every link."""
        for client in tuple(self._links):
            self.end(client)

    async def wait_closed(self) -> None:
        """Returns when all links that were taken away are closed."""
        await all_closed()


async def close_client(client: ServiceBusClient) -> None:
    """Close a client of the SDK and all that it has made, whatever one of them raises.

    The SDK goes through its senders and receivers while they come and go, and gives up when one does; so each of those
    that are there now is closed first, and it finds none.
    """
    for each in (*take_handlers(client), client):
        try:
            await each.close()
        except Exception:
            logger.debug("the SDK could not close %r", each, exc_info=True)


async def try_receiver(client: ServiceBusClient, entity: str, *, deadline_s: float) -> None:
    """Open and close a receiver, which takes nothing; raises `LinkFailed` if it does not open within this time."""
    receiver = client.get_queue_receiver(entity, keep_alive=NO_KEEP_ALIVE)
    wire = await _open_within(receiver, entity, deadline_s)
    _close_elsewhere(receiver, wire, is_polite=True)


def cancellations() -> Callable[[], int]:
    """How often the current task was cancelled: compare before and after a call of the SDK.

    What the SDK reads with (`asyncio.wait_for`, up to Python 3.11) forgets a cancellation that comes together with an
    answer. Not within `asyncio.timeout`, which tells its task the same way.
    """
    task = asyncio.current_task()
    assert task is not None, "whoever awaits something of asyncio does so in a task"
    return task.cancelling


async def all_closed() -> None:
    """Returns when whatever was discarded on this event loop is closed, which takes a second or two at most."""
    loop = asyncio.get_running_loop()
    while mine := [task for task in _closings if task.get_loop() is loop]:
        await asyncio.wait(mine)


async def _open_within(handler: Any, entity: str, deadline_s: float, heard: Heard | None = None) -> AioLinkConnection:
    """Open a sender or receiver of the SDK; raises `LinkFailed` when the time is over."""
    wire = AioLinkConnection(handler, heard)
    opening = asyncio.ensure_future(handler.__aenter__())
    try:
        await asyncio.wait({opening}, timeout=deadline_s)
    except BaseException:
        _abandon(opening, handler, wire)
        raise
    if not opening.done():
        is_connected = wire.is_connected
        _abandon(opening, handler, wire)
        raise LinkFailed(no_answer(entity, deadline_s, is_connected=is_connected))
    error = opening.exception()
    if error is not None:
        _close_elsewhere(handler, wire, is_polite=False)
        raise LinkFailed(describe(error, sending=False)) from error
    return wire


def _abandon(opening: asyncio.Future[Any], handler: Any, wire: AioLinkConnection) -> None:
    opening.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody else asks for it
    opening.cancel()
    _close_elsewhere(handler, wire, is_polite=False, after=opening)


def _close_elsewhere(
    handler: Any, wire: AioLinkConnection, *, is_polite: bool, after: asyncio.Future[Any] | None = None
) -> None:
    task = asyncio.get_running_loop().create_task(_close(handler, wire, is_polite, after))
    _closings.add(task)
    task.add_done_callback(_closings.discard)


async def _close(handler: Any, wire: AioLinkConnection, is_polite: bool, after: asyncio.Future[Any] | None) -> None:
    """Close politely if that makes sense and can be done, and in any case."""
    if not is_polite:
        wire.cut()
    try:
        async with asyncio.timeout(CLOSE_S):
            if after is not None:
                await asyncio.wait({after})
            await handler.close()
    except Exception:
        logger.debug("the SDK could not close a link", exc_info=True)
    finally:
        if after is not None:
            after.cancel()
        await wire.close()
