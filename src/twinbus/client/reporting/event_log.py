"""Events of a paired client: to its logger, and to callbacks without keeping a send waiting.

Publishing only puts an event into a queue of limited length. Callbacks run one after the other, in the order of events:
on a thread of the event log, or in asyncio as one task of the loop. Events that find the queue full are counted and
dropped. The logger gets every event; those that repeat themselves while a primary is down, as a number.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from twinbus.client.reporting.events import LOGGER, PairEvent, PairEventName, parse_event_name
from twinbus.errors import OptionsError

QUEUE_MAX = 1_000
CLOSE_S = 1.0
EVERYTHING = "*"

Callback = Callable[[PairEvent], object]
AioCallback = Callable[[PairEvent], object | Awaitable[object]]
Unsubscribe = Callable[[], None]


@dataclass(eq=False, slots=True)
class _CallbackEntry:
    name: PairEventName | None
    """None: everything."""
    callback: Callback
    is_active: bool = True


_Call = tuple[_CallbackEntry, PairEvent]


class _EventLogBase(ABC):
    """What both event logs have; `publish` is where they differ."""

    def __init__(self, *, queue_max: int = QUEUE_MAX) -> None:
        self._queue_max = queue_max
        self._entries: tuple[_CallbackEntry, ...] = ()
        """Replaced as a whole, so that it can be read without a lock."""
        self._entries_lock = threading.Lock()
        self._waiting: deque[_Call] = deque()
        self._is_closing = False
        self._dropped = 0
        self._repeated = RepeatedEvents()

    @property
    def dropped(self) -> int:
        """How many callbacks were not called because too many events were waiting, or the log was closed."""
        return self._dropped

    def report(
        self,
        name: str,
        text: str,
        *,
        entity: str | None = None,
        namespace: str | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Publish what happened just now."""
        self.publish(PairEvent(parse_event_name(name), text, entity=entity, namespace=namespace, details=details or {}))

    @abstractmethod
    def publish(self, event: PairEvent) -> None:
        """Log the event and queue it for its callbacks; returns at once."""

    def _add(self, name: str, callback: Callback) -> Unsubscribe:
        if not callable(callback):
            raise OptionsError(f"a callback is a function of PairEvent, got {callback!r}")
        entry = _CallbackEntry(None if name == EVERYTHING else parse_event_name(name), callback)

        def remove() -> None:
            entry.is_active = False
            with self._entries_lock:
                self._entries = tuple(other for other in self._entries if other is not entry)

        with self._entries_lock:
            self._entries = (*self._entries, entry)
        return remove

    def _log(self, event: PairEvent) -> list[_Call]:
        """Write the event to the logger; the calls that it leads to."""
        shown = self._repeated.to_log(event)
        if shown is not None:
            shown.log()
        return [(entry, event) for entry in self._entries if entry.name is None or entry.name is event.name]

    def _enqueue(self, calls: list[_Call]) -> None:
        room = 0 if self._is_closing else self._queue_max - len(self._waiting)
        self._waiting += calls[:room]
        self._dropped += len(calls[room:])

    def _drop_the_rest(self) -> None:
        self._dropped += len(self._waiting)
        self._waiting.clear()


class EventLog(_EventLogBase):
    """Calls callbacks on one daemon thread, which starts with the first event that has a callback."""

    def __init__(self, *, queue_max: int = QUEUE_MAX) -> None:
        super().__init__(queue_max=queue_max)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def on(self, name: str, callback: Callback) -> Unsubscribe:
        """Call `callback` with events of that name, or with all for "*"; call the result to end it."""
        if inspect.iscoroutinefunction(callback):
            raise OptionsError("this client has no event loop to await a callback on: use a plain function")
        return self._add(name, callback)

    def publish(self, event: PairEvent) -> None:
        calls = self._log(event)
        if not calls:
            return
        with self._changed:
            self._enqueue(calls)
            self._start_thread()
            self._changed.notify()

    def close(self, within_s: float = CLOSE_S) -> None:
        """Make the calls that wait, for so long at most, and end the thread. Later events are only logged."""
        with self._changed:
            self._is_closing = True
            thread = self._thread
            self._changed.notify()
        if thread is threading.current_thread():
            return  # closed by a callback: the thread makes the other calls and ends by itself
        if thread is not None:
            thread.join(within_s)
        with self._changed:
            self._drop_the_rest()

    def _start_thread(self) -> None:
        # After a fork the thread is not in the child, though this object is: so not only "if there is none".
        if not self._waiting or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._deliver, name="twinbus-events", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is about to end, or has no thread left: no reason to fail a send
            self._thread = None
            self._drop_the_rest()

    def _deliver(self) -> None:
        while (call := self._next()) is not None:
            entry, event = call
            try:
                if entry.is_active:
                    entry.callback(event)
            except BaseException:  # also SystemExit: on this thread it would only end all callbacks
                _log_failure(entry.callback, event)

    def _next(self) -> _Call | None:
        with self._changed:
            while not self._waiting and not self._is_closing:
                self._changed.wait()
            return self._waiting.popleft() if self._waiting else None


