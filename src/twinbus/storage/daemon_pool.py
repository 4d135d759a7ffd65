"""A thread pool that no process waits for at its end.

Python joins the threads of its own pools when a process ends, also those that an asyncio loop looks up names with: a
lookup that hangs would keep the process from ending, whoever has long since given up waiting for it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class DaemonPool(ThreadPoolExecutor):
    """Calls wait for a free thread, in order. A thread ends when no call waits for it.

    An asyncio loop refuses executors that are not a `ThreadPoolExecutor`; of that, nothing but the type is used here.
    """

    def __init__(self, threads_max: int = min(32, (os.cpu_count() or 1) + 4)) -> None:
        super().__init__(threads_max)
        self._threads_left = threads_max
        self._calls: deque[Callable[[], None]] = deque()
        self._turn = threading.Lock()

    def submit(
        self, fn: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        """Raises `RuntimeError` if the system has no thread left."""
        answer: Future[Result] = Future()
        call = partial(_call, answer, partial(fn, *args, **kwargs))
        with self._turn:
            if self._threads_left:
                threading.Thread(target=self._work, name="twinbus-storage", daemon=True).start()
                self._threads_left -= 1
            self._calls.append(call)
        return answer

    def _work(self) -> None:
        while True:
            with self._turn:
                if not self._calls:
                    self._threads_left += 1
                    return
                call = self._calls.popleft()
            call()


def _call(answer: Future[Result], act: Callable[[], Result]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(act())
    except BaseException as error:
        answer.set_exception(error)
