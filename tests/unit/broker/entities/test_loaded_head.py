"""The head of a queue in memory, bounded, and never out of order."""

from __future__ import annotations

from namespace_harness import row

from twinbus.broker.entities.loaded_head import Window, WindowLimits
from twinbus.broker.store.api import HeadRows


def window(rows_max: int = 4, bytes_max: int = 1_000, on_disk_from: int | None = None) -> Window:
    return Window(7, WindowLimits(rows_max=rows_max, bytes_max=bytes_max), on_disk_from)


def take_all(one: Window) -> list[int]:
    taken = []
    while (each := one.take()) is not None:
        taken.append(each.sequence)
    return taken


def test_messages_are_taken_in_the_order_they_arrived() -> None:
    one = window()
    for sequence in (1, 2, 3):
        one.arrive(row(sequence), number=sequence)
    assert len(one) == 3
    assert take_all(one) == [1, 2, 3]
    assert one.take() is None


def test_what_does_not_fit_stays_on_disk() -> None:
    one = window(rows_max=2)
    for sequence in range(1, 6):
        one.arrive(row(sequence), number=sequence)
    assert (len(one), one.on_disk_from) == (2, 3)
    assert one.holds(2)
    assert not one.holds(3)


def test_a_window_is_bounded_in_bytes_too() -> None:
    one = window(rows_max=100, bytes_max=100)
    for sequence in range(1, 6):
        one.arrive(row(sequence, size=60), number=sequence)
    assert (len(one), one.on_disk_from) == (2, 3)


def test_while_something_waits_on_disk_nothing_overtakes_it() -> None:
    one = window(rows_max=1)
    one.arrive(row(1), number=1)
    one.arrive(row(2), number=2)
    assert one.take() == row(1)
    one.arrive(row(3), number=3)  # there is room, but 2 comes first
    assert one.take() is None
    assert one.on_disk_from == 2


def test_a_half_empty_window_asks_for_rows_once() -> None:
    one = window(rows_max=4, on_disk_from=1)
    assert one.wanted_rows() == HeadRows(7, 1, 4, 1_000)
    assert one.is_reading
    assert one.wanted_rows() is None
    one.refill([row(1), row(2), row(3)], read_until=3, complete=False, as_of=1)
    assert not one.is_reading
    assert one.wanted_rows() is None  # full enough
    one.take()
    assert one.wanted_rows() == HeadRows(7, 4, 2, 980)


def test_a_window_with_everything_in_it_asks_for_nothing() -> None:
    one = window(on_disk_from=1)
    one.wanted_rows()
    one.refill([row(1)], read_until=1, complete=True, as_of=5)
    assert one.on_disk_from is None
    one.take()
    assert one.wanted_rows() is None


def test_a_read_that_ended_before_the_last_arrival_is_not_the_end() -> None:
    one = window(rows_max=4, on_disk_from=1)
    one.wanted_rows()
    one.arrive(row(2), number=9)  # committed after the read's moment
    one.refill([row(1)], read_until=1, complete=True, as_of=8)
    assert one.on_disk_from == 2
    assert one.wanted_rows() == HeadRows(7, 2, 3, 990)


def test_an_empty_read_does_not_move_the_place_on_disk() -> None:
    one = window(on_disk_from=5)
    one.wanted_rows()
    one.arrive(row(6), number=9)
    one.refill([], read_until=4, complete=True, as_of=8)
    assert one.on_disk_from == 5


def test_a_message_that_comes_back_goes_before_higher_numbers() -> None:
    one = window()
    for sequence in (1, 2, 3, 4):
        one.arrive(row(sequence), number=sequence)
    first, second = one.take(), one.take()
    assert first is not None
    assert second is not None
    one.put_back(second)
    one.put_back(first)
    assert take_all(one) == [1, 2, 3, 4]


def test_a_discarded_message_is_passed_over() -> None:
    one = window()
    for sequence in (1, 2, 3):
        one.arrive(row(sequence), number=sequence)
    one.discard(1)
    one.discard(3)
    assert len(one) == 1
    assert take_all(one) == [2]
    assert len(one) == 0


def test_bytes_of_messages_that_left_make_room_again() -> None:
    one = window(rows_max=100, bytes_max=100)
    for sequence in range(1, 50):
        one.arrive(row(sequence, size=90), number=sequence)
        assert one.take() == row(sequence, size=90)
    assert one.on_disk_from is None
