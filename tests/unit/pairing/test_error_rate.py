"""Brown-outs (P20): most sends fail, but not all, so that no suspicion lasts."""

from __future__ import annotations

import pytest

from twinbus.pairing.error_rate import FLAP_PINGS, PINGS_NEEDED_MAX, ErrorRate
from twinbus.pairing.rules import Rules

RULES = Rules(error_rate=0.5, error_window_s=60, error_sends_min=10, ping_interval_s=30)


def rate_after(pattern: str, *, every_s: float = 1.0, rules: Rules = RULES) -> tuple[ErrorRate, list[bool]]:
    """Sends one after the other: `x` fails, `.` succeeds."""
    rate = ErrorRate(rules)
    return rate, [rate.count(at * every_s, failed=mark == "x") for at, mark in enumerate(pattern)]


def test_without_a_limit_nothing_is_ever_too_much() -> None:
    rate, too_many = rate_after("x" * 100, rules=Rules())
    assert not any(too_many)
    assert rate.share is None


def test_the_share_is_taken_from_enough_sends_only() -> None:
    _, too_many = rate_after("x" * 10)
    assert too_many == [False] * 9 + [True]


def test_the_share_must_reach_the_limit() -> None:
    assert rate_after(".x" * 5)[1][-1]
    assert not rate_after("..x" * 30)[1][-1]


def test_a_success_is_never_the_last_straw() -> None:
    _, too_many = rate_after("x" * 9 + ".")
    assert not any(too_many)


def test_what_is_older_than_the_window_does_not_count() -> None:
    rate, too_many = rate_after("x" * 9 + "." * 60 + "x" * 9)
    assert not any(too_many)
    assert rate.share == pytest.approx(9 / 63, abs=0.03)


def test_slow_sends_never_fill_the_window() -> None:
    _, too_many = rate_after("x" * 50, every_s=10)
    assert not any(too_many)


def test_leaving_the_primary_begins_the_count_anew() -> None:
    rate, _ = rate_after("x" * 10)
    rate.failed_over(10)
    assert rate.share is None
    rate.returned(40)
    assert not rate.count(41, failed=True)


def test_a_failover_soon_after_a_return_is_a_flap_and_a_later_one_is_none() -> None:
    rate = ErrorRate(RULES)
    soon_s = FLAP_PINGS * RULES.ping_interval_s
    rate.failed_over(0)
    rate.returned(100)
    rate.failed_over(100 + soon_s)
    assert rate.flaps == 1
    rate.returned(1_000)
    rate.failed_over(1_000 + soon_s + 1)
    assert rate.flaps == 1


def test_each_flap_in_a_row_doubles_the_pings_that_must_succeed_up_to_a_limit() -> None:
    rate, needed = ErrorRate(RULES), []
    for at in range(0, 60, 10):
        needed.append(rate.pings_needed(at))
        rate.failed_over(at)
        rate.returned(at + 5)
    assert needed == [1, 2, 4, 8, PINGS_NEEDED_MAX, PINGS_NEEDED_MAX]


def test_a_long_time_of_health_is_rewarded_with_one_ping() -> None:
    rate = ErrorRate(RULES)
    for at in (0, 10, 20):
        rate.failed_over(at)
        rate.returned(at + 5)
    assert rate.pings_needed(26) == 8
    assert rate.pings_needed(100_000) == 1
    rate.failed_over(100_000)
    rate.returned(100_005)
    assert rate.pings_needed(100_006) == 2
