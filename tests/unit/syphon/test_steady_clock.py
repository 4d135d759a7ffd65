"""The syphon's clock: somebody sets the machine's clock, and nothing happens."""

from __future__ import annotations

import time

import pytest

from twinbus.syphon.clock import SteadyClock


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0, 3_600 * 24 * 365.0])
def test_a_jump_of_the_machines_clock_is_not_seen(monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    started, ran = time.time(), time.monotonic()
    clock = SteadyClock()
    before_ms = clock()
    assert abs(before_ms - started * 1000) < 5_000, "it begins with the machine's time"
    monkeypatch.setattr(time, "time", lambda: started + jump_s)
    monkeypatch.setattr(time, "monotonic", lambda: ran + 10.0)
    assert 0 <= clock() - before_ms <= 10_000
