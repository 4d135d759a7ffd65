"""Who waits for the disk: connections that send much, never one that sends little."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinbus.broker.links.disk_fairness import (
    ALONE_BYTES,
    LITTLE_BYTES,
    MESSAGE_BYTES,
    REST_S,
    SHARED_BYTES,
    SHARED_S,
    DiskShare,
    SenderShare,
)

LARGE = 256 * 1024


def test_a_connection_that_sends_alone_may_have_much_waiting_for_the_disk() -> None:
    disk, alone = DiskShare(), SenderShare()
    disk.add(alone, ALONE_BYTES, 1_000, now=10.0)
    assert not disk.must_wait(alone, ALONE_BYTES, now=10.0)
    assert disk.must_wait(alone, ALONE_BYTES + 1, now=10.0)


def test_as_soon_as_another_one_sends_a_large_sender_waits_until_little_is_left_to_write() -> None:
    disk, large, small = DiskShare(), SenderShare(), SenderShare()
    disk.add(large, LARGE, 1_000, now=10.0)
    disk.add(small, 100, 1, now=10.1)
    assert disk.must_wait(large, LARGE, now=10.1)
    assert not disk.must_wait(large, SHARED_BYTES, now=10.1)


def test_what_a_large_sender_has_sent_lately_counts_even_if_all_of_it_is_written() -> None:
    disk, small = DiskShare(), SenderShare()
    crowd = [SenderShare() for _ in range(50)]
    for number, large in enumerate(crowd):
        disk.add(large, LARGE, 1_000, now=10.0 + number / 1_000)
        large.remove(LARGE, 1_000)
    disk.add(small, 100, 1, now=10.1)
    assert all(disk.must_wait(large, SHARED_BYTES + 1, now=10.1) for large in crowd)
    assert not disk.must_wait(crowd[0], SHARED_BYTES + 1, now=10.5 + 4 * SHARED_S), "it is forgotten after a while"


def test_the_disk_is_shared_for_a_while_after_the_last_send_of_another_one() -> None:
    disk, large, small = DiskShare(), SenderShare(), SenderShare()
    disk.add(small, 100, 1, now=10.0)
    disk.add(large, LARGE, 1, now=10.2)
    assert disk.is_shared(10.0 + SHARED_S)
    disk.add(large, LARGE, 1, now=10.3)
    assert not disk.is_shared(10.1 + SHARED_S)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2 * LARGE), st.integers(1, 4_500)), max_size=60),
    st.integers(0, 2**30),
)
def test_a_connection_that_has_sent_little_never_waits_while_others_send(
    sends: list[tuple[int, int, int]], unwritten_bytes: int
) -> None:
    disk, small, now = DiskShare(), SenderShare(), 10.0
    others = [SenderShare() for _ in range(21)]
    for number, size, messages in sends:
        now += 0.01
        disk.add(others[number], size, messages, now)
    disk.add(SenderShare(), 1, 1, now)
    disk.add(small, LITTLE_BYTES - MESSAGE_BYTES, 1, now)
    assert not disk.must_wait(small, unwritten_bytes, now)


def test_there_is_a_rest_between_turns_only_while_several_wait_for_the_disk() -> None:
    disk, one, other = DiskShare(), SenderShare(), SenderShare()
    disk.add(one, 100, 1, now=10.0)
    assert disk.rest_s(100, now=10.0) == 0
    disk.add(other, 100, 1, now=10.1)
    assert disk.rest_s(200, now=10.1) == REST_S
    assert disk.rest_s(0, now=10.1) == 0


def test_a_clock_that_is_set_back_keeps_nobody_waiting_longer() -> None:
    disk, large, other = DiskShare(), SenderShare(), SenderShare()
    for sender in (large, other, large):
        disk.add(sender, LARGE, 1, now=1_000_000.0)
        sender.remove(LARGE, 1)
    assert disk.must_wait(large, ALONE_BYTES, now=1_000_000.0)
    assert not disk.must_wait(large, ALONE_BYTES, now=10.0)
