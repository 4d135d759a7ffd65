"""A pair proves itself again, soon after pairing and then every hour, on a clock that tests put forward (A9)."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus.management import EntityStatus
from client_clock import ClientClock
from paired import Heard, OnLoop, PairHarness, wait_until

HOUR_S = 3_600
MINUTE_S = 60
STALL_S = 60
"""A machine may take so long for what takes a moment."""


def until_recheck_s(clock: ClientClock, bus: Any) -> float:
    """How long it is until the client looks again by itself; nothing while it looks."""
    if isinstance(bus, OnLoop):
        timer = bus._runner._timers._timers.get("recheck")
        return 0.0 if timer is None else float(timer.when() - clock())
    running = bus._runner._timers
    with running._changed:  # it writes both on a thread of its own
        dates, job = list(running._dates), running._jobs.get("recheck")
    return 0.0 if job is None else float(next(at for at, number, _ in dates if number == job[0]) - clock())


@pytest.mark.long
def test_a_pair_is_looked_at_soon_after_pairing_and_then_every_hour(
    both: PairHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ClientClock(monkeypatch)
    client = both.client()
    clock.rule(client)
    with client as bus:
        heard = Heard(bus)
        assert 0 < until_recheck_s(clock, bus) <= MINUTE_S
        for status, name, times in (
            (EntityStatus.SEND_DISABLED, "backlog_queue_lost", 1),
            (EntityStatus.ACTIVE, "backlog_queue_back", 1),
            (EntityStatus.SEND_DISABLED, "backlog_queue_lost", 2),
        ):
            both.secondary.change_queue(both.backlog(0), status=status)
            clock.put_forward(until_recheck_s(clock, bus), bus)
            assert heard.wait_for(name, times).details["queue"] == 0
            wait_until(lambda: until_recheck_s(clock, bus) > 0)
            assert HOUR_S - STALL_S < until_recheck_s(clock, bus) <= HOUR_S
        assert len(heard.named("secondary_in_trouble")) == 2
