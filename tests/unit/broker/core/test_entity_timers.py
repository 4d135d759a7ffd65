"""Which entity is woken when."""

from __future__ import annotations

from twinbus.broker.entities.timers import DueTimes


def test_the_earliest_alarm_of_an_entity_counts() -> None:
    timers = DueTimes[int]()
    timers.set_earlier(1, 50)
    timers.set_earlier(1, 30)
    timers.set_earlier(1, 40)
    timers.set_earlier(1, None)
    assert timers.next_ms() == 30
    assert list(timers.take_due(60)) == [1]
    assert timers.next_ms() is None


def test_only_alarms_that_are_due_ring_each_once() -> None:
    timers = DueTimes[int]()
    for entity_id, at_ms in ((1, 30), (2, 10), (3, 20), (4, 99)):
        timers.set_earlier(entity_id, at_ms)
    assert list(timers.take_due(30)) == [2, 3, 1]
    assert list(timers.take_due(30)) == []
    assert timers.next_ms() == 99


def test_replaced_alarms_do_not_pile_up() -> None:
    timers = DueTimes[int]()
    far_ms = 10**9
    for now_ms in range(5_000):
        timers.set_earlier(1, far_ms)  # a message that expires some day
        timers.set_earlier(1, now_ms)  # a lock that ends now
        assert list(timers.take_due(now_ms)) == [1]
    timers.set_earlier(1, far_ms)
    assert len(timers) < 100
    assert timers.next_ms() == far_ms
