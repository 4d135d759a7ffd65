"""Time for a test in which both sides live in one event loop: it passes as ever, except while the machine stalls.

A limit of a second and a sleep of two thirds of it keep their order on a machine that runs nothing for five seconds:
the stall counts as one step for all timers alike, and what waits in the sockets is read before the next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

STEP_S = 0.05
"""So much passes at most from one look at the clock to the next."""
BEAT_S = 0.01
"""So often somebody looks, so that waiting for a timer is no stall."""


class SteadyClock:
    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._looked_s = time.monotonic()

    def __call__(self) -> float:
        looked_s = time.monotonic()
        self._now_s += min(looked_s - self._looked_s, STEP_S)
        self._looked_s = looked_s
        return self._now_s


@contextmanager
def steady_time() -> Iterator[None]:
    """For all timers of the running loop."""
    loop = asyncio.get_running_loop()
    usual = loop.time
    loop.time = SteadyClock(usual())  # type: ignore[method-assign]
    beating = loop.create_task(_beat())
    try:
        yield
    finally:
        beating.cancel()
        loop.time = usual  # type: ignore[method-assign]


async def _beat() -> None:
    while True:
        await asyncio.sleep(BEAT_S)
