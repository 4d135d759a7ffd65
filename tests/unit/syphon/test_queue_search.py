"""What answers to links say of the backlog queues there are."""

from __future__ import annotations

import pytest

from twinbus.pairing.failure import Failure, FailureKind
from twinbus.syphon.queue_search import sorted_out

NOT_FOUND = Failure(FailureKind.NOT_FOUND, "no such queue")
REFUSED = Failure(FailureKind.UNAUTHORISED, "no right")
DISABLED = Failure(FailureKind.DISABLED, "for now")


def test_queues_that_open_are_there_and_those_not_found_are_not() -> None:
    found = sorted_out(2, {0: None, 1: NOT_FOUND, 2: None, 3: NOT_FOUND})
    assert (found.queues, found.extra, found.missing, found.doubt) == ((0, 2), (2,), {1: NOT_FOUND}, None)


def test_a_queue_that_refuses_us_leaves_a_doubt_whatever_its_index() -> None:
    for index in (1, 50):
        found = sorted_out(2, {0: None, index: REFUSED})
        assert (found.queues, found.refused) == ((0,), {index: REFUSED})
        assert found.doubt == f"whether messages lie in backlog queue {index} cannot be told: {REFUSED}"


def test_a_queue_that_shows_itself_by_its_trouble_is_worked_with() -> None:
    found = sorted_out(2, {0: None, 1: DISABLED, 7: DISABLED})
    assert (found.queues, found.extra, found.doubt) == ((0, 1, 7), (7,), None)


@pytest.mark.parametrize(
    "kind", [FailureKind.BUSY, FailureKind.NO_ANSWER, FailureKind.INTERNAL, FailureKind.UNREACHABLE]
)
def test_an_answer_that_says_nothing_leaves_a_doubt_beyond_the_count_and_is_waited_out_within(
    kind: FailureKind,
) -> None:
    failure = Failure(kind, "not now")
    found = sorted_out(2, {0: failure, 1: None, 2: failure, 3: failure})
    assert (found.queues, found.unsure) == ((0, 1), {2: failure, 3: failure})
    assert found.doubt == f"whether messages lie in backlog queue 2 and 1 more cannot be told: {failure}"
