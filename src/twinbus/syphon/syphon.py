"""The syphon: two connections, the pump's decisions between them.

Everything that messages go through runs in callbacks of the event loop, without waiting: bytes come from the backlog,
the pump decides, bytes leave for home. Tasks are only used for what takes its time: connecting, links, requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from twinbus.errors import DecodeError, TwinbusError
from twinbus.ledger.events import Recorder
from twinbus.pairing.backlog_queues import backlog_path
from twinbus.syphon import backlog_look
from twinbus.syphon.backlog_look import BacklogLook, BacklogWatch, look_into
from twinbus.syphon.backlog_side import BacklogSide
from twinbus.syphon.chronicle import NOTHING_TOLD, LedgerChronicle
from twinbus.syphon.destination import State
from twinbus.syphon.effects import Alert, Effect, Grant, Look, RenewLocks, ReopenQueue, Settle, log_line
from twinbus.syphon.home_side import HomeSide
from twinbus.syphon.late_bell import LateBell
from twinbus.syphon.linked import LineFailed
from twinbus.syphon.look import left_in, rough_depth
from twinbus.syphon.options import SyphonOptions, with_chance
from twinbus.syphon.ordered_pump import OrderedPump, Witness
from twinbus.syphon.outage import OutageWatch
from twinbus.syphon.progress import DestinationProgress, Progress, RateGauge, amount_left
from twinbus.syphon.pump import Pump
from twinbus.syphon.queue_search import QueueSearch, chosen
from twinbus.syphon.queue_watch import QueueWatch

if TYPE_CHECKING:
    from twinbus.dial import Dial

logger = logging.getLogger("twinbus.syphon")

STOP_S = 5.0
"""How long `stop` waits for batches that are on their way."""
DRAIN_S = 1.0
_EMPTY_CHECK_S = (0.05, 2.0)
_LOOKS_PAUSE_S_MAX = 30.0
_LOOKS_SHARE = 0.2
"""Of the time until the end, what looks may take: in a large queue that is not for us one costs many peeks."""
_COUNT_AFTER_MS = 10_000
_COUNT_EVERY_MS = 60_000
"""When it is counted how many are left: after some time of work, and then now and then. It costs some peeks."""
_LISTEN_MS = 50
_END_QUIET_MS = 100
"""Sooner than a queue counts as quiet for all else: whether it is the end is then asked, not guessed."""


class SteadyClock:
    """Milliseconds since 1970, as they were at the start, and from then on by a clock that nobody can set."""

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def __call__(self) -> int:
        return int(self._offset_ms + time.monotonic() * 1000)


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
        search: QueueSearch | None = None,
        on_alert: Callable[[Alert], None] | None = None,
        clock: Callable[[], int] | None = None,
        ledger: Recorder | None = None,
        witness: Witness | None = None,
    ) -> None:
        """`on_alert` is called in the event loop.

        Without `queues` all backlog queues of the primary are emptied, those beyond `queue_count` too. With them, by
        index, only those; and those that `search` finds, if it is given.

        With `order="session"` a `witness` is told, in the event loop, what left the backlog.
        """
        self.options = with_chance(options or SyphonOptions())
        if search is None and queues is None:
            search = QueueSearch(secondary, primary_name, queue_count, attempt_s=self.options.attempt_s)
        paths = [backlog_path(primary_name, index) for index in chosen(queue_count, queues)]
        self._clock = clock or SteadyClock()
        self._on_alert = on_alert
        self._started_ms = self._clock()
        chronicle = NOTHING_TOLD
        if ledger is not None:
            chronicle = LedgerChronicle(ledger, paths, primary_name, secondary.called)
        if self.options.order is None:
            self.pump = Pump(paths, self.options, self._started_ms, chronicle)
        else:
            self.pump = OrderedPump(paths, self.options, self._started_ms, chronicle, witness)
        self._backlog = BacklogSide(secondary, self.pump, self._clock, self._act, self._keep)
        self.queues = QueueWatch(primary_name, search, self.pump, self._backlog, chronicle, witness)
        """Which queues are emptied."""
        self._home = HomeSide(primary, self.pump, self._clock, self._act, self._keep)
        self._gauge = RateGauge(self._started_ms)
        self._primary_name = primary_name
        self._outage = OutageWatch()
        self.watch = BacklogWatch(self._look_into_backlog, self._may_wait, self._clock)
        self.expects_more: Callable[[], bool] = lambda: False
        """Whether senders that we know of put messages into the backlog now: then it is looked into."""
        self._counted: int | None = None
        self._counted_ms = 0
        self._busy_since_ms: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._bell = LateBell()
        self._is_acting = False
        self._is_stopped = False
        self._finished: asyncio.Event | None = None
        self._fault: BaseException | None = None

    # --- life ---

    async def start(self) -> None:
        """Begin to move messages; returns at once. What goes wrong from now on is an alert, not an exception."""
        if self._finished is not None:
            raise TwinbusError("a syphon is started once: make another one")
        self._finished = asyncio.Event()
        self._keep(self._backlog.run())
        self._keep(self.queues.run())
        self._keep(self.watch.run())
        if self.options.until_empty:
            self._keep(self._watch_for_the_end())  # how it ends says whether the backlog is home
        else:
            self._keep(self._watch_outage())
        self._set_timer()

    async def finished(self) -> None:
        """Wait until the backlog is empty (with `until_empty`) or somebody stops the syphon. Raises if it broke."""
        if self._finished is None:
            raise TwinbusError("start the syphon first")
        await self._finished.wait()
        if self._fault is not None:
            raise self._fault

    async def stop(self) -> None:
        """Finish what is on its way, give back the rest, leave. Nothing of it is left when this returns."""
        if self._finished is None or self._is_stopped:
            return
        self._is_stopped = True
        self.pump.stop()
        self._act()
        await self._settle_down()
        await self._backlog.drain(DRAIN_S)
        self._act()  # what was still on its way goes back too: a clean end leaves no lock behind
        self._finished.set()
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(self._backlog.close(), self._home.close())

    async def __aenter__(self) -> Syphon:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    def pause(self) -> None:
        """Send nothing more; what was borrowed from the backlog is given back."""
        self.pump.pause()
        self._act()

    def resume(self) -> None:
        """Go on after a pause, or after the canary."""
        self.pump.resume()
        self._act()

    async def _settle_down(self) -> None:
        deadline_ms = self._clock() + STOP_S * 1000
        while not self.pump.is_idle and self._clock() < deadline_ms:
            await asyncio.sleep(0.01)

    # --- sight ---

    def look(self) -> Progress:
        """How far it is, now. Any thread may look."""
        now_ms, tally = self._clock(), self.pump.tally
        rate = self._gauge.rate(now_ms, tally.moved)
        busy = [queue for queue in self.pump.queues if not queue.is_quiet(now_ms)]
        left = amount_left(self._counted, tally)
        if left == 0 and (not self.pump.is_idle or self._is_any_resting() or self.queues.shut):
            left = None  # others have come since it was counted and may have been given back, or lie out of our reach
        ages = [now_ms - queue.oldest_ms for queue in busy if queue.oldest_ms is not None]
        return Progress(
            state=self.pump.pace.gait.value,
            seconds=(now_ms - self._started_ms) / 1000,
            moved=tally.moved,
            moved_bytes=tally.moved_bytes,
            rate=rate,
            received=tally.received,
            repeated=tally.repeated,
            in_doubt=tally.in_doubt,
            refused=tally.refused,
            expired=tally.expired,
            released=tally.released,
            held=sum([queue.unsettled for queue in self.pump.queues]),
            oldest_age_s=max(ages) / 1000 if ages else None,
            left=left,
            seconds_left=left / rate if left is not None and rate > 0 and self.pump.pace.is_running else None,
            destinations=tuple(
                DestinationProgress(
                    path=each.path,
                    state=each.state.value,
                    reason=None if each.failure is None else str(each.failure),
                    waiting=len(each.waiting) + len(each.suspects),
                    in_flight=sum([len(batch.letters) for batch in list(each.in_flight.values())]),
                )
                for each in list(self.pump.destinations.values())  # a copy: the loop goes on meanwhile
            ),
            troubles=self._backlog.troubles,
            backlog=self.backlog,
            outside=tally.outside,
        )

    @property
    def backlog(self) -> BacklogLook | None:
        """What the latest look into the backlog has found, and what is known of its queues since; None: nothing yet."""
        latest = self.watch.latest
        return None if latest is None else latest.beside(len(self.queues.shut))

    async def progress(self, every_s: float = 1.0) -> AsyncIterator[Progress]:
        """A look every so often, and a last one at the end; it stops there."""
        if self._finished is None:
            raise TwinbusError("start the syphon first")
        while not self._finished.is_set():
            yield self.look()
            try:
                async with asyncio.timeout(every_s):
                    await self._finished.wait()
            except TimeoutError:
                continue
        yield self.look()

    async def count(self) -> int | None:
        """About how many messages lie in the backlog; from now on `look` tells how many are left. None: not to be had.

        Costs some peeks for each queue, not one for each message.
        """
        tally = self.pump.tally
        line = self._backlog.line
        if line is None:
            return None
        self._counted_ms = self._clock()
        done = tally.moved + tally.refused + tally.expired
        self._counted = done + sum([await rough_depth(line, path) for path in self.queues.paths])
        return self._counted - done

    def _may_wait(self) -> bool:
        """Whether messages are known to wait, or nobody would tell us of them."""
        is_told = self.pump.pace.is_running and not self._backlog.troubles
        return not is_told or self._is_outage_active() or self._outage.is_open

    def _is_outage_active(self) -> bool:
        return not self.pump.is_idle or self._is_any_resting() or self.expects_more()

    async def _watch_outage(self) -> None:
        while True:
            now_ms, is_active = self._clock(), self._is_outage_active()
            text = self._outage.check(now_ms, self.pump.tally, self.backlog, is_active=is_active)
            if text is not None:
                self._tell(Alert("backlog_home", self._primary_name, text))
            await asyncio.sleep(backlog_look.CHECK_S)

    def _is_any_resting(self) -> bool:
        return any(each.state is State.RESTING for each in list(self.pump.destinations.values()))

    async def _look_into_backlog(self) -> BacklogLook | None:
        line = self._backlog.line
        if line is None:
            return None
        tally, began_ms = self.pump.tally, self._clock()
        done = tally.moved + tally.refused + tally.expired
        try:
            queues = self.queues
            found = await look_into(line, queues.paths, began_ms / 1000, shut=queues.shut, hidden=queues.hidden)
        except (LineFailed, DecodeError):
            return None
        if found.waiting_messages is not None:  # better than an estimate
            self._counted, self._counted_ms = done + found.waiting_messages, began_ms
        return found

    # --- doing what the pump wants ---

    def _act(self) -> None:
        """Carry out what the pump has decided. Called after everything that may have changed its mind."""
        if self._is_acting:
            return
        self._is_acting = True
        try:
            now_ms = self._clock()
            effects = self.pump.take_effects(now_ms)
            while effects:
                for effect in effects:
                    self._do(effect)
                effects = self.pump.take_effects(now_ms) if self.pump.has_news else []
        except BaseException as error:
            self._break(error)
            raise
        finally:
            self._is_acting = False
        self._backlog.flush()
        self._home.flush()
        self._set_timer()

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Alert):
            self._tell(effect)
        elif isinstance(effect, Settle | Grant | RenewLocks | ReopenQueue | Look):
            self._backlog.do(effect)
        else:
            self._home.do(effect)

    def _tell(self, alert: Alert) -> None:
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
        if self._bell.must_listen(self._timer_ms, now_ms):
            self._timer_ms = now_ms + _LISTEN_MS
            self._timer = asyncio.get_running_loop().call_later(_LISTEN_MS / 1000, self._tick)
            return
        self._gauge.note(now_ms, self.pump.tally.moved)
        self.pump.tick(now_ms)
        self._act()
        self._count_now_and_then(now_ms)
        self._set_timer()

    def _count_now_and_then(self, now_ms: int) -> None:
        """While it works for longer, `look` knows how long it will take: a backlog may come at any time, and grow."""
        if self.pump.is_idle or not self.pump.pace.is_running:
            self._busy_since_ms = None
            return
        since_ms = self._busy_since_ms = self._busy_since_ms or now_ms
        if now_ms >= max(since_ms + _COUNT_AFTER_MS, self._counted_ms + _COUNT_EVERY_MS):
            self._counted_ms = now_ms
            self._keep(self._count_again())

    async def _count_again(self) -> None:
        with contextlib.suppress(LineFailed, DecodeError):
            await self.count()

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside; whatever it raises ends the syphon, so that no failure is silent."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._break(task.exception())

    def _break(self, error: BaseException | None) -> None:
        logger.error("event=syphon_broke", exc_info=error)
        self._fault = self._fault or error
        if self._finished is not None:
            self._finished.set()

    # --- until empty ---

    async def _watch_for_the_end(self) -> None:
        """An empty receive is not an empty queue: others may hold messages under lock. So the queues are asked."""
        pause_s, moved = _EMPTY_CHECK_S[0], 0
        while True:
            if self.pump.tally.moved != moved:
                pause_s, moved = _EMPTY_CHECK_S[0], self.pump.tally.moved
            if self._is_quiet():
                began_ms = self._clock()
                if await self._is_empty():
                    break
                took_s = (self._clock() - began_ms) / 1000
                pause_s = max(min(2 * pause_s, _EMPTY_CHECK_S[1]), min(took_s / _LOOKS_SHARE, _LOOKS_PAUSE_S_MAX))
            await asyncio.sleep(pause_s)
        if self._finished is not None:
            self._finished.set()

    def _is_quiet(self) -> bool:
        now_ms = self._clock()
        queues = [queue for queue in self.pump.queues if not queue.is_gone and queue.refusal is None]
        are_quiet = all(queue.is_quiet(now_ms, _END_QUIET_MS) or now_ms < queue.rest_until_ms for queue in queues)
        return are_quiet and self.pump.is_idle and self.pump.pace.is_running

    async def _is_empty(self) -> bool:
        """Whether nothing is left in the queues that let us in. Of the others `queues.doubts` speaks."""
        line, queues = self._backlog.line, [queue for queue in self.pump.queues if not queue.is_gone]
        if line is None:
            return False
        try:
            for path in [queue.path for queue in queues if queue.refusal is None]:
                if await left_in(line, path, self.pump.pace.wants):
                    return False
            if not await self.queues.are_these_all():
                return False
        except LineFailed:
            return False
        is_more = queues != [queue for queue in self.pump.queues if not queue.is_gone]  # whoever has found it
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
    """Move the backlog home until it is empty (with `until_empty`) or the task is cancelled; how it went."""
    moving = Syphon(primary, secondary, primary_name, queue_count, options, on_alert=on_alert, ledger=ledger)
    async with moving as running:
        async for progress in running.progress(every_s):
            if on_progress is not None:
                on_progress(progress)
        await running.finished()
        return running.look()
