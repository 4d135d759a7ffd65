"""Whether a timer rings so late that somebody should listen first."""

from __future__ import annotations

import asyncio

import pytest

from twinbus.client.namespace import Namespace
from twinbus.syphon import Syphon
from twinbus.syphon.clock import LATE_MS, SuspensionCheck

NOBODY = "Endpoint=sb://localhost:1;SharedAccessKeyName=root;SharedAccessKey=key;UseDevelopmentEmulator=true"


@pytest.mark.parametrize("late_ms", [-5, 0, LATE_MS - 1])
def test_a_bell_that_is_hardly_late_rings_for_good(late_ms: int) -> None:
    assert not SuspensionCheck().must_wait(10_000, 10_000 + late_ms)


def test_after_a_stop_it_is_listened_once_and_then_judged_however_late_it_is() -> None:
    bell = SuspensionCheck()
    assert bell.must_wait(10_000, 10_000 + LATE_MS)
    assert not bell.must_wait(10_000, 90_000)


def test_each_stop_is_listened_after() -> None:
    bell = SuspensionCheck()
    for due_ms in (1_000, 5_000):
        assert bell.must_wait(due_ms, due_ms + LATE_MS)
        assert not bell.must_wait(due_ms + LATE_MS, due_ms + LATE_MS)


async def test_a_syphon_that_was_stopped_listens_before_it_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_ms = 100_000
    dial = Namespace.from_connection_string(NOBODY).dial(1.0)
    syphon = Syphon(dial, dial, "contoso", 1, clock=lambda: clock_ms)
    judged = asyncio.Event()
    monkeypatch.setattr(syphon.pump, "tick", lambda _now_ms: judged.set())
    syphon._timer_ms = clock_ms
    clock_ms += LATE_MS
    syphon._tick()
    assert not judged.is_set()
    async with asyncio.timeout(60):
        await judged.wait()
