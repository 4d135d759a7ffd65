"""Links of the sync SDK that open, send and close in bounded time.

A link is opened on a thread that can be left behind: the SDK cannot be stopped while it connects. Once open it is used
on the caller's thread, because a hop to another thread costs a fifth of a send; the watchdog ends calls that hang.
After anything but a plain refusal a link is discarded, never used again, and closed out of everybody's way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from time import monotonic
from typing import Any, TypeVar

from azure.servicebus import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusConnectionError

from twinbus.client.failures import (
    LinkFailed,
    asked_failure,
    describe,
    failed_to_write,
    interruption,
    no_answer,
    overdue,
)
from twinbus.client.watchdog import Watchdog
from twinbus.client.wires import Heard, LastTransfer, Wire
from twinbus.pairing.failure import Failure

__all__ = ["LinkFailed", "ReceiverProbe", "SenderLink"]

logger = logging.getLogger("twinbus.client")

Result = TypeVar("Result")

KEEP_ALIVE_S, NO_KEEP_ALIVE = 30, 0
"""How often a link that nobody uses shows that it is there. The SDK would begin with that before the link is open, and
wait a second for it to end whenever it fails: longer than many a refusal should take to be heard of."""
CLOSE_S = 1.0
"""How long the SDK may take to say goodbye."""


class SenderLink:
    """An open sender of the SDK on one queue or topic.

    One thread at a time: whoever has it sees to that. The fast way is `sender.send_messages(message, timeout=...)`
    itself, with `busy_until` set before and cleared after, and `failure_of` what it raised; `send` does just that.
    """

    busy_until: float | None = None
    """When the call under way should be over, on the monotonic clock; the watchdog looks at it."""

    def __init__(self, entity: str, sender: ServiceBusSender, wire: Wire, watchdog: Watchdog) -> None:
        """`sender` is open; `SenderLink.open` makes it so."""
        self.entity = entity
        self.sender = sender
        self._wire = wire
        self._watchdog = watchdog
        self._is_discarded = False
        self._is_cut = False
        self._last = LastTransfer(sender._handler)
        self.max_batch_bytes: int = sender._max_batch_size_on_link
        wire.be_patient()
        _never_reopen(sender)
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
        return bool(self.sender._running) and not self._is_discarded

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


class ReceiverProbe:
    """Whether a queue can be listened to: a receiver that is opened and closed, and takes nothing."""

    @staticmethod
    def open(client: ServiceBusClient, entity: str, *, deadline_s: float, watchdog: Watchdog) -> None:
        """Returns if it could be opened within this time; raises `LinkFailed` otherwise. Leaves nothing open."""
        receiver = client.get_queue_receiver(entity, keep_alive=NO_KEEP_ALIVE)
        wire = _open_within(receiver, entity, deadline_s, watchdog)
        _close_elsewhere(receiver, entity, wire, watchdog)


class _Opening:
    """A sender or receiver that is being opened on a thread of its own, which may be left behind."""

    def __init__(self, handler: Any, deadline_s: float, watchdog: Watchdog, heard: Heard | None) -> None:
        self.wire = Wire(handler, heard)
        self.busy_until: float | None = monotonic() + deadline_s
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self.is_open = False
        self.is_overdue = False
        """Given up before it ended, by whoever waits or by the watchdog: what it ends with is our own doing."""
        self.was_connected = False
        """Whether somebody had answered by then."""
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


def _open_within(handler: Any, entity: str, deadline_s: float, watchdog: Watchdog, heard: Heard | None = None) -> Wire:
    """Open a sender or receiver of the SDK; raises `LinkFailed` when the time is over, even if the SDK does not end."""
    opening = _Opening(handler, deadline_s, watchdog, heard)
    watchdog.watch(opening)
    try:
        threading.Thread(target=opening.run, name=f"twinbus-open-{entity}", daemon=True).start()
        has_ended = opening.ended.wait(deadline_s)
    except BaseException:  # interrupted: nobody is there to have what opens
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


def _never_reopen(sender: ServiceBusSender) -> None:
    """Make an open sender fail at once where it would connect anew, on the thread of whoever sends just then."""

    def refuse(_timeout_s: float | None = None) -> None:
        if not sender._running:
            raise ServiceBusConnectionError(message="The link was closed before this send.")

    sender._open = refuse  # type: ignore[assignment, method-assign]


def _keep_alive(sender: ServiceBusSender, entity: str) -> None:
    """Begin with what the SDK does for links that nobody uses; it ends within a second of their closing."""
    client = sender._handler
    client._keep_alive_interval = KEEP_ALIVE_S
    threading.Thread(target=client._keep_alive, name=f"twinbus-keep-{entity}", daemon=True).start()


class _Closing:
    """A sender or receiver that is being closed, for which nobody waits."""

    def __init__(self, handler: Any, wire: Wire, watchdog: Watchdog) -> None:
        self.busy_until: float | None = monotonic() + CLOSE_S
        self._handler = handler
        self._wire = wire
        self._watchdog = watchdog

    def run(self) -> None:
        _close(self._handler, self._wire)
        self._watchdog.forget(self)

    def cut(self) -> None:
        self._wire.cut()


def _close_elsewhere(handler: Any, entity: str, wire: Wire, watchdog: Watchdog) -> None:
    closing = _Closing(handler, wire, watchdog)
    watchdog.watch(closing)
    threading.Thread(target=closing.run, name=f"twinbus-close-{entity}", daemon=True).start()


def _close(handler: Any, wire: Wire) -> None:
    """Close politely if that can be done, and in any case."""
    try:
        handler.close()
    except Exception:
        logger.debug("the SDK could not close a link", exc_info=True)
    finally:
        wire.close()
