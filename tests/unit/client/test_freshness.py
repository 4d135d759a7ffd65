"""When to look again, so that what is shown is fresh (X7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.client.inspection.freshness import FRESH_S, SHOWN_WITHIN_S, is_stale, pause_s

SLOWEST_S = (FRESH_S - SHOWN_WITHIN_S) / 2.5
"""A look that is longer is shown as stale for a while."""


@given(st.floats(1, 25), st.floats(0, SLOWEST_S), st.sampled_from([1.0, 4.0]))
def test_a_look_is_replaced_by_the_next_one_before_it_is_stale(every_s: float, took_s: float, share: float) -> None:
    shown_until_s = took_s + pause_s(every_s, took_s, share) + took_s
    assert shown_until_s + SHOWN_WITHIN_S <= FRESH_S + 1e-6


@given(st.floats(1, 25), st.floats(0, 600), st.sampled_from([1.0, 4.0]))
def test_however_long_looks_take_others_get_time_too(every_s: float, took_s: float, share: float) -> None:
    assert pause_s(every_s, took_s, share) >= max(0.5, took_s / 2)


@pytest.mark.parametrize(
    ("every_s", "took_s", "share", "pause"), [(5, 1, 1, 4), (5, 3, 4, 9), (5, 9, 4, 10), (25, 0, 1, 25)]
)
def test_quick_looks_begin_as_often_as_was_asked_for(every_s: float, took_s: float, share: float, pause: float) -> None:
    assert pause_s(every_s, took_s, share) == pause


def test_what_was_never_seen_is_unknown_and_not_stale() -> None:
    assert [is_stale(at, 100.0) for at in (None, 70.0, 69.9)] == [False, False, True]
