"""The clock of a paired client, which tests put forward: an hour passes in a moment."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from paired import OnLoop


class ClientClock:
    """Time as it passes, and as much more of it as a test wants to have passed.

    Put it forward while nothing is under way: whatever waits for an answer would find that its time is over.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead_s = 0.0
        for name, module in list(sys.modules.items()):
            if name.startswith("twinbus.client.") and getattr(module, "monotonic", None) is time.monotonic:
                monkeypatch.setattr(module, "monotonic", self)

    def __call__(self) -> float:
        return time.monotonic() + self._ahead_s

    def rule(self, bus: Any) -> None:
        """Let a client on tasks go by it too, whose loop has a clock of its own."""
        if isinstance(bus, OnLoop):
            bus._loop.loop.time = self  # type: ignore[method-assign]

    def put_forward(self, seconds: float, bus: Any) -> None:
        """Let so much time pass, and have timers look at the clock."""
        self._ahead_s += seconds
        if isinstance(bus, OnLoop):
            bus._loop.loop.call_soon_threadsafe(int)
        else:
            bus._runner._timers.begin(int)
