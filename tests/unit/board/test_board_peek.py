"""Looks at the board: bounded, from the last number on, and never through heaps of what is over."""

from __future__ import annotations

from board_scene import BoardInMemory, report

from twinbus.board.queue import LIFE_S


def board_with(*times: float) -> BoardInMemory:
    board = BoardInMemory()
    for number, at in enumerate(times):
        board.post(report(f"p{number}"), at)
    return board


def test_a_second_look_reads_what_is_new_only() -> None:
    board = board_with(0, 1, 2)
    first = board.look()
    assert (len(first.posts), first.is_all) == (3, True)
    board.post(report("new"), 3)
    board.shown = 0
    second = board.look(first.next_sequence)
    assert ([post.sequence for post in second.posts], board.shown) == ([4], 1)


def test_a_first_look_skips_hours_of_reports_that_nobody_has_removed() -> None:
    old, fresh = [float(at) for at in range(20_000)], [20_000 + LIFE_S + at / 10 for at in range(100)]
    board = board_with(*old, *fresh)
    found = board.look()
    assert found.is_all
    assert 100 <= len(found.posts) <= 102
    assert board.shown < 100 + 16 + 80  # the search peeks at one message at a time


def test_what_is_still_fresh_is_read_whole() -> None:
    board = board_with(*[at / 20 for at in range(3_000)])
    found = board.look()
    assert (len(found.posts), found.is_all) == (3_000, True)


def test_a_flood_is_read_from_its_end_and_not_taken_for_all() -> None:
    board = board_with(*[0.0] * 10_000)
    found = board.look(read_max=1_000)
    assert (len(found.posts), found.posts[-1].sequence, found.is_all) == (1_000, 10_000, False)


def test_large_messages_end_a_look_early() -> None:
    board = BoardInMemory()
    for _ in range(300):
        board.post(b"x" * 250_000, 0)
    found = board.look(1)
    assert sum(post.size for post in found.posts) < 21 * 1024 * 1024
    assert not found.is_all
