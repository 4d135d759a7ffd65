"""When a running namespace acts: on reports of the store, and when a timer is due. After each action output is flushed.

All of it happens in the event loop's thread; the store's threads only hand their reports over.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from twinbus.broker.core.commands import Tick
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.faults.switch import FaultSwitch
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.store.api import CommitFailed, Committed, DiskSpaceChanged, DueRows, Report, RowsRead

logger = logging.getLogger("twinbus.namespace")

LATE_TICK_MS = 5
"""Timers may fire this much late: those close together are handled in one go."""
READS_S = 0.004
"""Reads are acted on for this long in one turn of the event loop; the last one may take longer."""
DUE_PAUSE_S, DUE_LATE_S = 0.005, 0.05
"""While much of others waits for the disk, reads of due messages wait too: checked this often, at most this long."""
DUE_PARTS = 4
"""After a read of due messages that took long to act on, the next waits this many times as long, while several send."""


class OutputScheduler:
    """Sends the output of links after every action, and does what was delayed when its time has come."""

    def __init__(self, context: ConnectionContext, clock: Callable[[], int], relieve: Callable[[], None]) -> None:
        """`relieve` reads again from senders that had to wait; called after every action."""
        self._context = context
        self._clock = clock
        self._relieve = relieve
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_running = True

    def after_action(self) -> None:
        """Flush output, read again from senders that had to wait, and set the next timer."""
        self.flush()
        self._relieve()
        self.set_timer()

    def flush(self) -> None:
        dispatchers, self._context.unflushed = self._context.unflushed, set()
        for dispatcher in dispatchers:
            try:
                dispatcher.flush()
            except Exception:  # an error of one peer must not stop the others
                logger.exception("output to a peer could not be sent")

    def set_timer(self) -> None:
        wakes = self._next_wakes() if self._is_running else ()
        wake_ms = min((wake_ms for wake_ms in wakes if wake_ms is not None), default=None)
        if self._timer is not None:
            if wake_ms is not None and abs(self._timer_ms - wake_ms) <= LATE_TICK_MS:
                return
            self._timer.cancel()
            self._timer = None
        if wake_ms is not None:
            self._timer_ms = wake_ms
            self._timer = self._loop.call_later(max(0, wake_ms - self._clock()) / 1000 + 0.001, self._tick)

    def _next_wakes(self) -> tuple[int | None, ...]:
        """When something is to be done; None: never."""
        return (self._context.delayed.next_ms(),)

    def _timed_actions(self) -> tuple[Callable[[int], object], ...]:
        """What is called with the time when something is to be done."""
        return (self._context.delayed.run_due,)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self._clock()
        for act in self._timed_actions():
            try:
                act(now_ms)
            except Exception:  # an error in one must not stop the timer of the others
                logger.exception("a timed action failed")
        self.after_action()

    def stop(self) -> None:
        """Set no more timers."""
        self._is_running = False
        self.set_timer()


class Scheduler(OutputScheduler):
    """The same for a namespace, which acts on the reports of its store too."""

    def __init__(
        self,
        gate: CommitGate,
        context: ConnectionContext,
        switch: FaultSwitch,
        clock: Callable[[], int],
        relieve: Callable[[], None],
    ) -> None:
        super().__init__(context, clock, relieve)
        self._gate = gate
        self._switch = switch
        self._reports: deque[Report] = deque()
        """From the threads of the store, and not acted on yet."""
        self._reads: deque[Report] = deque()
        self._reads_end_at: float | None = None
        self._due: deque[tuple[float, Report]] = deque()
        """Messages whose time has come, and when they were read."""
        self._due_call: asyncio.Handle | None = None

    def take_report_from_thread(self, report: Report) -> None:
        self._reports.append(report)
        self._loop.call_soon_threadsafe(self.take_reports)

    def take_reports(self) -> None:
        """Act on the reports of the store: what is written is acknowledged without delay."""
        while self._reports:
            self._take_report(self._reports.popleft())

    def _take_report(self, report: Report) -> None:
        """At once if something is written. Reads can take long, and are queued."""
        if isinstance(report, Committed | CommitFailed | DiskSpaceChanged):
            self._act_on(report)
        elif isinstance(report, RowsRead) and isinstance(report.request, DueRows):
            self._due.append((self._loop.time(), report))
            if self._due_call is None:
                self._due_call = self._loop.call_soon(self._take_due)
        elif not self._reads and self._has_time_for_reads():
            self._act_on(report)
        else:
            self._reads.append(report)

    def _act_on(self, report: Report) -> None:
        self._gate.report(report, self._clock())
        self.after_action()

    def _has_time_for_reads(self) -> bool:
        if self._reads_end_at is None:
            self._reads_end_at = self._loop.time() + READS_S
            self._loop.call_soon(self._next_reads)
        return self._loop.time() < self._reads_end_at

    def _next_reads(self) -> None:
        """Go on with queued reads in the next turn of the loop."""
        self._reads_end_at = None
        while self._reads and self._has_time_for_reads():
            self._act_on(self._reads.popleft())

    def _take_due(self) -> None:
        """Act on one read of due messages, unless others wait for the disk.

        It can lead to much work: copies of a message for many subscriptions.
        """
        self._due_call = None
        if not self._due or not self._is_running:
            return
        began, disk, now_s = self._loop.time(), self._context.disk_share, self._clock() / 1000
        came_at, report = self._due[0]
        if began < came_at + DUE_LATE_S and disk.is_busy(self._gate.unwritten_bytes, now_s):
            self._due_call = self._loop.call_later(DUE_PAUSE_S, self._take_due)
            return
        self._due.popleft()
        try:
            self._act_on(report)
        finally:
            taken = self._loop.time() - began
            pause = DUE_PARTS * taken if taken > READS_S and disk.is_shared(now_s) else 0.0
            self._due_call = self._loop.call_later(pause, self._take_due)

    def _next_wakes(self) -> tuple[int | None, ...]:
        return (self._gate.next_wake_ms(), self._switch.next_change_ms(), *super()._next_wakes())

    def _timed_actions(self) -> tuple[Callable[[int], object], ...]:
        return (self._switch.apply, *super()._timed_actions(), self._tick_machine)

    def _tick_machine(self, now_ms: int) -> None:
        self._gate.do(Tick(), now_ms)

    def stop(self) -> None:
        """Set no more timers, and drop what no peer waits for."""
        super().stop()
        if self._due_call is not None:
            self._due_call.cancel()
