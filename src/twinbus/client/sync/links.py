"""Links of the sync SDK that open, send and close in bounded time.

Written apart from `aio/links.py`, because what can go wrong is different: no thread can be stopped from outside.
A link is opened on a thread that can be left behind: the SDK cannot be stopped while it connects. Once open it is used
on the caller's thread, because a hop to another thread costs a fifth of a send; the watchdog ends calls that hang.
After anything but a plain refusal a link is discarded, never used again, and closed in the background.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from time import monotonic
from typing import Any, TypeVar

from azure.servicebus import ServiceBusClient, ServiceBusSender

from twinbus.client.core.link_rules import CLOSE_S, KEEP_ALIVE_S, NO_KEEP_ALIVE
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
from twinbus.client.sdk.internals.connections import Heard, LastTransfer, LinkConnection
from twinbus.client.sdk.internals.handlers import is_running, keep_alive, max_batch_bytes, never_reopen
from twinbus.client.sdk.watchdog import Watchdog, WatchedCall
from twinbus.pairing.sending.failure import Failure

logger = logging.getLogger("twinbus.client")

Result = TypeVar("Result")


class SenderLink:
    """An open sender of the SDK on one queue or topic.

    One thread at a time: whoever has it sees to that. The fast way is `sender.send_messages(message, timeout=...)`
    itself, with `busy_until` set before and cleared after, then `given_up` and `failure_of` what it raised.
    """

    busy_until: float | None = None
    """When the call under way should be over, on the monotonic clock; the watchdog looks at it."""

    def __init__(self, entity: str, sender: ServiceBusSender, wire: LinkConnection, watchdog: Watchdog) -> None:
        """`sender` is open; `SenderLink.open` makes it so."""
        self.entity = entity
        self.sender = sender
        self._wire = wire
        self._watchdog = watchdog
        self._is_discarded = False
        self._is_cut = False
        self._last = LastTransfer(sender)
        self.max_batch_bytes = max_batch_bytes(sender)
        wire.be_patient()
        never_reopen(sender)
        _keep_alive(sender, entity)
        watchdog.watch(self)

    @classmethod
    def open(
        cls,
        client: ServiceBusClient,
        entity: str,
        *,
        deadline_s: float,
        watchdog: Watchdog,
        name: str | None = None,
        heard: Heard | None = None,
    ) -> SenderLink:
        """A link that is ready to send, within this time or a little more; raises `LinkFailed`.

        `name` is what the SDK calls a client identifier; `heard` is called with what the peer offers.
        """
        sender = client.get_queue_sender(entity, client_identifier=name, keep_alive=NO_KEEP_ALIVE)
        wire = _open_within(sender, entity, deadline_s, watchdog, heard)
        return cls(entity, sender, wire, watchdog)

    @property
    def is_usable(self) -> bool:
        """Whether it can be used again: some errors of the SDK leave a link open, most close it."""
        return is_running(self.sender) and not self._is_discarded

    @property
    def is_alive(self) -> bool:
        """Whether it seems to be good for another send after it lay idle: nobody hung up meanwhile."""
        return self.is_usable and not self._wire.has_ended

    def send(self, message: Any, deadline_s: float) -> None:
        """Store a message, a list of them or a batch; raises `LinkFailed`."""
        self._call(deadline_s, lambda: self.sender.send_messages(message, timeout=deadline_s), self.failure_of)

    def schedule(self, messages: Any, when: datetime, deadline_s: float) -> list[int]:
        """Store messages that appear later, and return the numbers by which they can be cancelled."""
        return self._call(deadline_s, lambda: self.sender.schedule_messages(messages, when, timeout=deadline_s))

    def cancel(self, numbers: int | list[int], deadline_s: float) -> None:
        """Take back scheduled messages; raises `LinkFailed` if one of them is not there any more."""
        self._call(deadline_s, lambda: self.sender.cancel_scheduled_messages(numbers, timeout=deadline_s))

    def sent_sizes(self) -> tuple[int, ...]:
        """Encoded bytes of each message of the last send; to be asked before the next one begins."""
        return self._last.sizes()

    def failure_of(self, error: BaseException) -> Failure:
        """What an exception of `sender.send_messages` means, and whether its transfer had left. Ask once."""
        has_left = self._last.had_left() and not failed_to_write(error)
        failure = describe(error, sending=True, has_left=has_left)
        return overdue(failure, self.entity) if self._is_cut else failure

    def cut(self) -> None:
        """Take the connection away from a call that hangs."""
        self._is_cut = True
        self._wire.cut()

    def discard(self) -> None:
        """Never use it again; returns at once, whatever state it is in. Closed on another thread."""
        if self._is_discarded:
            return
        self._is_discarded = True
        self._watchdog.forget(self)
        if self.busy_until is not None:
            self._wire.cut()
        _close_elsewhere(self.sender, self.entity, self._wire, self._watchdog)

    def given_up(self, error: BaseException) -> BaseException | None:
        """After a call raised: why the caller gave up, whatever the SDK made of that; None: the call failed."""
        self.busy_until = None
        return interruption(error)

    def _call(
        self, deadline_s: float, act: Callable[[], Result], explain: Callable[[BaseException], Failure] = asked_failure
    ) -> Result:
        self.busy_until = monotonic() + deadline_s
        try:
            return act()
        except Exception as error:
            given_up = interruption(error)
            if given_up is not None:
                raise given_up from None
            raise LinkFailed(explain(error)) from error
        finally:
            self.busy_until = None


class LinkOpener:
    """Opens links for one user, e.g. a paired client, and takes them away when that ends."""

    def __init__(self) -> None:
        self.watchdog = Watchdog()
        self._links: WeakRegister[SenderLink] = WeakRegister()

    def open(
        self,
        client: ServiceBusClient,
        entity: str,
        *,
        deadline_s: float,
        name: str | None = None,
        heard: Heard | None = None,
    ) -> SenderLink:
        """As `SenderLink.open`."""
        link = SenderLink.open(client, entity, deadline_s=deadline_s, watchdog=self.watchdog, name=name, heard=heard)
        self._links.add(link)
        return link

    def try_link(self, client: ServiceBusClient, entity: str, *, listens: bool, deadline_s: float) -> Failure | None:
        """None if a link opens, to send or to listen; otherwise why not. Leaves nothing open."""
        try:
            if listens:
                try_receiver(client, entity, deadline_s=deadline_s, watchdog=self.watchdog)
            else:
                self.open(client, entity, deadline_s=deadline_s).discard()
        except LinkFailed as failed:
            return failed.failure
        return None

    def end(self, client: ServiceBusClient) -> None:
        """Threads that open or use links of this client go on until they have ended, or `hang_up`."""

    def hang_up(self) -> None:
        """Take away every link, also those of senders that were forgotten instead of closed."""
        for link in self._links.all():
            link.discard()
        self.watchdog.stop()

    def wait_closed(self) -> None:
        """Links are closed by threads that nobody has to wait for."""


def close_client(client: ServiceBusClient) -> None:
    """Close a client of the SDK, and lists of sessions that nobody read to their end."""
    try:
        client.close()
    except Exception:
        logger.debug("the SDK could not close %r", client, exc_info=True)


def try_receiver(client: ServiceBusClient, entity: str, *, deadline_s: float, watchdog: Watchdog) -> None:
    """Open and close a receiver, which takes nothing; raises `LinkFailed` if it does not open within this time."""
    receiver = client.get_queue_receiver(entity, keep_alive=NO_KEEP_ALIVE)
    wire = _open_within(receiver, entity, deadline_s, watchdog)
    _close_elsewhere(receiver, entity, wire, watchdog)


class _Opening:
    """A sender or receiver that is being opened on a thread of its own, which may be left behind."""

    def __init__(self, handler: Any, deadline_s: float, watchdog: Watchdog, heard: Heard | None) -> None:
        self.wire = LinkConnection(handler, heard)
        self.busy_until: float | None = monotonic() + deadline_s
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self.is_open = False
        self.is_overdue = False
        """Given up before it ended, by whoever waits or by the watchdog: what it ends with is our own doing."""
        self.was_connected = False
        """Whether the peer had answered by then."""
        self._deadline = self.busy_until
        self._handler = handler
        self._watchdog = watchdog
        self._lock = threading.Lock()

    def run(self) -> None:
        try:
            self._handler.__enter__()
        except BaseException as error:
            self.error = error
        with self._lock:
            self.is_open = self.error is None and not self.is_overdue
            if self.is_open:
                self.busy_until = None
            self.ended.set()
        if not self.is_open:
            _close(self._handler, self.wire)
        self._watchdog.forget(self)

    def abandon(self) -> None:
        """Stop waiting for it, unless it ended in this very moment. A late success closes itself."""
        with self._lock:
            if not self.ended.is_set():
                self._give_up()
                self.wire.cut()

    def cut(self) -> None:
        with self._lock:
            if self.is_open:  # and in use: the watchdog looked just before
                return
            if not self.ended.is_set() and monotonic() >= self._deadline:  # otherwise everything is being closed
                self._give_up()
            self.wire.cut()

    def _give_up(self) -> None:
        if not self.is_overdue:
            self.is_overdue, self.was_connected = True, self.wire.is_connected


def _open_within(
    handler: Any, entity: str, deadline_s: float, watchdog: Watchdog, heard: Heard | None = None
) -> LinkConnection:
    """Open a sender or receiver of the SDK; raises `LinkFailed` when the time is over, even if the SDK does not end."""
    opening = _Opening(handler, deadline_s, watchdog, heard)
    watchdog.watch(opening)
    try:
        threading.Thread(target=opening.run, name=f"twinbus-open-{entity}", daemon=True).start()
        has_ended = opening.ended.wait(deadline_s)
    except BaseException:  # interrupted: what opens is of no use any more
        _leave(opening, handler, entity, watchdog)
        raise
    if not has_ended:
        opening.abandon()
    if opening.is_overdue:
        raise LinkFailed(no_answer(entity, deadline_s, is_connected=opening.was_connected)) from opening.error
    if opening.error is not None:
        raise LinkFailed(describe(opening.error, sending=False)) from opening.error
    return opening.wire


def _leave(opening: _Opening, handler: Any, entity: str, watchdog: Watchdog) -> None:
    opening.abandon()
    if opening.is_open:
        _close_elsewhere(handler, entity, opening.wire, watchdog)


def _keep_alive(sender: ServiceBusSender, entity: str) -> None:
    """Keep an idle link open, on a thread of its own."""
    work = keep_alive(sender, KEEP_ALIVE_S)
    threading.Thread(target=work, name=f"twinbus-keep-{entity}", daemon=True).start()


def _close_elsewhere(handler: Any, entity: str, wire: LinkConnection, watchdog: Watchdog) -> None:
    """Nobody waits for it."""
    call = WatchedCall(watchdog, CLOSE_S, wire.cut)

    def close() -> None:
        with call:
            _close(handler, wire)

    threading.Thread(target=close, name=f"twinbus-close-{entity}", daemon=True).start()


def _close(handler: Any, wire: LinkConnection) -> None:
    """Close politely if that can be done, and in any case."""
    try:
        handler.close()
    except Exception:
        logger.debug("the SDK could not close a link", exc_info=True)
    finally:
        wire.close()
