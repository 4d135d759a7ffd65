"""What peeking tells of a queue: exact as far as it goes, a lower bound beyond, and never too much of it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from twinbus.pairing.backlog.queue_depth import BYTES_MAX, MESSAGES_MAX, PAGE_MAX, PEEKS_MAX, Depth, Peeked, measure

KB = 1024


def message(sequence: int, **parts: object) -> Peeked:
    usual = {"enqueued_ms": 1_000 + sequence, "is_waiting": True, "was_delivered": False, "size": 100}
    return Peeked(sequence, **(usual | parts))  # type: ignore[arg-type]


def look(
    queue: Sequence[Peeked],
    *,
    answer_max: int = PAGE_MAX,
    messages_max: int = MESSAGES_MAX,
    fetched: list[Peeked] | None = None,
) -> Depth:
    """Measure a queue that gives at most so many messages an answer, whatever is asked."""
    flow = measure(messages_max)
    ask = next(flow)
    try:
        while True:
            found = [each for each in queue if each.sequence >= ask.from_sequence][: min(ask.most, answer_max)]
            if fetched is not None:
                fetched += found
            ask = flow.send(found)
    except StopIteration as done:
        depth: Depth = done.value
        return depth


def test_an_empty_queue_is_known_after_one_peek() -> None:
    assert look([]) == Depth(at_least=0, is_exact=True, oldest_ms=None, peeks=1)


def test_a_short_queue_is_counted_exactly() -> None:
    depth = look([message(7), message(9), message(30)])
    assert (depth.messages, depth.oldest_ms, depth.peeks) == (3, 1_007, 3)


def test_a_deep_queue_is_at_least_as_deep_as_was_looked() -> None:
    depth = look([message(number) for number in range(1, 5_001)])
    assert depth.messages is None
    assert depth.at_least == MESSAGES_MAX
    assert depth.oldest_ms == 1_001


def test_short_answers_are_no_end() -> None:
    """A namespace may give fewer than were asked for."""
    assert look([message(number) for number in (1, 2, 3, 4)], answer_max=1).messages == 4
    assert look([message(number) for number in range(1, 50)], answer_max=1).messages is None


def test_what_no_receiver_gets_is_not_waiting() -> None:
    depth = look([message(1, is_waiting=False), message(2, was_delivered=True), message(3)])
    assert (depth.messages, depth.oldest_ms, depth.was_delivered) == (2, 1_002, True)


def test_large_messages_are_not_all_fetched() -> None:
    fetched: list[Peeked] = []
    assert look([message(number, size=256 * KB) for number in range(1, 1_000)], fetched=fetched).messages is None
    assert sum(each.size for each in fetched) <= 2 * BYTES_MAX


def test_only_the_head_can_be_looked_at() -> None:
    assert look([message(5), message(6)], messages_max=1) == Depth(1, is_exact=False, oldest_ms=1_005, peeks=1)


@given(
    gaps=st.lists(st.integers(1, 50), max_size=300),
    answer_max=st.sampled_from([1, 3, 250]),
    waiting=st.sampled_from([True, False]),
)
def test_a_number_is_exact_or_a_lower_bound_and_bounded_in_cost(
    gaps: list[int], answer_max: int, waiting: bool
) -> None:
    at, queue = 0, []
    for gap in gaps:
        at += gap
        queue.append(message(at, is_waiting=waiting))
    depth, truth = look(queue, answer_max=answer_max), len(queue) if waiting else 0
    assert depth.at_least == truth if depth.is_exact else depth.at_least <= truth
    assert depth.peeks <= PEEKS_MAX
