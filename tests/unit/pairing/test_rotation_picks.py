"""Which backlog queue a sender uses (P6)."""

from __future__ import annotations

import pytest

from twinbus.pairing.backlog.rotation import Rotation
from twinbus.pairing.sending.failure import Failure, FailureKind

FULL = Failure(FailureKind.FULL, "5 GB are used")
REFUSED = Failure(FailureKind.UNREACHABLE, "connection refused")


def rotation(count: int = 4) -> Rotation:
    return Rotation(range(count), probation_s=60)


@pytest.mark.parametrize(("chance", "queue"), [(0.0, 0), (0.25, 1), (0.5, 2), (0.99, 3), (1.0, 3)])
def test_the_first_choice_is_made_by_chance(chance: float, queue: int) -> None:
    assert rotation().pick(None, 0, chance) == queue


def test_a_sender_keeps_its_choice() -> None:
    assert {rotation().pick(2, 0, chance) for chance in (0.0, 0.5, 1.0)} == {2}


def test_a_queue_that_failed_is_left_by_everybody_at_once() -> None:
    shared = rotation()
    assert shared.lose(2, 10, FULL)
    assert {shared.pick(2, 10, chance) for chance in (0.0, 0.4, 0.9)} == {0, 1, 3}


def test_losing_a_queue_is_reported_only_once() -> None:
    shared = rotation()
    assert shared.lose(2, 10, FULL)
    assert not shared.lose(2, 11, FULL)


def test_a_lost_queue_may_be_tried_again_after_its_probation() -> None:
    shared = rotation(1)
    shared.lose(0, 10, FULL)
    assert shared.pick(0, 69.9, 0) is None
    assert shared.pick(0, 70, 0) == 0


def test_failing_again_after_probation_is_reported_and_costs_another_probation() -> None:
    shared = rotation(1)
    shared.lose(0, 10, FULL)
    assert shared.lose(0, 70, FULL)
    assert shared.pick(0, 129.9, 0) is None


def test_a_queue_whose_probation_is_over_is_chosen_like_any_other() -> None:
    shared = rotation(2)
    shared.lose(0, 0, FULL)
    assert {shared.pick(None, 59, chance) for chance in (0.0, 0.5, 1.0)} == {1}
    assert {shared.pick(None, 60, chance) for chance in (0.0, 0.5, 1.0)} == {0, 1}


def test_a_queue_that_took_something_is_as_good_as_any() -> None:
    shared = rotation(2)
    shared.lose(0, 0, FULL)
    assert shared.confirm(0)
    assert not shared.confirm(0)
    assert {shared.pick(None, 1, chance) for chance in (0.0, 1.0)} == {0, 1}


def test_a_busy_queue_is_avoided_but_not_lost() -> None:
    shared = rotation(2)
    assert shared.pick(0, 0, 0, avoid=0) == 1
    assert shared.pick(0, 0, 0) == 0
    assert rotation(1).pick(0, 0, 0, avoid=0) is None


def test_when_none_is_left_every_reason_is_given_once() -> None:
    shared = rotation(3)
    shared.lose(0, 0, FULL)
    shared.lose(1, 0, FULL)
    shared.lose(2, 0, REFUSED)
    assert shared.pick(None, 0, 0) is None
    assert shared.why_none() == "quota exceeded: 5 GB are used; unreachable: connection refused"


def test_without_backlog_queues_that_is_the_reason() -> None:
    assert Rotation((), 60).why_none() == "there is no backlog queue"


def test_a_queue_that_is_gone_is_chosen_no_more_and_its_late_failure_means_nothing() -> None:
    shared = rotation(3)
    shared.use([0, 1])
    assert shared.pick(2, 0, 0.9) == 1
    assert not shared.lose(2, 0, FULL)
    assert shared.lost == {}


def test_what_is_known_about_a_queue_outlives_a_new_look_at_the_queues() -> None:
    shared = rotation(3)
    shared.lose(1, 0, FULL)
    shared.lose(2, 0, FULL)
    shared.use([0, 1])
    assert list(shared.lost) == [1]
    assert shared.available(1) == [0]
