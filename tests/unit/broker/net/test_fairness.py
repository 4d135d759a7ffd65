"""Peers are heard in turns: many of them, or much of one, keep nobody waiting."""

from __future__ import annotations

from collections.abc import Callable

from twinbus.broker.links.disk_fairness import DecayingSum
from twinbus.broker.net.fairness import MUCH_S, TURN_S, UNAUTHENTICATED_TURN_S, Turns

STEP_S = 0.001


class Loop:
    """An event loop whose clock moves only when somebody works."""

    def __init__(self) -> None:
        self.now = 0.0
        self._soon: list[Callable[[], None]] = []
        self.turns = Turns(lambda: self.now, self._soon.append)

    @property
    def is_idle(self) -> bool:
        return not self._soon

    def turn(self) -> float:
        """How long one turn of the loop took."""
        began = self.now
        soon, self._soon[:] = self._soon[:], []
        for call in soon:
            call()
        return self.now - began


class Talker:
    def __init__(self, loop: Loop, steps: int, *, is_authenticated: bool = True) -> None:
        self._loop = loop
        self.steps_left = steps
        self.is_authenticated = is_authenticated
        self.knows_itself_at: int | None = None
        self.time_used = DecayingSum()

    def step(self, until: float) -> bool:
        self._loop.now += STEP_S
        self.steps_left -= 1
        if self.steps_left == self.knows_itself_at:
            self.is_authenticated = True
        return self.steps_left > 0


def test_a_known_peer_with_little_to_say_is_heard_at_once() -> None:
    loop = Loop()
    peer = Talker(loop, 1)
    assert not loop.turns.process(peer)
    assert peer.steps_left == 0
    loop.turn()
    assert loop.is_idle


def test_an_unauthenticated_peer_is_never_processed_at_once() -> None:
    loop = Loop()
    peer = Talker(loop, 1, is_authenticated=False)
    assert loop.turns.process(peer)
    assert peer.steps_left == 1
    loop.turn()
    assert peer.steps_left == 0


def test_however_much_one_peer_says_a_turn_is_short() -> None:
    loop = Loop()
    peer = Talker(loop, 1_000)
    loop.turns.process(peer)
    turns = 0
    while peer.steps_left:
        assert loop.turn() <= TURN_S + STEP_S
        turns += 1
    assert turns >= 1_000 * STEP_S / (TURN_S + STEP_S) - 1


def test_however_many_unauthenticated_peers_there_are_a_turn_is_short() -> None:
    loop = Loop()
    peers = [Talker(loop, 10, is_authenticated=False) for _ in range(500)]
    for peer in peers:
        loop.turns.process(peer)
    while any(peer.steps_left for peer in peers):
        assert loop.turn() <= UNAUTHENTICATED_TURN_S + 2 * STEP_S


def test_unauthenticated_peers_are_processed_one_after_the_other() -> None:
    loop = Loop()
    peers = [Talker(loop, 10, is_authenticated=False) for _ in range(6)]
    for peer in peers:
        loop.turns.process(peer)
    for _ in range(10):
        loop.turn()
        left = [peer.steps_left for peer in peers]
        assert max(left) - min(left) <= 1


def test_an_authenticated_peer_is_heard_however_many_unauthenticated_ones_wait() -> None:
    loop = Loop()
    for _ in range(100):
        loop.turns.process(Talker(loop, 100, is_authenticated=False))
    loop.turn()
    peer = Talker(loop, 1)
    assert not loop.turns.process(peer)


def test_when_the_time_of_a_turn_is_used_up_known_peers_stand_in_line() -> None:
    loop = Loop()
    peers = [Talker(loop, 1) for _ in range(50)]
    waiting = [peer for peer in peers if loop.turns.process(peer)]
    assert loop.now <= TURN_S + STEP_S
    assert 0 < len(waiting) < 50
    while any(peer.steps_left for peer in waiting):
        assert loop.turn() <= TURN_S + STEP_S


def test_a_peer_that_authenticates_changes_queues() -> None:
    loop = Loop()
    for _ in range(100):
        loop.turns.process(Talker(loop, 1_000, is_authenticated=False))
    talker = Talker(loop, 30, is_authenticated=False)
    talker.knows_itself_at = 29
    loop.turns.process(talker)
    while not talker.is_authenticated:
        loop.turn()
    for _ in range(10):
        loop.turn()
    assert talker.steps_left == 0


def test_who_has_taken_little_time_is_heard_before_those_who_took_much_however_many_they_are() -> None:
    loop = Loop()
    talkers = [Talker(loop, 1_000) for _ in range(100)]
    for talker in talkers:
        loop.turns.process(talker)
    for _ in range(30):
        loop.turn()
    modest = Talker(loop, 1)
    assert loop.turns.process(modest)
    loop.turn()
    assert modest.steps_left == 0


def test_who_took_much_is_heard_again_soon_however_much_others_have_to_say() -> None:
    loop = Loop()
    for _ in range(20):
        loop.turns.enqueue(Talker(loop, 1_000_000))
    loop.turn()
    peer = Talker(loop, 1)
    peer.time_used.add(1.0, loop.now)
    loop.turns.enqueue(peer)
    while peer.steps_left and loop.now < 30.0:
        loop.turn()
    assert loop.now < 10.0


def test_time_that_was_taken_is_forgotten() -> None:
    loop = Loop()
    taken = DecayingSum()
    taken.add(1.0, loop.now)
    assert taken.at(loop.now) == 1.0
    assert taken.at(loop.now + 10.0) < 0.001


def test_who_has_taken_much_waits_for_the_next_turn_even_if_nobody_is_in_line() -> None:
    loop = Loop()
    peer = Talker(loop, 1)
    peer.time_used.add(2 * MUCH_S, loop.now)
    assert loop.turns.process(peer)
    assert peer.steps_left == 1
    loop.turn()
    assert peer.steps_left == 0


def test_what_should_not_wait_is_done_after_every_step_of_a_turn() -> None:
    loop = Loop()
    left: list[int] = []
    peers = [Talker(loop, 1) for _ in range(3)]

    def look() -> None:
        left.append(sum(peer.steps_left for peer in peers))

    loop.turns = Turns(lambda: loop.now, loop._soon.append, look)
    for peer in peers:
        loop.turns.enqueue(peer)
    loop.turn()
    assert left == [2, 1, 0]
