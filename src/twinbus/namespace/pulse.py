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
from twinbus.namespace.store.api import CommitFailed, Committed, Report, RoomChanged

logger = logging.getLogger("twinbus.namespace")

LATE_TICK_MS = 5
"""Timers may ring this much late: alarms close together are handled in one go."""
READS_S = 0.004
"""What was read from disk is worked on for so long in one turn of the event loop; the last read may take longer."""


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
        self._reads: deque[Report] = deque()
        self._reads_end_at: float | None = None

    def take_report_from_thread(self, report: Report) -> None:
        self._loop.call_soon_threadsafe(self._take_report, report)

    def _take_report(self, report: Report) -> None:
        """At once if it says that something is written. Many reads take their time, and stand in line for that."""
        is_about_writing = isinstance(report, Committed | CommitFailed | RoomChanged)
        if is_about_writing or (not self._reads and self._has_time_for_reads()):
            self._seam.report(report, self._clock())
            self.settle_down()
        else:
            self._reads.append(report)

    def _has_time_for_reads(self) -> bool:
        if self._reads_end_at is None:
            self._reads_end_at = self._loop.time() + READS_S
            self._loop.call_soon(self._next_reads)
        return self._loop.time() < self._reads_end_at

    def _next_reads(self) -> None:
        """In the next turn of the loop: go on with those that wait."""
        self._reads_end_at = None
        while self._reads and self._has_time_for_reads():
            self._seam.report(self._reads.popleft(), self._clock())
            self.settle_down()

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
            door.flush()

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
        """No more alarms."""
        self._is_beating = False
        self.set_timer()
