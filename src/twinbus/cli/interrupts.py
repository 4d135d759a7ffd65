"""Ctrl-C that is not forgotten.

An interrupt is raised wherever the program is, and a library may catch it there and go on: then it shows as some other
failure, or not at all. So it is written down, too; who works for long looks here now and then.
"""

from __future__ import annotations

import signal
from types import FrameType

_came = False


def interrupt(number: int, frame: FrameType | None) -> None:
    """A signal handler: as the usual one, and remembers."""
    global _came
    _came = True
    signal.default_int_handler(number, frame)


def has_come() -> bool:
    return _came


def check() -> None:
    """Raises `KeyboardInterrupt` if there was an interrupt that somebody else has caught."""
    if _came:
        raise KeyboardInterrupt
