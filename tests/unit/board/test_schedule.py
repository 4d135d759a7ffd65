"""When reports are posted: at changes, more often while something is wrong, and never too often."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.board.schedule import BUSY_EVERY_S, CALM_EVERY_S, CHANGE_PAUSE_MAX_S, RETRY_MAX_S, PostSchedule


def test_a_process_reports_at_once_when_it_begins() -> None:
    assert PostSchedule(10.0).due_at == 10.0


@pytest.mark.parametrize(("is_calm", "every_s"), [(True, CALM_EVERY_S), (False, BUSY_EVERY_S)])
def test_the_next_report_is_never_later_than_promised(is_calm: bool, every_s: float) -> None:
    schedule = PostSchedule(0.0)
    schedule.posted(0.0, "same", is_calm=is_calm, chance=0.0)
    assert schedule.due_at == every_s
    schedule.posted(0.0, "same", is_calm=is_calm, chance=1.0)
    assert schedule.due_at == pytest.approx(0.9 * every_s)


def test_a_change_is_due_within_a_second_and_what_is_no_change_is_not() -> None:
    schedule = PostSchedule(0.0)
    schedule.posted(0.0, "calm", is_calm=True, chance=0.0)
    schedule.changed(30.0, "calm")
    assert schedule.due_at == CALM_EVERY_S
    schedule.changed(30.0, "failed over")
    assert schedule.due_at == 30.0


def test_after_a_failure_it_is_tried_again_more_and_more_seldom() -> None:
    schedule, times = PostSchedule(0.0), []
    for _ in range(8):
        at = schedule.due_at
        times.append(at)
        schedule.failed(at)
        schedule.changed(at, "changed meanwhile")  # does not make it hurry
    gaps = [b - a for a, b in pairwise(times)]
    assert gaps == [1, 2, 4, 8, 16, RETRY_MAX_S, RETRY_MAX_S]


@given(st.lists(st.floats(0.01, 5.0), min_size=50, max_size=200))
def test_however_fast_things_change_the_number_of_reports_is_bounded(gaps: list[float]) -> None:
    schedule, at, posted = PostSchedule(0.0), 0.0, 0
    for number, gap in enumerate(gaps):
        at += gap
        schedule.changed(at, number)
        if at >= schedule.due_at:
            schedule.posted(at, number, is_calm=False, chance=0.5)
            posted += 1
    assert posted <= 7 + at / (CHANGE_PAUSE_MAX_S * 0.9)
