"""Who wants to know what happened, and how they are told without keeping a send waiting.

Whoever publishes only puts the news in a queue of limited length. Callbacks run one after the other, in the order of
the news: on a thread of the desk's own, or in asyncio as one task of the loop. News that found the queue full are
counted and gone; the log has them all, those that say the same again as a number.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from twinbus.client.news import LOGGER, News, NewsName, name_for
from twinbus.client.repeated_news import RepeatedNews
from twinbus.errors import OptionsError

QUEUE_MAX = 1_000
CLOSE_S = 1.0
EVERYTHING = "*"

Callback = Callable[[News], object]
AioCallback = Callable[[News], object | Awaitable[object]]
Unsubscribe = Callable[[], None]


@dataclass(eq=False, slots=True)
class _Subscription:
    name: NewsName | None
    """None: everything."""
    callback: Callback
    is_active: bool = True

    def wants(self, news: News) -> bool:
        return self.name is None or self.name is news.name


_Copy = tuple[_Subscription, News]


class _Subscriptions:
    """Who is to be told. Changed by replacing the whole, so that it can be read without a lock."""

    def __init__(self) -> None:
        self._all: tuple[_Subscription, ...] = ()
        self._lock = threading.Lock()

    def add(self, name: str, callback: Callback) -> Unsubscribe:
        if not callable(callback):
            raise OptionsError(f"a callback is a function of News, got {callback!r}")
        one = _Subscription(None if name == EVERYTHING else name_for(name), callback)
        with self._lock:
            self._all = (*self._all, one)
        return lambda: self._remove(one)

    def _remove(self, one: _Subscription) -> None:
        one.is_active = False
        with self._lock:
            self._all = tuple(other for other in self._all if other is not one)

    def copies(self, news: News) -> list[_Copy]:
        return [(one, news) for one in self._all if one.wants(news)]


class _Desk(ABC):
    """What both desks have; `publish` is where they differ."""

    def __init__(self, *, queue_max: int = QUEUE_MAX) -> None:
        self._queue_max = queue_max
        self._subscriptions = _Subscriptions()
        self._waiting: deque[_Copy] = deque()
        self._is_closing = False
        self._dropped = 0
        self._repeated = RepeatedNews()

    @property
    def dropped(self) -> int:
        """How many callbacks were not called because too many news were waiting, or the desk was closed."""
        return self._dropped

    def tell(
        self,
        name: str,
        text: str,
        *,
        entity: str | None = None,
        namespace: str | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Publish what happened just now."""
        self.publish(News(name_for(name), text, entity=entity, namespace=namespace, details=details or {}))

    @abstractmethod
    def publish(self, news: News) -> None:
        """Log the news and queue them for whoever asked."""

    def _log(self, news: News) -> None:
        shown = self._repeated.to_log(news)
        if shown is not None:
            shown.log()

    def _enqueue(self, copies: list[_Copy]) -> None:
        room = 0 if self._is_closing else self._queue_max - len(self._waiting)
        self._waiting += copies[:room]
        self._dropped += len(copies[room:])

    def _drop_the_rest(self) -> None:
        self._dropped += len(self._waiting)
        self._waiting.clear()


class NewsDesk(_Desk):
    """Tells callbacks on one daemon thread, which starts with the first news that somebody wants."""

    def __init__(self, *, queue_max: int = QUEUE_MAX) -> None:
        super().__init__(queue_max=queue_max)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def on(self, name: str, callback: Callback) -> Unsubscribe:
        """Have `callback` called with news of that name, or of every name for "*"; call the result to end it."""
        if inspect.iscoroutinefunction(callback):
            raise OptionsError("this client has no event loop to await a callback on: use a plain function")
        return self._subscriptions.add(name, callback)

    def publish(self, news: News) -> None:
        """Log the news and queue them for whoever asked; returns at once."""
        self._log(news)
        copies = self._subscriptions.copies(news)
        if not copies:
            return
        with self._changed:
            self._enqueue(copies)
            self._start_thread()
            self._changed.notify()

    def close(self, within_s: float = CLOSE_S) -> None:
        """Tell what is waiting, for so long at most, and end the thread. What comes later is only logged."""
        with self._changed:
            self._is_closing = True
            thread = self._thread
            self._changed.notify()
        if thread is threading.current_thread():
            return  # closed by a callback: the thread tells the rest and ends by itself
        if thread is not None:
            thread.join(within_s)
        with self._changed:
            self._drop_the_rest()

    def _start_thread(self) -> None:
        # After a fork the thread is not in the child, though the desk is: so not only "if there is none".
        if not self._waiting or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._deliver, name="twinbus-news", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is about to end, or has no thread left: no reason to fail a send
            self._thread = None
            self._drop_the_rest()

    def _deliver(self) -> None:
        while (copy := self._next()) is not None:
            subscription, news = copy
            if subscription.is_active:
                _call(subscription.callback, news)

    def _next(self) -> _Copy | None:
        with self._changed:
            while not self._waiting and not self._is_closing:
                self._changed.wait()
            return self._waiting.popleft() if self._waiting else None


def _call(callback: Callback, news: News) -> None:
    try:
        callback(news)
    except BaseException:  # also SystemExit: on this thread it would only mean that nobody is told any more
        _report(callback, news)


def _report(callback: Callback, news: News) -> None:
    name = getattr(callback, "__qualname__", repr(callback))
    LOGGER.exception("event=callback_failed callback=%s news=%s", name, news.name.value)


class AioNewsDesk(_Desk):
    """The same on an event loop: functions and coroutine functions, called by one task. Not for other threads."""

    def __init__(self, *, queue_max: int = QUEUE_MAX) -> None:
        super().__init__(queue_max=queue_max)
        self._task: asyncio.Task[None] | None = None

    def on(self, name: str, callback: AioCallback) -> Unsubscribe:
        """Have `callback` called, and awaited if it is a coroutine function, with news of that name ("*": of all)."""
        return self._subscriptions.add(name, callback)

    def publish(self, news: News) -> None:
        """Log the news and queue them for whoever asked; returns at once, no callback has run by then."""
        self._log(news)
        self._enqueue(self._subscriptions.copies(news))
        if self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._deliver(), name="twinbus-news")

    async def close(self, within_s: float = CLOSE_S) -> None:
        """Tell what is waiting, for so long at most, and end the task. What comes later is only logged."""
        self._is_closing = True
        task = self._task
        if task is asyncio.current_task():
            return  # closed by a callback: the task tells the rest and ends by itself
        if task is not None:
            await asyncio.wait([task], timeout=within_s)
            task.cancel()
            await asyncio.wait([task], timeout=within_s)
        self._drop_the_rest()

    async def _deliver(self) -> None:
        while self._waiting:
            subscription, news = self._waiting.popleft()
            if subscription.is_active:
                await _call_or_await(subscription.callback, news)


async def _call_or_await(callback: AioCallback, news: News) -> None:
    try:
        result = callback(news)
        if inspect.isawaitable(result):
            await result
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        _report(callback, news)  # something the callback waited for was cancelled, not we
    except Exception:
        _report(callback, news)
