"""A pair proves itself again, soon after pairing and then every hour, on a clock that tests put forward (A9)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from azure.servicebus.management import EntityStatus
from paired import Heard, OnLoop, Stage, wait_until

from twinbus.client import keeper, shell
from twinbus.client.standing import FIRST_RECHECK_S, RECHECK_S


class Clock:
    """Time as it passes, and as much more of it as a test wants to have passed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead_s = 0.0
        for module in (keeper, shell):
            monkeypatch.setattr(module, "monotonic", self)

    def __call__(self) -> float:
        return time.monotonic() + self._ahead_s

    def rule(self, bus: Any) -> None:
        """Let a client on tasks go by it too, whose loop has a clock of its own."""
        if isinstance(bus, OnLoop):
            bus._loop.loop.time = self  # type: ignore[method-assign]

    def put_forward(self, seconds: float, bus: Any) -> None:
        """Let so much time pass, and whoever waits look at the clock."""
        self._ahead_s += seconds
        if isinstance(bus, OnLoop):
            bus._loop.loop.call_soon_threadsafe(int)
        else:
            bus._shell._keeper.call_soon(int)

    def until_recheck_s(self, bus: Any) -> float:
        """How long it is until the client looks again by itself; nothing while it looks."""
        if isinstance(bus, OnLoop):
            timer = bus._shell._timers.get("recheck")
            return 0.0 if timer is None else float(timer.when() - self())
        running = bus._shell._keeper
        with running._changed:  # it writes both on a thread of its own
            dates, job = list(running._dates), running._jobs.get("recheck")
        return 0.0 if job is None else float(next(at for at, number, _ in dates if number == job[0]) - self())


def test_a_pair_is_looked_at_soon_after_pairing_and_then_every_hour(
    both: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    client = both.client()
    clock.rule(client)
    with client as bus:
        heard = Heard(bus)
        assert 0 < clock.until_recheck_s(bus) <= FIRST_RECHECK_S
        for status, name, times in (
            (EntityStatus.SEND_DISABLED, "backlog_queue_lost", 1),
            (EntityStatus.ACTIVE, "backlog_queue_back", 1),
            (EntityStatus.SEND_DISABLED, "backlog_queue_lost", 2),
        ):
            both.secondary.change_queue(both.backlog(0), status=status)
            clock.put_forward(clock.until_recheck_s(bus), bus)
            assert heard.wait_for(name, times).details["queue"] == 0
            wait_until(lambda: clock.until_recheck_s(bus) > 0)
            assert RECHECK_S - 60 < clock.until_recheck_s(bus) <= RECHECK_S
        assert len(heard.named("secondary_in_trouble")) == 2
