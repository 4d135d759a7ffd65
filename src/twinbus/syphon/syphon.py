"""The syphon: two connections, and the pump's decisions between them.

The path of the messages runs in callbacks of the event loop, without waiting: bytes arrive from the backlog, the pump
decides, bytes leave for the primary. Tasks are used only for what takes time: connecting, links, requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus.errors import DecodeError, TwinbusError
from twinbus.ledger.schema import Recorder
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.syphon.clock import SteadyClock, SuspensionCheck
from twinbus.syphon.ledger_events import NO_EVENT_LOG, SpoolEventLog, SyphonEventLog
from twinbus.syphon.options import SyphonOptions, with_chance
from twinbus.syphon.peeking import depth_watch
from twinbus.syphon.peeking.backlog_scan import has_wanted
from twinbus.syphon.peeking.depth_watch import BacklogSnapshot, BacklogWatch, OutageWatch, take_snapshot
from twinbus.syphon.peeking.queue_discovery import QueueDiscovery, QueueWatch
from twinbus.syphon.primary_connection import HomeAndDetour, PrimaryConnection
from twinbus.syphon.progress import DestinationProgress, Progress, RateGauge
from twinbus.syphon.pump.destination import DestinationState
from twinbus.syphon.pump.effects import Alert, log_line
from twinbus.syphon.pump.ordered_pump import BacklogObserver, OrderedPump
from twinbus.syphon.pump.pace import PaceChange
from twinbus.syphon.pump.pump import Pump
from twinbus.syphon.pump.spool_pump import SpoolPump
from twinbus.syphon.secondary_connection import SecondaryConnection
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.peek import estimate_depth

if TYPE_CHECKING:
    from twinbus.transport.dial import Dial

logger = logging.getLogger("twinbus.syphon")

STOP_S = 5.0
"""How long `stop` waits for batches in flight."""
DRAIN_S = 1.0
_EMPTY_CHECK_S = (0.05, 2.0)
_EMPTY_CHECK_PAUSE_S_MAX = 30.0
_EMPTY_CHECK_SHARE = 0.2
"""The part of the time until the end that empty checks may take: in a large queue of others one costs many peeks."""
_COUNT_AFTER_MS = 10_000
_COUNT_EVERY_MS = 60_000
"""When to count how many are left: after some time of work, and then now and then. It costs some peeks."""
_READ_FIRST_MS = 50
_END_QUIET_MS = 100
"""Shorter than for anything else: an empty check then decides whether it is the end."""


class Detour(NamedTuple):
    """Where messages go whose entity is down: it is a spool that is emptied, and not the backlog."""

    secondary: Dial
    queues: Sequence[int] = ()
    """Its backlog queues, by index, as far as they are known."""


class Syphon:
    """Moves the backlog of one primary home. `start` it, or use it with `async with`; then it runs by itself."""

    def __init__(
        self,
        primary: Dial,
        secondary: Dial,
        primary_name: str,
        queue_count: int,
        options: SyphonOptions | None = None,
        *,
        queues: Sequence[int] | None = None,
        discovery: QueueDiscovery | None = None,
        on_alert: Callable[[Alert], None] | None = None,
        clock: Callable[[], int] | None = None,
        ledger: Recorder | None = None,
        observer: BacklogObserver | None = None,
        detour: Detour | None = None,
    ) -> None:
        """`on_alert` and the `observer`, which is used with `order="session"`, are called in the event loop.

        Without `queues` all backlog queues of the primary are emptied, those beyond `queue_count` too. With them, by
        index, only those; and those that `discovery` finds, if it is given.
        """
        self.options = with_chance(options or SyphonOptions())
        if discovery is None and queues is None:
            discovery = QueueDiscovery(secondary, primary_name, queue_count, attempt_s=self.options.attempt_s)
        paths = [backlog_path(primary_name, index) for index in (range(queue_count) if queues is None else queues)]
        self._clock = clock or SteadyClock()
        self._on_alert = on_alert
        self._started_ms = self._clock()
        event_log = NO_EVENT_LOG
        if ledger is not None:
            event_log = (
                SyphonEventLog(ledger, paths, primary_name, secondary.ledger_name)
                if detour is None
                else SpoolEventLog(ledger, paths, primary_name, detour.secondary.ledger_name)
            )
        self.pump: Pump
        if detour is not None:
            detours = [backlog_path(primary_name, index) for index in detour.queues]
            self.pump = SpoolPump(paths, self.options, self._started_ms, event_log, detours)
        elif self.options.order is None:
            self.pump = Pump(paths, self.options, self._started_ms, event_log)
        else:
            self.pump = OrderedPump(paths, self.options, self._started_ms, event_log, observer)
        self._secondary = SecondaryConnection(secondary, self.pump, self._clock, self._run_effects, self._start_task)
        self.queues = QueueWatch(primary_name, discovery, self.pump, self._secondary, observer)
        """Which queues are emptied."""
        self._primary: PrimaryConnection | HomeAndDetour = self._connection_to(primary)
        if detour is not None:
            self._primary = HomeAndDetour(self._primary, self._connection_to(detour.secondary), self._is_detour)
        self._gauge = RateGauge(self._started_ms)
        self.primary_name = primary_name
        self.secondary_name = secondary.ledger_name
        self.processes = 1
        """How many share the work, and the rate."""
        self._outage = OutageWatch()
        self.watch = BacklogWatch(self._take_snapshot, self._may_wait, self._clock)
        self.expects_more: Callable[[], bool] = lambda: False
        """Whether senders that we know of use the backlog now: then it is peeked."""
        self._counted: int | None = None
        self._counted_ms = 0
        self._busy_since_ms: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._suspension = SuspensionCheck()
        self._is_running_effects = False
        self._is_stopped = False
        self._finished: asyncio.Event | None = None
        self._error: BaseException | None = None

    def _connection_to(self, dial: Dial) -> PrimaryConnection:
        return PrimaryConnection(dial, self.pump, self._clock, self._run_effects, self._start_task)

    # --- start and stop ---

    async def start(self) -> None:
        """Begin to move messages; returns at once. What goes wrong from now on is an alert, not an exception."""
        if self._finished is not None:
            raise TwinbusError("a syphon can be started only once: create another one")
        self._finished = asyncio.Event()
        self._start_task(self._secondary.run())
        self._start_task(self.queues.run())
        self._start_task(self.watch.run())
        if self.options.until_empty:
            self._start_task(self._watch_for_the_end())  # how it ends says whether the backlog is home
        else:
            self._start_task(self._watch_outage())
        self._set_timer()

    async def finished(self) -> None:
        """Wait until the backlog is empty (with `until_empty`) or the syphon is stopped. Raises if it broke."""
        if self._finished is None:
            raise TwinbusError("start the syphon first")
        await self._finished.wait()
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        """Finish what is in flight, release the rest, close. Nothing of it is left when this returns."""
        if self._finished is None or self._is_stopped:
            return
        self._is_stopped = True
        self.pump.stop()
        self._run_effects()
        deadline_ms = self._clock() + STOP_S * 1000
        while not self.pump.is_idle and self._clock() < deadline_ms:
            await asyncio.sleep(0.01)
        await self._secondary.drain(DRAIN_S)
        self._run_effects()  # what was still on its way is released too: a clean end leaves no lock behind
        self._finished.set()
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(self._secondary.close(), self._primary.close())

    async def __aenter__(self) -> Syphon:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    def pause(self) -> None:
        """Send nothing more, and release what is held."""
        self.pump.pause()
        self._run_effects()

    def resume(self) -> None:
        """Go on after a pause, or after the canary."""
        self.pump.resume()
        self._run_effects()

    def change_pace(self, change: PaceChange) -> None:
        """Another rate, number of messages or choice of entities, from now on."""
        self.pump.change_pace(change, self._clock())
        self._run_effects()

    @property
    def present_options(self) -> SyphonOptions:
        """The options, with what was changed since the start."""
        return replace(self.options, rate=self.pump.pace.rate, entities=self.pump.pace.entities)

    def wake(self) -> None:
        """Try at once what rests after a failure."""
        self.pump.wake()
        self._run_effects()

    def add_queue(self, index: int) -> None:
        """One more queue to empty."""
        self.queues.add(index)

    def use_detours(self, queues: Sequence[int]) -> None:
        """The backlog queues of the detour, by index, as they are known now."""
        if isinstance(self.pump, SpoolPump):
            self.pump.use_detours([backlog_path(self.primary_name, index) for index in queues])

    def _is_detour(self, path: str) -> bool:
        return isinstance(self.pump, SpoolPump) and self.pump.is_detour(path)

    # --- progress ---

    def current_progress(self) -> Progress:
        """How far it is, now. Any thread may call this."""
        now_ms, counts, pump = self._clock(), self.pump.counts, self.pump
        rate = self._gauge.rate(now_ms, counts.moved)
        busy = [queue for queue in pump.queues if not queue.is_quiet(now_ms)]
        left = None if self._counted is None else max(0, self._counted - counts.gone)
        if left == 0 and (not self.pump.is_idle or self._is_any_resting() or self.queues.shut):
            left = None  # others arrived since the count, and may have been released or be out of reach
        ages = [now_ms - queue.oldest_ms for queue in busy if queue.oldest_ms is not None]
        return Progress(
            state=pump.pace.state.value,
            seconds=(now_ms - self._started_ms) / 1000,
            moved=counts.moved,
            moved_bytes=counts.moved_bytes,
            rate=rate,
            received=counts.received,
            repeated=counts.repeated,
            in_doubt=counts.in_doubt,
            refused=counts.refused,
            expired=counts.expired,
            released=counts.released,
            held=sum([queue.unsettled for queue in pump.queues]),
            oldest_age_s=max(ages) / 1000 if ages else None,
            left=left,
            seconds_left=left / rate if left is not None and rate > 0 and pump.pace.is_running else None,
            destinations=tuple(
                DestinationProgress(
                    path=each.path,
                    state=each.state.value,
                    reason=None if each.failure is None else str(each.failure),
                    waiting=len(each.waiting) + len(each.suspects),
                    in_flight=sum([len(batch.messages) for batch in list(each.in_flight.values())]),
                )
                for each in list(pump.destinations.values())  # a copy: the loop goes on meanwhile
            ),
            troubles=self._secondary.failures,
            backlog=self.backlog,
            outside=counts.unlisted,
            to_backlog=counts.to_backlog,
        )

    @property
    def backlog(self) -> BacklogSnapshot | None:
        """The latest snapshot of the backlog, and what is known of its queues since; None: there is none yet."""
        latest = self.watch.latest
        return None if latest is None else latest.with_shut(len(self.queues.shut))

    async def progress(self, every_s: float = 1.0) -> AsyncIterator[Progress]:
        """The progress every `every_s`, and a last one at the end."""
        if self._finished is None:
            raise TwinbusError("start the syphon first")
        while not self._finished.is_set():
            yield self.current_progress()
            try:
                async with asyncio.timeout(every_s):
                    await self._finished.wait()
            except TimeoutError:
                continue
        yield self.current_progress()

    async def count(self) -> int | None:
        """About how many messages are in the backlog; from now on `Progress.left` is known. None: not connected.

        Costs some peeks for each queue, not one for each message.
        """
        connection = self._secondary.connection
        if connection is None:
            return None
        self._counted_ms = self._clock()
        gone = self.pump.counts.gone
        self._counted = gone + sum([await estimate_depth(connection, path) for path in self.queues.paths])
        return self._counted - gone

    def _may_wait(self) -> bool:
        """Whether messages are known to wait, or would not be delivered to us."""
        are_delivered = self.pump.pace.is_running and not self._secondary.failures
        return not are_delivered or self._is_outage_active() or self._outage.is_open

    def _is_outage_active(self) -> bool:
        return not self.pump.is_idle or self._is_any_resting() or self.expects_more()

    async def _watch_outage(self) -> None:
        while True:
            now_ms, is_active = self._clock(), self._is_outage_active()
            text = self._outage.check(now_ms, self.pump.counts, self.backlog, is_active=is_active)
            if text is not None:
                self._alert(Alert("backlog_home", self.primary_name, text))
            await asyncio.sleep(depth_watch.CHECK_S)

    def _is_any_resting(self) -> bool:
        return any(each.state is DestinationState.RESTING for each in list(self.pump.destinations.values()))

    async def _take_snapshot(self) -> BacklogSnapshot | None:
        connection, queues = self._secondary.connection, self.queues
        if connection is None:
            return None
        gone, began_ms = self.pump.counts.gone, self._clock()
        try:
            at_s, paths = began_ms / 1000, queues.paths
            found = await take_snapshot(connection, paths, at_s, shut=queues.shut, unseen=queues.unseen)
        except (ConnectionFailed, DecodeError):
            return None
        if found.waiting_messages is not None:  # better than an estimate
            self._counted, self._counted_ms = gone + found.waiting_messages, began_ms
        return found

    # --- effects and time ---

    def _run_effects(self) -> None:
        """Carry out what the pump wants. Called after everything that may have changed its state."""
        if self._is_running_effects:
            return
        self._is_running_effects = True
        try:
            self.pump.run_effects(self._clock(), self._primary, self._secondary, self._alert)
        except BaseException as error:
            self._break(error)
            raise
        finally:
            self._is_running_effects = False
        self._secondary.flush()
        self._primary.flush()
        self._set_timer()

    def _alert(self, alert: Alert) -> None:
        level = logging.INFO if alert.name.endswith("_up") else logging.WARNING
        logger.log(level, "%s", log_line(alert))
        if self._on_alert is not None:
            self._on_alert(alert)

    def _set_timer(self) -> None:
        if self._finished is None or self._finished.is_set():
            return
        now_ms = self._clock()
        at_ms = self.pump.next_ms(now_ms)
        if self._timer is not None:
            if self._timer_ms <= at_ms and self._timer_ms >= now_ms:
                return
            self._timer.cancel()
        self._timer_ms = at_ms
        self._timer = asyncio.get_running_loop().call_later(max(0, at_ms - now_ms) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self._clock()
        if self._suspension.must_wait(self._timer_ms, now_ms):
            self._timer_ms = now_ms + _READ_FIRST_MS
            self._timer = asyncio.get_running_loop().call_later(_READ_FIRST_MS / 1000, self._tick)
            return
        self._gauge.add_sample(now_ms, self.pump.counts.moved)
        self.pump.tick(now_ms)
        self._run_effects()
        self._count_now_and_then(now_ms)
        self._set_timer()

    def _count_now_and_then(self, now_ms: int) -> None:
        """While it works for longer, `Progress` shows what is left: a backlog may come at any time, and grow."""
        if self.pump.is_idle or not self.pump.pace.is_running:
            self._busy_since_ms = None
            return
        since_ms = self._busy_since_ms = self._busy_since_ms or now_ms
        if now_ms >= max(since_ms + _COUNT_AFTER_MS, self._counted_ms + _COUNT_EVERY_MS):
            self._counted_ms = now_ms
            self._start_task(self._count_again())

    async def _count_again(self) -> None:
        with contextlib.suppress(ConnectionFailed, DecodeError):
            await self.count()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Whatever the task raises ends the syphon, so that no error is silent."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._break(task.exception())

    def _break(self, error: BaseException | None) -> None:
        logger.error("event=syphon_broke", exc_info=error)
        self._error = self._error or error
        if self._finished is not None:
            self._finished.set()

    # --- until empty ---

    async def _watch_for_the_end(self) -> None:
        """A queue that delivers nothing is not empty: others may hold messages under lock. So the queues are peeked."""
        pause_s, moved = _EMPTY_CHECK_S[0], 0
        while True:
            if self.pump.counts.moved != moved:
                pause_s, moved = _EMPTY_CHECK_S[0], self.pump.counts.moved
            if self._is_quiet():
                began_ms = self._clock()
                if await self._is_empty():
                    break
                cost_s = (self._clock() - began_ms) / 1000 / _EMPTY_CHECK_SHARE
                pause_s = max(min(2 * pause_s, _EMPTY_CHECK_S[1]), min(cost_s, _EMPTY_CHECK_PAUSE_S_MAX))
            await asyncio.sleep(pause_s)
        if self._finished is not None:
            self._finished.set()

    def _is_quiet(self) -> bool:
        now_ms = self._clock()
        queues = [queue for queue in self.pump.queues if not queue.is_deleted and queue.refusal is None]
        are_quiet = all(queue.is_quiet(now_ms, _END_QUIET_MS) or now_ms < queue.rest_until_ms for queue in queues)
        return are_quiet and self.pump.is_idle and self.pump.pace.is_running

    async def _is_empty(self) -> bool:
        """Whether nothing is left in the queues that let us in; `queues.doubts` is about the others."""
        connection, queues = self._secondary.connection, [each for each in self.pump.queues if not each.is_deleted]
        if connection is None:
            return False
        try:
            for path in [queue.path for queue in queues if queue.refusal is None]:
                if await has_wanted(connection, path, self.pump.pace.wants):
                    return False
            if not await self.queues.are_these_all():
                return False
        except ConnectionFailed:
            return False
        is_more = queues != [queue for queue in self.pump.queues if not queue.is_deleted]
        return not is_more and self._is_quiet()


async def syphon(
    primary: Dial,
    secondary: Dial,
    primary_name: str,
    queue_count: int,
    options: SyphonOptions | None = None,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    on_alert: Callable[[Alert], None] | None = None,
    every_s: float = 1.0,
    ledger: Recorder | None = None,
) -> Progress:
    """Move the backlog home until it is empty (with `until_empty`) or the task is cancelled; the last progress."""
    moving = Syphon(primary, secondary, primary_name, queue_count, options, on_alert=on_alert, ledger=ledger)
    async with moving as running:
        async for progress in running.progress(every_s):
            if on_progress is not None:
                on_progress(progress)
        await running.finished()
        return running.current_progress()
