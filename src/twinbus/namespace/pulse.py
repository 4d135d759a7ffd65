"""The pulse of a running namespace: reports come in, time passes, and after each beat what has to be said is sent.

All of it happens in the event loop's thread; the store's threads only hand their reports over.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from twinbus.namespace.commands import Tick
from twinbus.namespace.faults.switch import FaultSwitch
from twinbus.namespace.reception import Reception
from twinbus.namespace.seam import CommitSeam
from twinbus.namespace.store.api import CommitFailed, Committed, DueRows, Report, RoomChanged, RowsRead

logger = logging.getLogger("twinbus.namespace")

LATE_TICK_MS = 5
"""Timers may ring this much late: alarms close together are handled in one go."""
READS_S = 0.004
"""What was read from disk is worked on for so long in one turn of the event loop; the last read may take longer."""
DUE_PAUSE_S, DUE_LATE_S = 0.005, 0.05
"""While much of others waits for the disk, messages whose time has come wait too: looked at so often, each read of them
put off at most so long."""
DUE_PARTS = 4
"""After such a read that took long to act on, the next waits so many times as long, while several connections send."""


class Pulse:
    def __init__(
        self,
        seam: CommitSeam,
        reception: Reception,
        switch: FaultSwitch,
        clock: Callable[[], int],
        relieve: Callable[[], None],
    ) -> None:
        """`relieve` lets senders go on that had to wait; called after every beat."""
        self._seam = seam
        self._reception = reception
        self._switch = switch
        self._clock = clock
        self._relieve = relieve
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_beating = True
        self._reports: deque[Report] = deque()
        """Said by the threads of the store, and not acted on yet."""
        self._reads: deque[Report] = deque()
        self._reads_end_at: float | None = None
        self._due: deque[tuple[float, Report]] = deque()
        """Messages whose time has come, and when they were read."""
        self._due_call: asyncio.Handle | None = None

    def take_report_from_thread(self, report: Report) -> None:
        self._reports.append(report)
        self._loop.call_soon_threadsafe(self.take_reports)

    def take_reports(self) -> None:
        """Act on what the store has said since the last time: what is written is acknowledged without delay."""
        while self._reports:
            self._take_report(self._reports.popleft())

    def _take_report(self, report: Report) -> None:
        """At once if it says that something is written. Many reads take their time, and stand in line for that."""
        if isinstance(report, Committed | CommitFailed | RoomChanged):
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
        self._seam.report(report, self._clock())
        self.settle_down()

    def _has_time_for_reads(self) -> bool:
        if self._reads_end_at is None:
            self._reads_end_at = self._loop.time() + READS_S
            self._loop.call_soon(self._next_reads)
        return self._loop.time() < self._reads_end_at

    def _next_reads(self) -> None:
        """In the next turn of the loop: go on with those that wait."""
        self._reads_end_at = None
        while self._reads and self._has_time_for_reads():
            self._act_on(self._reads.popleft())

    def _take_due(self) -> None:
        """Act on one read of messages whose time has come, when it is not at the expense of those who wait.

        It can lead to much, for the processor and then for the disk: copies of a message for many subscriptions.
        """
        self._due_call = None
        if not self._due or not self._is_beating:
            return
        began, disk, now_s = self._loop.time(), self._reception.disk_share, self._clock() / 1000
        came_at, report = self._due[0]
        if began < came_at + DUE_LATE_S and disk.is_busy(self._seam.unwritten_bytes, now_s):
            self._due_call = self._loop.call_later(DUE_PAUSE_S, self._take_due)
            return
        self._due.popleft()
        try:
            self._act_on(report)
        finally:
            taken = self._loop.time() - began
            pause = DUE_PARTS * taken if taken > READS_S and disk.is_shared(now_s) else 0.0
            self._due_call = self._loop.call_later(pause, self._take_due)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self._clock()
        for act in (self._switch.apply, self._reception.postponed.run_due, self._tick_machine):
            try:
                act(now_ms)
            except Exception:  # one thing that goes wrong must not stop the clock for the others
                logger.exception("something that was due went wrong")
        self.settle_down()

    def _tick_machine(self, now_ms: int) -> None:
        self._seam.do(Tick(), now_ms)

    def settle_down(self) -> None:
        """Something has happened: say what there is to say, and set the alarm for what comes next."""
        self.flush()
        self._relieve()
        self.set_timer()

    def flush(self) -> None:
        doors, self._reception.changed_doors = self._reception.changed_doors, set()
        for door in doors:
            try:
                door.flush()
            except Exception:  # whatever is wrong with one peer, the others and the machine go on
                logger.exception("what there was to say to a peer could not be sent")

    def set_timer(self) -> None:
        wake_ms = self._next_wake_ms()
        if self._timer is not None:
            if wake_ms is not None and abs(self._timer_ms - wake_ms) <= LATE_TICK_MS:
                return
            self._timer.cancel()
            self._timer = None
        if wake_ms is not None:
            self._timer_ms = wake_ms
            self._timer = self._loop.call_later(max(0, wake_ms - self._clock()) / 1000 + 0.001, self._tick)

    def _next_wake_ms(self) -> int | None:
        if not self._is_beating:
            return None
        wakes = (self._seam.next_wake_ms(), self._switch.next_change_ms(), self._reception.postponed.next_ms())
        return min((wake_ms for wake_ms in wakes if wake_ms is not None), default=None)

    def stop(self) -> None:
        """No more alarms, and nothing more that nobody waits for."""
        self._is_beating = False
        self.set_timer()
        if self._due_call is not None:
            self._due_call.cancel()
