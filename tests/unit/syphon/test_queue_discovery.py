"""What answers to links say of the backlog queues there are."""

from __future__ import annotations

import pytest

from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.peeking.queue_discovery import classify_queues, is_permanent

NOT_FOUND = Failure(FailureKind.NOT_FOUND, "no such queue")
REFUSED = Failure(FailureKind.UNAUTHORISED, "no right")
DISABLED = Failure(FailureKind.DISABLED, "for now")
FULL = Failure(FailureKind.FULL, "for now")


def test_queues_that_open_are_there_and_those_not_found_are_not() -> None:
    found = classify_queues(2, {0: None, 1: NOT_FOUND, 2: None, 3: NOT_FOUND})
    assert (found.queues, found.extra, found.missing, found.doubt) == ((0, 2), (2,), {1: NOT_FOUND}, None)


def test_a_queue_that_refuses_us_leaves_a_doubt_whatever_its_index() -> None:
    for index in (1, 50):
        found = classify_queues(2, {0: None, index: REFUSED})
        assert (found.queues, found.refused) == ((0,), {index: REFUSED})
        assert found.doubt == f"unknown whether messages are in backlog queue {index}: {REFUSED}"


def test_a_queue_that_shows_itself_by_its_trouble_is_worked_with() -> None:
    found = classify_queues(2, {0: None, 1: DISABLED, 7: FULL})
    assert (found.queues, found.extra, found.missing) == ((0, 1, 7), (7,), {})


@pytest.mark.parametrize("kind", [FailureKind.NOT_ALLOWED, FailureKind.DISABLED, FailureKind.REJECTED])
def test_a_queue_that_gives_nothing_to_a_syphon_is_named_with_a_remedy_whatever_its_index(kind: FailureKind) -> None:
    failure = Failure(kind, "not for you")
    found = classify_queues(2, {0: None, 1: failure, 7: failure})
    assert (found.queues, list(found.shut), found.refused) == ((0, 1, 7), [1, 7], {})
    assert [line.partition(";")[0] for line in found.doubts] == [
        f"backlog queue {index} cannot be emptied: {failure}" for index in (1, 7)
    ]
    assert all(line.partition("; ")[2] for line in found.doubts), "what would help"


def test_of_many_queues_that_cannot_be_emptied_some_are_named_and_the_others_counted() -> None:
    found = classify_queues(2, dict.fromkeys(range(10), DISABLED) | {11: REFUSED})
    assert len(found.doubts) == 7
    assert found.doubts[5:] == [
        "5 more backlog queues cannot be emptied either",
        f"unknown whether messages are in backlog queue 11: {REFUSED}",
    ]


def test_an_answer_lasts_unless_it_is_an_outage() -> None:
    kinds = {kind for kind in FailureKind if is_permanent(Failure(kind, "so"))}
    assert kinds == {
        FailureKind.NOT_FOUND,
        FailureKind.DELETED,
        FailureKind.UNAUTHORISED,
        FailureKind.NOT_ALLOWED,
        FailureKind.DISABLED,
        FailureKind.REJECTED,
    }
    assert not is_permanent(Failure(FailureKind.UNAUTHORISED, "no token now", error=OSError("the issuer is away")))


@pytest.mark.parametrize(
    "kind",
    [
        FailureKind.BUSY,
        FailureKind.NO_ANSWER,
        FailureKind.TIMED_OUT,
        FailureKind.INTERNAL,
        FailureKind.UNREACHABLE,
    ],
)
def test_an_answer_that_says_nothing_leaves_a_doubt_beyond_the_count_and_is_waited_out_within(
    kind: FailureKind,
) -> None:
    failure = Failure(kind, "not now")
    found = classify_queues(2, {0: failure, 1: None, 2: failure, 3: failure})
    assert (found.queues, found.unsure) == ((0, 1), {2: failure, 3: failure})
    assert found.doubt == f"unknown whether messages are in backlog queue 2 and 1 more: {failure}"
