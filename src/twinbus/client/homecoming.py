"""The syphon inside a paired client: what it is made of, what it tells, and the thread or tasks it runs on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from twinbus.client.keeper import LOGGER
from twinbus.client.order_witness import OrderWitness
from twinbus.client.status import SecondaryStatus, SyphonStatus
from twinbus.errors import TwinbusError
from twinbus.ledger import Ledger
from twinbus.pairing.machine import FailedOver
from twinbus.pairing.pair import Pair
from twinbus.syphon import Alert, Progress, Syphon, SyphonOptions
from twinbus.syphon.backlog_look import BacklogLook
from twinbus.syphon.queue_search import QueueSearch

if TYPE_CHECKING:
    from twinbus.client.standing import Standing
    from twinbus.dial import Dial

STOP_PATIENCE_S = 10.0
"""A syphon that is stopped finishes what is on its way, which takes 5 s at most, and hangs up."""

Broke = Callable[[BaseException], None]
"""Called when the syphon ended by a fault of its own; on its thread, or in its loop."""


class Homecoming:
    """Everything a client's syphon is made of. Raises `OptionsError` where it could never connect."""

    def __init__(self, standing: Standing, on_alert: Callable[[Alert], None], on_broken: Broke) -> None:
        attempt_s = standing.pair.rules.attempt_s
        self._dials: tuple[Dial, Dial] = standing.primary.dial(attempt_s), standing.secondary.dial(attempt_s)
        self._name = standing.pair.name
        self._pair = standing.pair
        options = standing.options
        self._options = SyphonOptions(
            ttl=options.ttl,
            attempt_s=attempt_s,
            order=options.order,
            entities=None if options.syphon_entities is None else frozenset(options.syphon_entities),
        )
        self._queue_count = standing.plan.queue_count
        self._ledger_folder = standing.options.ledger
        self._ledger: Ledger | None = None
        self._on_alert = on_alert
        self.on_broken = on_broken
        self.syphon: Syphon | None = None
        self.witness: OrderWitness | None = None
        """Who has to know what came home; nobody where order does not count."""

    def make(self, queues: list[int]) -> Syphon:
        """The syphon for the backlog queues that were found, and for those that it finds beyond the count."""
        primary, secondary = self._dials
        count, attempt_s = self._queue_count, self._options.attempt_s
        if self._ledger_folder is not None:
            self._ledger = Ledger.at(self._ledger_folder, "syphon")
        if self.witness is not None:
            self.witness.queues = list(queues)
        self.syphon = Syphon(
            primary,
            secondary,
            self._name,
            count,
            self._options,
            queues=queues,
            search=QueueSearch(secondary, self._name, count, attempt_s=attempt_s),
            on_alert=self._on_alert,
            ledger=self._ledger,
            witness=self.witness,
        )
        self.syphon.expects_more = partial(is_any_failed_over, self._pair)
        return self.syphon

    @property
    def look(self) -> BacklogLook | None:
        """What its latest look into the backlog has found."""
        return None if self.syphon is None else self.syphon.backlog

    def status(self) -> SyphonStatus | None:
        """How far it is; None before it began."""
        return None if self.syphon is None else status_of(self.syphon.look())

    def close(self) -> None:
        """When the syphon has stopped."""
        if self._ledger is not None:
            self._ledger.close()


class HomecomingThread:
    """A syphon on a daemon thread with an event loop of its own."""

    def __init__(self, homecoming: Homecoming, queues: list[int], name: str) -> None:
        self._homecoming = homecoming
        self._queues = queues
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"twinbus-{name}-syphon", daemon=True)

    def start(self) -> None:
        """Returns when the syphon runs."""
        self._thread.start()
        self._has_begun.wait()

    def stop(self, patience_s: float = STOP_PATIENCE_S) -> None:
        """Finish what is on its way and end the thread; calling it again is fine."""
        loop, leave = self._loop, self._leave
        if loop is None or leave is None:
            return
        with contextlib.suppress(RuntimeError):  # it has ended meanwhile
            loop.call_soon_threadsafe(leave.set)
        if self._thread is not threading.current_thread():
            self._thread.join(patience_s)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # a fault of the syphon's own is a fault of the pair
            self._homecoming.on_broken(error)
        finally:
            self._has_begun.set()
            self._homecoming.close()

    async def _live(self) -> None:
        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        async with self._homecoming.make(self._queues) as syphon:
            self._has_begun.set()
            ended = asyncio.create_task(syphon.finished())
            leaving = asyncio.create_task(self._leave.wait())
            await asyncio.wait((ended, leaving), return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            await syphon.stop()
            await ended


class HomecomingTask:
    """A syphon on the client's own loop."""

    def __init__(self, homecoming: Homecoming, queues: list[int]) -> None:
        self._homecoming = homecoming
        self._queues = queues
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        syphon = self._homecoming.make(self._queues)
        await syphon.start()
        self._watch = asyncio.get_running_loop().create_task(self._finished(syphon), name="twinbus-syphon")

    async def stop(self) -> None:
        """Finish what is on its way; calling it again is fine."""
        syphon = self._homecoming.syphon
        if syphon is None or self._watch is None:
            return
        await syphon.stop()
        if self._watch is not asyncio.current_task():
            await asyncio.gather(self._watch, return_exceptions=True)
        await asyncio.to_thread(self._homecoming.close)

    async def _finished(self, syphon: Syphon) -> None:
        try:
            await syphon.finished()
        except BaseException as error:  # a fault of the syphon's own is a fault of the pair
            self._homecoming.on_broken(error)


def is_any_failed_over(pair: Pair) -> bool:
    """Whether messages of this client go to the backlog now."""
    return any(isinstance(entity.state, FailedOver) for entity in pair.entities)


# --- what is told of it ---


def news_of(alert: Alert, primary: str, secondary: str | None) -> dict[str, Any]:
    """An alert in the words of `NewsDesk.tell`."""
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


class Look(Protocol):
    """What somebody has found who looked into the backlog."""

    @property
    def at(self) -> float: ...

    @property
    def waiting_messages(self) -> int | None: ...

    @property
    def waiting_at_least(self) -> int | None: ...

    @property
    def unread_queues(self) -> int: ...

    @property
    def oldest_age_s(self) -> float | None: ...


def with_look(status: SecondaryStatus, look: Look | None) -> SecondaryStatus:
    """The same with what a look has found; None: nobody has looked."""
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
