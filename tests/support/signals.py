"""Signals for processes that tests start."""

from __future__ import annotations

import signal


def as_at_a_terminal() -> None:
    """For `preexec_fn`: no signal is ignored, though the tests may run under nohup or in the background."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
