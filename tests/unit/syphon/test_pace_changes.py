"""Another pace for a syphon that runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ordered_backlog import OrderedPumpHarness
from pump_harness import START_MS, PumpHarness

from twinbus.errors import OptionsError
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump.pace import KEEP, Pace, PaceChange, RunState


def filled(*entities: str, count: int = 1_000, **options: Any) -> PumpHarness:
    harness = PumpHarness(**options)
    for number in range(count):
        for entity in entities:
            harness.put(entity, f"{entity}-{number}")
    return harness


def change(harness: PumpHarness, **parts: Any) -> None:
    harness.pump.change_pace(PaceChange(**parts), harness.now_ms)


def test_a_new_rate_holds_from_now_on_and_can_be_lifted() -> None:
    harness = filled("orders", rate=10.0)
    harness.run(5)
    assert len(harness.ids_at("orders")) in range(45, 56)
    change(harness, rate=100.0)
    harness.run(5)
    assert len(harness.ids_at("orders")) in range(530, 570)
    change(harness, rate=None)
    harness.run(2)
    assert len(harness.ids_at("orders")) == 1_000


def test_a_syphon_without_a_limit_gets_one() -> None:
    harness = filled("orders", rate=None, prefetch=10, concurrency=1)
    change(harness, rate=20.0)
    harness.run(5)
    assert len(harness.ids_at("orders")) <= 110


def test_first_counts_from_now_pauses_and_ends_nothing() -> None:
    harness = filled("orders", rate=10.0)
    harness.run(3)
    before = len(harness.ids_at("orders"))
    change(harness, first=25, rate=None)
    harness.run(2)
    assert len(harness.ids_at("orders")) == before + 25
    assert harness.pump.pace.state is RunState.CANARY
    assert harness.pump.pace.stays_after_canary
    assert harness.queues[0].lent == {}
    change(harness, first=5)
    harness.run(1)
    assert len(harness.ids_at("orders")) == before + 25, "a pause stays a pause"
    harness.pump.resume()
    harness.run(1)
    assert len(harness.ids_at("orders")) == before + 30
    harness.pump.resume()
    harness.run(1)
    assert len(harness.ids_at("orders")) == 1_000, "after the pause there is no further one"


@pytest.mark.parametrize("is_paused_first", [True, False])
def test_a_pause_beside_the_limit_does_not_hold_it_back_for_ever(is_paused_first: bool) -> None:
    pace = Pace(SyphonOptions(), START_MS)
    pace.change(PaceChange(first=1), START_MS)
    pace.sent(1)
    if is_paused_first:
        pace.pause()
    pace.ended(1, moved=True)
    pace.pause()
    assert not pace.is_running
    pace.resume()
    assert pace.allowance(START_MS) > 1


def test_only_these_entities_from_now_on_and_all_again() -> None:
    harness = filled("orders", "invoices", rate=20.0)
    harness.run(2)
    change(harness, entities=frozenset({"/Orders"}), rate=None)
    before = len(harness.ids_at("invoices"))
    harness.run(8)
    assert len(harness.ids_at("orders")) == 1_000
    assert len(harness.ids_at("invoices")) - before <= 5, "what was in flight"
    assert harness.pump.counts.unlisted > 0
    change(harness, entities=None)
    harness.run(40)
    assert len(harness.ids_at("invoices")) == 1_000
    assert harness.queues[0].lent == {}


def test_in_order_too_entities_can_change() -> None:
    harness = OrderedPumpHarness(prefetch=20, rate=50.0)
    for number in range(100):
        harness.put("orders", "a", f"m{number}")
        harness.put("invoices", "a", f"m{number}")
    harness.run(1)
    for entities, rate in ((frozenset({"invoices"}), 200.0), (None, None)):
        harness.pump.change_pace(PaceChange(entities=entities, rate=rate), harness.now_ms)
        harness.run(200)
    assert harness.first_copies("orders", "a") == harness.first_copies("invoices", "a") == [f"m{n}" for n in range(100)]
    assert len(harness.home["orders"]) == 100


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"rate": 0.0}, "rate must be above 0"),
        ({"rate": float("nan")}, "rate must be above 0"),
        ({"first": 0}, "first must be 1 or more"),
        ({"entities": frozenset({" /"})}, "the name of an entity must not be empty"),
        ({"entities": frozenset()}, "entities must name one or more"),
        ({"rate": -1.0, "first": -1}, "rate must be .*; first must be"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_with_everything_that_is_wrong(parts: Any, text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        PaceChange(**parts)


CHANGES = st.builds(
    PaceChange,
    rate=st.sampled_from([KEEP, None, 1.0, 50.0]),
    first=st.sampled_from([KEEP, None, 1, 1, 3]),
    entities=st.sampled_from([KEEP, None, frozenset({"orders"})]),
)
STEPS = st.one_of(CHANGES, st.sampled_from(["pause", "resume", "second", "send", "stored", "stored", "failed"]))


@given(st.lists(STEPS, min_size=20, max_size=60))
def test_never_more_is_allowed_than_rate_and_number_say(steps: list[PaceChange | str]) -> None:
    pace, now_ms, in_flight, moved = Pace(SyphonOptions(), START_MS), START_MS, 0, 0
    until: int | None = None
    for step in steps:
        match step:
            case PaceChange():
                was_paused = not pace.is_running
                pace.change(step, now_ms)
                assert was_paused is not pace.is_running, "only pause, resume and the limit change that"
                if step.first is None:
                    until = None
                elif isinstance(step.first, int):
                    until = moved + step.first
            case "pause":
                pace.pause()
            case "resume":
                if pace.state is RunState.CANARY:
                    until = None
                pace.resume()
            case "second":
                now_ms += 1_000
            case "send":
                if pace.allowance(now_ms):
                    pace.sent(1)
                    in_flight += 1
            case _:
                if in_flight:
                    in_flight -= 1
                    moved += step == "stored"
                    pace.ended(1, moved=step == "stored")
        allowed = pace.allowance(now_ms)
        assert pace.first_left == (None if until is None else max(0, until - moved))
        assert not allowed or pace.is_running
        assert not pace.is_running or pace.first_left != 0, "it does not wait for ever for a `resume` that it has had"
        assert until is None or not allowed or moved + in_flight + allowed <= until
        assert pace.rate is None or allowed <= max(1.0, pace.rate / 10)
