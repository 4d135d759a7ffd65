"""The syphon inside a paired client: what it is made of, and what it reports."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from twinbus.client.inspection.reports import Inspection
from twinbus.client.reporting.status import SecondaryStatus, SyphonStatus
from twinbus.errors import TwinbusError
from twinbus.ledger import Ledger
from twinbus.pairing.backlog.ordering import DepartedMessage
from twinbus.pairing.failover import FailedOver
from twinbus.pairing.pair import Pair
from twinbus.syphon import Alert, Progress, Syphon, SyphonOptions
from twinbus.syphon.options import ATTEMPT_S_MIN
from twinbus.syphon.peeking.depth_watch import BacklogSnapshot
from twinbus.syphon.peeking.queue_discovery import QueueDiscovery

if TYPE_CHECKING:
    from twinbus.client.core.client_state import ClientState
    from twinbus.transport.dial import Dial

LOGGER = logging.getLogger("twinbus.pairing")

Broke = Callable[[BaseException], None]
"""Called when the syphon ended by a fault of its own; on its thread, or in its loop."""


class OrderObserver:
    """Reports to the core what the syphon brings home, where order counts; called on its thread or in its loop."""

    def __init__(self, pair: Pair, lock: AbstractContextManager[Any], settle: Callable[[], None]) -> None:
        """`lock` guards the core; `settle` carries out what it orders then."""
        self._pair = pair
        self._lock = lock
        self._settle = settle
        self.queues: list[int] = []
        """The backlog queues of the syphon, as the core calls them."""

    def queue_added(self, index: int) -> None:
        """The syphon has found one more queue."""
        self.queues.append(index)

    def left_backlog(self, queue: int, messages: list[DepartedMessage]) -> None:
        """Messages are stored at home, or refused for good."""
        with self._lock:
            self._pair.came_home(self.queues[queue], messages)
        self._settle()

    def waits_for(self, queue: int) -> bool:
        """Whether a fence waits for the queue to be seen empty."""
        with self._lock:
            return self._pair.fences is not None and self._pair.fences.waits_for(self.queues[queue])

    def empty_check_started(self, _queue: int) -> int:
        """A look at whether a queue is empty begins: when, in the time of the fences."""
        with self._lock:
            return 0 if self._pair.fences is None else self._pair.fences.time

    def seen_empty(self, queue: int, look: int) -> None:
        """It found the queue empty."""
        with self._lock:
            self._pair.seen_empty(self.queues[queue], look)
        self._settle()


class OwnSyphon:
    """Everything a client's syphon is made of. Raises `OptionsError` where it could never connect."""

    def __init__(self, state: ClientState, on_alert: Callable[[Alert], None], on_broken: Broke) -> None:
        attempt_s = max(state.pair.rules.attempt_s, ATTEMPT_S_MIN)
        self._dials: tuple[Dial, Dial] = state.primary.dial(attempt_s), state.secondary.dial(attempt_s)
        self._name = state.pair.name
        self._pair = state.pair
        options = state.options
        self._options = SyphonOptions(
            ttl=options.ttl,
            attempt_s=attempt_s,
            order=options.order,
            entities=None if options.syphon_entities is None else frozenset(options.syphon_entities),
        )
        self._queue_count = state.plan.queue_count
        self._ledger_folder, self._ledger_ship_to = options.ledger, options.ledger_ship_to
        self._ledger: Ledger | None = None
        self._on_alert = on_alert
        self.on_broken = on_broken
        self.syphon: Syphon | None = None
        self.observer: OrderObserver | None = None
        """Where the syphon reports what came home; None where order does not count."""

    def make(self, queues: list[int]) -> Syphon:
        """The syphon for the backlog queues that were found, and for those that it finds beyond the count."""
        primary, secondary = self._dials
        count, attempt_s = self._queue_count, self._options.attempt_s
        if self._ledger_folder is not None:
            self._ledger = Ledger.at(self._ledger_folder, "syphon", self._ledger_ship_to)
        if self.observer is not None:
            self.observer.queues = list(queues)
        self.syphon = Syphon(
            primary,
            secondary,
            self._name,
            count,
            self._options,
            queues=queues,
            discovery=QueueDiscovery(secondary, self._name, count, attempt_s=attempt_s),
            on_alert=self._on_alert,
            ledger=self._ledger,
            observer=self.observer,
        )
        self.syphon.expects_more = partial(is_any_failed_over, self._pair)
        return self.syphon

    @property
    def look(self) -> BacklogSnapshot | None:
        """What its latest look into the backlog has found."""
        return None if self.syphon is None else self.syphon.backlog

    def status(self) -> SyphonStatus | None:
        """How far it is; None before it began."""
        return None if self.syphon is None else status_of(self.syphon.current_progress())

    def close(self) -> None:
        """When the syphon has stopped."""
        if self._ledger is not None:
            self._ledger.close()


def is_any_failed_over(pair: Pair) -> bool:
    """Whether messages of this client go to the backlog now."""
    return any(isinstance(entity.state, FailedOver) for entity in pair.entities)


# --- what it reports ---


def event_of(alert: Alert, primary: str, secondary: str | None) -> dict[str, Any]:
    """The arguments of `EventLog.report` for an alert."""
    is_at_home = alert.name.startswith("destination")
    if alert.name == "backlog_home":  # its subject is the primary itself
        return {"name": alert.name, "text": alert.text, "namespace": alert.subject}
    return {
        "name": alert.name,
        "text": alert.text,
        "entity": alert.subject if is_at_home else None,
        "namespace": primary if is_at_home else secondary,
        "details": {} if is_at_home else {"subject": alert.subject},
    }


def with_look(status: SecondaryStatus, look: Inspection | BacklogSnapshot | None) -> SecondaryStatus:
    """The status with what a look into the backlog found; None: there was none."""
    if look is None:
        return status
    return replace(
        status,
        looked_at=datetime.fromtimestamp(look.at, UTC),
        waiting_messages=look.waiting_messages,
        waiting_at_least=look.waiting_at_least,
        unread_queues=look.unread_queues,
        oldest_age_s=look.oldest_age_s,
    )


def status_of(progress: Progress) -> SyphonStatus:
    """How far it is, for `bus.status()`."""
    return SyphonStatus(
        state=progress.state,
        moved=progress.moved,
        moved_bytes=progress.moved_bytes,
        rate=progress.rate,
        repeated=progress.repeated,
        in_doubt=progress.in_doubt,
        quarantined=progress.refused,
        expired=progress.expired,
        released=progress.released,
        outside=progress.outside,
        held=progress.held,
        left=progress.left,
        seconds_left=progress.seconds_left,
        oldest_age_s=progress.oldest_age_s,
        destinations_down=tuple([each.path for each in progress.destinations if each.state == "resting"]),
        troubles=progress.troubles,
    )


def reason_of(error: BaseException) -> str:
    """Why the pair ends when its syphon broke. The text of a stranger's exception may hold a secret."""
    LOGGER.error("event=internal_error reason=%r", "the syphon broke", exc_info=error)
    text = str(error) if isinstance(error, TwinbusError) else type(error).__name__
    return f"the syphon broke: {text}"
