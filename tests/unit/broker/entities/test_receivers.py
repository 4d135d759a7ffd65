"""Whose turn it is."""

from __future__ import annotations

from twinbus.broker.entities.receivers import Receiver, Receivers
from twinbus.broker.operations import ReceiveMode


def add(receivers: Receivers, name: int, credit: int = 0) -> Receiver:
    receiver = Receiver(name, ReceiveMode.PEEK_LOCK)
    receivers.add(receiver)
    receivers.grant(receiver, credit, drain=False)
    return receiver


def turns(receivers: Receivers, count: int) -> list[int | None]:
    order: list[int | None] = []
    for _ in range(count):
        receiver = receivers.next_ready()
        order.append(receiver.name if receiver else None)
        if receiver is not None:
            receivers.served()
    return order


def test_nobody_without_credit_is_hungry() -> None:
    receivers = Receivers()
    add(receivers, 1)
    assert receivers.next_ready() is None


def test_turns_go_round_until_the_credit_is_used_up() -> None:
    receivers = Receivers()
    for name, credit in ((1, 1), (2, 3), (3, 2)):
        add(receivers, name, credit)
    assert turns(receivers, 7) == [1, 2, 3, 2, 3, 2, None]


def test_a_paused_receiver_is_passed_over_and_comes_back() -> None:
    receivers = Receivers()
    one, _ = add(receivers, 1, 5), add(receivers, 2, 5)
    one.paused = True
    assert turns(receivers, 2) == [2, 2]
    one.paused = False
    receivers.queue_up(one)
    assert sorted(map(int, filter(None, turns(receivers, 2)))) == [1, 2]


def test_a_lower_limit_takes_credit_back_but_nothing_that_was_used() -> None:
    receivers = Receivers()
    one = add(receivers, 1, 5)
    turns(receivers, 2)
    receivers.grant(one, 1, drain=False)
    assert one.credit_limit == 2
    assert receivers.next_ready() is None


def test_a_drained_receiver_has_no_credit_left() -> None:
    receivers = Receivers()
    one = add(receivers, 1)
    receivers.grant(one, 5, drain=True)
    assert list(receivers.draining) == [1]
    receivers.drained(one)
    assert receivers.next_ready() is None
    assert not receivers.draining
    receivers.grant(one, 6, drain=False)
    assert receivers.next_ready() is one


def test_a_new_grant_ends_a_drain() -> None:
    receivers = Receivers()
    one = add(receivers, 1)
    receivers.grant(one, 5, drain=True)
    receivers.grant(one, 5, drain=False)
    assert not receivers.draining


def test_receivers_that_left_do_not_stay_in_the_line_behind_a_hungry_one() -> None:
    receivers = Receivers()
    add(receivers, 0, 1)
    for name in range(1, 1_000):
        add(receivers, name, 1)
        receivers.remove(name)
    assert len(receivers._ready) == 1
    assert turns(receivers, 2) == [0, None]