class AioEventLog(_EventLogBase):
    """The same on an event loop: functions and coroutine functions, called by one task. Not for other threads."""

    def __init__(self, *, queue_max: int = QUEUE_MAX) -> None:
        super().__init__(queue_max=queue_max)
        self._task: asyncio.Task[None] | None = None

    def on(self, name: str, callback: AioCallback) -> Unsubscribe:
        """Call `callback` with events of that name ("*": with all), and await it if it is a coroutine function."""
        return self._add(name, callback)

    def publish(self, event: PairEvent) -> None:
        self._enqueue(self._log(event))
        if self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._deliver(), name="twinbus-events")

    async def close(self, within_s: float = CLOSE_S) -> None:
        """Make the calls that wait, for so long at most, and end the task. Later events are only logged."""
        self._is_closing = True
        task = self._task
        if task is asyncio.current_task():
            return  # closed by a callback: the task makes the other calls and ends by itself
        if task is not None:
            await asyncio.wait([task], timeout=within_s)
            task.cancel()
            await asyncio.wait([task], timeout=within_s)
        self._drop_the_rest()

    async def _deliver(self) -> None:
        while self._waiting:
            entry, event = self._waiting.popleft()
            try:
                result = entry.callback(event) if entry.is_active else None
                if inspect.isawaitable(result):
                    await result
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                _log_failure(entry.callback, event)  # something the callback waited for was cancelled, not this task
            except Exception:
                _log_failure(entry.callback, event)


def _log_failure(callback: Callback, event: PairEvent) -> None:
    name = getattr(callback, "__qualname__", repr(callback))
    LOGGER.exception("event=callback_failed callback=%s about=%s", name, event.name.value)


# --- fewer log lines for what happens again and again while a primary is down ---

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(hours=1)
REPEATED = frozenset({PairEventName.PING_FAILED})
ENDS = frozenset({PairEventName.FAILED_OVER, PairEventName.RECOVERED})
"""The next event after these is logged in full again."""


@dataclass(slots=True)
class _Series:
    began_at: datetime
    due_at: datetime
    pause: timedelta = FIRST_PAUSE
    times: int = 1


class RepeatedEvents:
    """Which events of one client are logged. The first is logged in full; those that say the same are counted, and a
    short line with their number follows at growing intervals. The time is that of the events."""

    def __init__(self) -> None:
        self._series: dict[str, dict[str, _Series]] = {}

    def to_log(self, event: PairEvent) -> PairEvent | None:
        """The event, or a short form that stands for several, or None: nothing now."""
        entity = event.entity or ""
        if event.name in ENDS:
            self._series.pop(entity, None)
        if event.name not in REPEATED:
            return event
        kind = event.text.partition(":")[0]
        known = self._series.setdefault(entity, {})
        series = known.get(kind)
        if series is None:
            known[kind] = _Series(event.at, event.at + FIRST_PAUSE)
            return event
        series.times += 1
        if event.at < series.due_at:
            return None
        series.pause = min(2 * series.pause, LONGEST_PAUSE)
        series.due_at = event.at + series.pause
        details = {"times": series.times, "since_s": round((event.at - series.began_at).total_seconds())}
        return replace(event, text=kind, details=details)
