"""One side of a pair ends: what follows, to the moment."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.pairing.closing import (
    PARTNER,
    PARTNER_S,
    BothEnded,
    BothOpen,
    DeadlinePassed,
    EndPair,
    Event,
    OneOpen,
    SideClosed,
    SideFaulted,
    SideName,
    State,
    step,
)
from twinbus.pairing.effects import ForgetWake, WakeMe

SIDES: tuple[SideName, SideName] = ("primary", "secondary")
T = 1_000.0


def after(*events: Event, is_syphoning: bool = True) -> tuple[State, list[object]]:
    """The state after these, and everything that was ordered."""
    state: State = BothOpen()
    ordered: list[object] = []
    for event in events:
        state, effects = step(state, event, is_syphoning=is_syphoning)
        ordered += effects
    return state, ordered


@pytest.mark.parametrize("side", SIDES)
def test_the_partner_has_exactly_5_seconds(side: SideName) -> None:
    closed = SideClosed(T, side)
    assert after(closed) == (OneOpen(side, None, T + 5.0), [WakeMe(T + 5.0)])
    assert after(closed, DeadlinePassed(T + 4.999))[1] == [WakeMe(T + 5.0)]
    state, ordered = after(closed, DeadlinePassed(T + 5.0))
    reason = f"the {side} was closed, and the {PARTNER[side]} was not closed within 5 s"
    assert (state, ordered[-1]) == (BothEnded(reason), EndPair(reason))


@pytest.mark.parametrize(("side", "wait_s"), [*product(SIDES, (0.0, 4.999, PARTNER_S))])
def test_both_closed_in_time_is_a_clean_close(side: SideName, wait_s: float) -> None:
    state, ordered = after(SideClosed(T, side), SideClosed(T + wait_s, PARTNER[side]))
    assert (state, ordered) == (BothEnded(None), [WakeMe(T + 5.0), ForgetWake(), EndPair(None)])


@pytest.mark.parametrize("side", SIDES)
def test_a_late_timer_does_not_turn_a_fault_into_a_clean_close(side: SideName) -> None:
    state, ordered = after(SideClosed(T, side), SideClosed(T + 5.001, PARTNER[side]))
    assert isinstance(state, BothEnded)
    assert state.fault is not None
    assert ordered[-1] == EndPair(state.fault)


@pytest.mark.parametrize("side", SIDES)
def test_without_a_syphon_one_side_may_be_closed_for_ever(side: SideName) -> None:
    one_open = OneOpen(side, None, None)
    assert after(SideClosed(T, side), DeadlinePassed(T + 3_600), is_syphoning=False) == (one_open, [])
    both = after(SideClosed(T, side), SideClosed(T + 3_600, PARTNER[side]), is_syphoning=False)
    assert both == (BothEnded(None), [EndPair(None)])


@pytest.mark.parametrize("side", SIDES)
def test_a_side_that_faulted_is_in_the_reason(side: SideName) -> None:
    state, _ = after(SideFaulted(T, side, "the key was revoked"), DeadlinePassed(T + 5.0))
    assert isinstance(state, BothEnded)
    assert "has ended (the key was revoked)" in (state.fault or "")
    closed_in_time = after(SideFaulted(T, side, "the key was revoked"), SideClosed(T + 1, PARTNER[side]))
    assert closed_in_time[0] == BothEnded("the key was revoked")


EVENTS = st.one_of(
    st.builds(SideClosed, st.just(0.0), st.sampled_from(SIDES)),
    st.builds(SideFaulted, st.just(0.0), st.sampled_from(SIDES), st.just("refused")),
    st.builds(DeadlinePassed, st.just(0.0)),
)


@given(st.lists(st.tuples(EVENTS, st.sampled_from([0.0, 1.0, 4.5, 5.0, 6.0])), max_size=8), st.booleans())
def test_a_pair_ends_at_most_once_and_a_wake_is_pending_exactly_while_patience_lasts(
    steps: list[tuple[Event, float]], is_syphoning: bool
) -> None:
    state: State = BothOpen()
    at, ends, wake = T, 0, False
    for event, later_s in steps:
        at += later_s
        moved = type(event)(**{**{name: getattr(event, name) for name in event.__dataclass_fields__}, "at": at})
        state, effects = step(state, moved, is_syphoning=is_syphoning)
        for effect in effects:
            ends += isinstance(effect, EndPair)
            wake = isinstance(effect, WakeMe) or (wake and not isinstance(effect, ForgetWake))
        assert ends == isinstance(state, BothEnded)
        assert wake == (isinstance(state, OneOpen) and state.until is not None)
