"""How often, how far apart, and until when one send is tried."""

from __future__ import annotations

import pytest

from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.retry import Tries, backoff_s, longest_s

RULES = Rules(attempts=3, attempt_s=5, backoff_min_s=0.2, backoff_max_s=2)
REFUSED = Failure(FailureKind.UNREACHABLE, "refused")
DOUBTFUL = Failure(FailureKind.NO_ANSWER, "silence", in_doubt=True)


def after(*failures: Failure, deadline: float | None = None) -> Tries:
    tries = Tries(RULES, deadline)
    for failure in failures:
        tries.note(failure)
    return tries


def test_the_pause_doubles_up_to_a_limit() -> None:
    assert [backoff_s(RULES, number) for number in range(6)] == pytest.approx([0.2, 0.4, 0.8, 1.6, 2, 2])
    assert backoff_s(RULES, 10_000) == 2


def test_a_schedule_ends_with_its_attempts() -> None:
    assert after(REFUSED).pause_before_next(0) == pytest.approx(0.2)
    assert after(REFUSED, REFUSED).pause_before_next(0) == pytest.approx(0.4)
    assert after(REFUSED, REFUSED, REFUSED).pause_before_next(0) is None


def test_a_new_round_has_all_attempts_again_and_forgets_none() -> None:
    tries = after(REFUSED, REFUSED, REFUSED)
    tries.new_round()
    tries.note(REFUSED)
    assert tries.pause_before_next(0) == pytest.approx(0.2)
    assert tries.made == 4


def test_there_is_no_pause_that_ends_after_the_callers_patience() -> None:
    tries = after(REFUSED, deadline=10)
    assert tries.pause_before_next(9.7) == pytest.approx(0.2)
    assert tries.pause_before_next(9.8) is None


def test_a_busy_server_is_left_alone_for_ten_seconds_or_not_asked_again() -> None:
    assert after(REFUSED).pause_when_busy(0) == 10
    assert after(REFUSED, deadline=11).pause_when_busy(0.9) == 10
    assert after(REFUSED, deadline=11).pause_when_busy(1) is None
    assert after(REFUSED, REFUSED, REFUSED).pause_when_busy(0) is None


def test_an_attempt_takes_no_longer_than_the_caller_waits() -> None:
    assert Tries(RULES, None).attempt_s(1_000) == 5
    assert Tries(RULES, 100).attempt_s(0) == 5
    assert Tries(RULES, 3).attempt_s(1) == 2
    assert Tries(RULES, 3).attempt_s(1, keep_back_s=0.5) == 1.5
    assert Tries(RULES, 3).attempt_s(4) < 0


def test_every_copy_that_may_be_stored_is_counted() -> None:
    tries = after(DOUBTFUL, REFUSED, DOUBTFUL)
    assert (tries.made, tries.copies_in_doubt, tries.last) == (3, 2, DOUBTFUL)


def test_the_memory_of_failures_is_short() -> None:
    tries = after(*[REFUSED] * 50, DOUBTFUL)
    assert tries.failures == [REFUSED, REFUSED, DOUBTFUL]
    assert tries.made == 51


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 5.0), (2, 10.2), (3, 15.6)])
def test_the_longest_round_is_all_attempts_and_the_pauses_between(attempts: int, seconds: float) -> None:
    assert longest_s(Rules(attempts=attempts)) == pytest.approx(seconds)
