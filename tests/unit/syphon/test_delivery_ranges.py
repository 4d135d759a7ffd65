"""Ranges of deliveries that are settled together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.serial import SERIAL_MASK
from twinbus.syphon.pump.backlog_queue import delivery_ranges, unwrap_delivery_id

NEAR_THE_TURN = st.integers(2**32 - 30, 2**32 + 30)


def ids_of(first: int, last: int) -> list[int]:
    assert first <= last, "a range does not reach over the end of the counter"
    return list(range(first, last + 1))


@given(st.sets(st.one_of(st.integers(0, 60), NEAR_THE_TURN)))
def test_ranges_hold_exactly_the_numbers_that_are_settled(numbers: set[int]) -> None:
    found = [delivery_id for span in delivery_ranges(list(numbers)) for delivery_id in ids_of(*span)]
    assert sorted(found) == sorted(number & SERIAL_MASK for number in numbers)
    assert len(found) == len(numbers)


@given(st.sets(st.integers(0, 60), min_size=1))
def test_neighbours_share_a_range(numbers: set[int]) -> None:
    gaps = sum(number + 1 not in numbers for number in numbers)
    assert len(list(delivery_ranges(list(numbers)))) == gaps


@given(st.integers(0, 2**40), st.integers(-(2**20), 2**20))
def test_an_id_finds_its_number_near_the_latest_one(latest: int, step: int) -> None:
    assert unwrap_delivery_id((latest + step) & SERIAL_MASK, latest) == latest + step
