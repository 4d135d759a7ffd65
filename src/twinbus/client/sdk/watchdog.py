"""The watchdog: no call of the sync SDK hangs for ever, even where its `timeout=` does not reach.

The SDK waits without any bound, among others, while it negotiates SASL, while it renews its token in the middle of a
send, after the server has ended its session, and when bytes drip in one by one. All of these end when the connection is
taken from under them. One thread per bus looks a few times a second which calls are overdue and shuts their
connections down; a hanging call then ends with an error by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Protocol

LOOK_EVERY_S = 0.25
GRACE_S = 0.1
"""How long after its time a call may still end by itself: the SDK looks at its own clock only every 0.2 s."""
JUST_AFTER_S = 0.001
STOP_WAIT_S = 3.0


class Watched(Protocol):
    busy_until: float | None
    """On the monotonic clock; None while nobody waits."""

    def cut(self) -> None:
        """Take the connection from under the call; returns at once, never raises, may be repeated."""


class Watchdog:
    """Cuts the connections of calls that take too long."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._watched: set[Watched] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopping = False

    def watch(self, link: Watched) -> None:
        """Look after a link from now on; the thread starts with the first one."""
        with self._changed:
            self._watched.add(link)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="twinbus-watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()

    def forget(self, link: Watched) -> None:
        with self._changed:
            self._watched.discard(link)
            self._changed.notify()

    def stop(self) -> None:
        """Cut whatever is still busy, and end. What is watched later is looked after all the same."""
        with self._changed:
            thread = self._thread
            if thread is None:
                return
            self._is_stopping = True
            self._changed.notify()
        if thread is not threading.current_thread():
            thread.join(STOP_WAIT_S)

    def look(self) -> None:
        """Cut what is overdue, once."""
        now = self._clock()
        for link in self._taken():
            until = link.busy_until
            if until is not None and (self._is_stopping or now > until + GRACE_S):
                link.cut()

    def _taken(self) -> list[Watched]:
        with self._changed:
            return list(self._watched)

    def _run(self) -> None:
        while self._is_needed():
            self.look()

    def _is_needed(self) -> bool:
        """Waits for the time of the next look; False when there will be none."""
        with self._changed:
            # Whoever is being opened when it stops has to be cut again and again until that ends: a connection that
            # is not there yet cannot be cut. So the thread may outlive stop() by as long as the SDK takes to connect.
            if not self._watched and not self._is_stopping:
                self._changed.wait()
            elif self._is_busy() or not self._is_stopping:
                self._changed.wait(self._next_look_s())
            if self._is_stopping and not self._is_busy():
                self._thread, self._is_stopping = None, False
                return False
            return True

    def _next_look_s(self) -> float:
        """Regularly, since calls begin without a notice; and when the first of those under way is overdue."""
        now = self._clock()
        ends = [until + GRACE_S for link in self._watched if (until := link.busy_until) is not None]
        return min([LOOK_EVERY_S, *(end - now + JUST_AFTER_S for end in ends if end > now)])

    def _is_busy(self) -> bool:
        return any(link.busy_until is not None for link in self._watched)


class WatchedCall:
    """`with WatchedCall(watchdog, seconds, cut):` cuts what runs in the block if it takes longer than this from now."""

    def __init__(self, watchdog: Watchdog, deadline_s: float, cut: Callable[[], None]) -> None:
        self.busy_until: float | None = monotonic() + deadline_s
        self.cut = cut
        self._watchdog = watchdog
        watchdog.watch(self)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._watchdog.forget(self)
