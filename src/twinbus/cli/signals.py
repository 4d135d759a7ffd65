"""Signals: an interrupt that is not forgotten, and signals for commands that run an event loop.

An interrupt is raised wherever the program is, and a library may catch it there and go on: then it shows as another
failure, or not at all. So it is also remembered, and long-running code checks for it now and then.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType

_came = False


def interrupt(number: int, frame: FrameType | None) -> None:
    """A signal handler: as the usual one, and remembers."""
    global _came
    _came = True
    signal.default_int_handler(number, frame)


def was_interrupted() -> bool:
    return _came


def raise_if_interrupted() -> None:
    """Raises `KeyboardInterrupt` if there was an interrupt that somebody else has caught."""
    if _came:
        raise KeyboardInterrupt


@contextmanager
def on_signals(actions: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """While this lasts, each of these signals calls its action, in the running loop; none is lost.

    `loop.add_signal_handler` alone learns of a signal by a byte in the pipe that wakes the loop. That pipe is full when
    threads have called into a loop that was busy for a while, and then the byte, and the signal with it, is dropped.
    """
    loop = asyncio.get_running_loop()
    for number, act in actions.items():
        loop.add_signal_handler(number, _wake)
        signal.signal(number, partial(_pass_on, loop, act))
    try:
        yield
    finally:
        for number in actions:
            loop.remove_signal_handler(number)


def _wake() -> None:
    """The loop goes on, whichever thread the system gave the signal to."""


def _pass_on(loop: asyncio.AbstractEventLoop, act: Callable[[], object], _: int, __: FrameType | None) -> None:
    loop.call_soon_threadsafe(act)
