"""What is known of the numbers in a backlog queue, and what may therefore go home."""

from __future__ import annotations

from twinbus.pairing.backlog.envelope import Aliases
from twinbus.pairing.backlog.ordering import key_of
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump.backlog_message import HeldMessage, LockBatch, OrderPosition
from twinbus.syphon.pump.backlog_queue import BacklogQueue
from twinbus.syphon.pump.sequence_gaps import OrderDecision, SequenceTracker

QUEUE = BacklogQueue(0, "q/0", SyphonOptions())


def message(sequence: int, session_id: str = "a") -> HeldMessage:
    held = HeldMessage(sequence, b"", LockBatch(QUEUE, 0), b"", Aliases("orders", session_id), is_opened=True)
    held.position = OrderPosition(key_of("orders", session_id), sequence, b"", None)
    return held


def test_numbers_that_follow_each_other_may_go() -> None:
    sequence = SequenceTracker(1)
    assert [sequence.enter(message(number)) for number in (1, 2, 3)] == [OrderDecision.GO] * 3
    assert sequence.wanted_peek() is None


def test_behind_a_gap_everything_waits_for_a_look() -> None:
    sequence = SequenceTracker(1)
    messages = [message(7), message(8), message(12)]
    assert [sequence.enter(each) for each in messages] == [OrderDecision.WAIT] * 3
    assert sequence.wanted_peek() == (1, 3)
    assert sequence.peeked(1, [7, 8, 12], 12) == (messages, [])
    assert sequence.enter(message(13)) is OrderDecision.GO


def test_a_message_that_hides_in_the_gap_sends_everything_behind_it_back() -> None:
    sequence = SequenceTracker(1)
    messages = [message(7), message(9)]
    for each in messages:
        sequence.enter(each)
    assert sequence.peeked(1, [7, 8], 8) == (messages[:1], messages[1:])
    assert sequence.enter(message(8)) is OrderDecision.GO, "it came after all"
    assert sequence.enter(message(9)) is OrderDecision.GO


def test_a_look_that_shows_only_earlier_messages_settles_it_too() -> None:
    sequence = SequenceTracker(1)
    late = message(9)
    sequence.enter(late)
    assert sequence.peeked(1, [3], 3) == ([], [late])


def test_messages_that_came_while_the_queue_was_looked_at_are_judged_with_it() -> None:
    sequence = SequenceTracker(1)
    messages = [message(5), message(6), message(8)]
    for each in messages:
        sequence.enter(each)
    assert sequence.peeked(1, [5], 5) == (messages[:2], [])
    assert sequence.wanted_peek() == (7, 1)


def test_when_nothing_is_known_everything_goes_back() -> None:
    sequence = SequenceTracker(1)
    late = message(9)
    sequence.enter(late)
    assert sequence.peek_failed() == [late]
    assert sequence.wanted_peek() is None


def test_after_a_message_was_set_aside_none_of_its_key_goes_until_the_sweep_is_over() -> None:
    sequence = SequenceTracker(1)
    first, second, other = message(1), message(2), message(3, "b")
    assert sequence.enter(first) is OrderDecision.GO
    sequence.block(first.position.key)
    assert sequence.enter(second) is OrderDecision.PARK
    assert sequence.enter(other) is OrderDecision.GO
    sequence.released([first, second])
    assert sequence.enter(message(1)) is OrderDecision.GO
    assert sequence.enter(message(2)) is OrderDecision.GO


def test_what_was_given_back_comes_again_before_later_messages_of_its_key() -> None:
    sequence = SequenceTracker(1)
    for number in (1, 2):
        sequence.enter(message(number))
    sequence.released([message(1)])
    assert sequence.enter(message(3)) is OrderDecision.RELEASE
    assert sequence.enter(message(4, "b")) is OrderDecision.GO
    assert sequence.wanted_peek() == (1, 1), "where is it?"


def test_a_message_that_was_under_way_when_others_were_given_back_does_not_stop_them() -> None:
    sequence = SequenceTracker(1)
    for number in (1, 2, 3):
        sequence.enter(message(number))
    sequence.released([message(1), message(2)])
    assert sequence.enter(message(4)) is OrderDecision.RELEASE
    assert sequence.enter(message(1)) is OrderDecision.GO
    assert sequence.enter(message(2)) is OrderDecision.GO
    assert sequence.enter(message(5)) is OrderDecision.RELEASE, "4 goes back first"
    assert sequence.enter(message(4)) is OrderDecision.GO


def test_what_was_given_back_and_is_there_no_more_is_not_waited_for() -> None:
    sequence = SequenceTracker(1)
    sequence.enter(message(1))
    sequence.released([message(1)])
    sequence.enter(message(2))
    sequence.peeked(1, [2], 2)
    assert sequence.enter(message(2)) is OrderDecision.GO, "it comes again, and 1 does not"


def test_a_message_that_comes_twice_is_known() -> None:
    sequence = SequenceTracker(1)
    sequence.enter(message(1))
    assert sequence.is_repeat(message(1))
    assert not sequence.is_repeat(message(2))
    sequence.released([message(1)])
    assert not sequence.is_repeat(message(1)), "it was expected"


def test_messages_of_nobody_hide_nothing() -> None:
    sequence = SequenceTracker(1)
    sequence.skip(1)
    assert sequence.enter(message(2)) is OrderDecision.GO
    late = message(5)
    sequence.enter(late)
    sequence.skip(4)
    assert sequence.peeked(3, [4, 5], 5) == ([late], [])
