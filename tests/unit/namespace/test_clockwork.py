"""Which entity is woken when."""

from __future__ import annotations

from twinbus.namespace.clockwork import Alarms


def test_the_earliest_alarm_of_an_entity_counts() -> None:
    alarms = Alarms()
    alarms.set(1, 50)
    alarms.set(1, 30)
    alarms.set(1, 40)
    alarms.set(1, None)
    assert alarms.next_ms() == 30
    assert list(alarms.take_due(60)) == [1]
    assert alarms.next_ms() is None


def test_only_alarms_that_are_due_ring_each_once() -> None:
    alarms = Alarms()
    for entity_id, at_ms in ((1, 30), (2, 10), (3, 20), (4, 99)):
        alarms.set(entity_id, at_ms)
    assert list(alarms.take_due(30)) == [2, 3, 1]
    assert list(alarms.take_due(30)) == []
    assert alarms.next_ms() == 99


def test_replaced_alarms_do_not_pile_up() -> None:
    alarms = Alarms()
    far_ms = 10**9
    for now_ms in range(5_000):
        alarms.set(1, far_ms)  # a message that expires some day
        alarms.set(1, now_ms)  # a lock that ends now
        assert list(alarms.take_due(now_ms)) == [1]
    alarms.set(1, far_ms)
    assert len(alarms) < 100
    assert alarms.next_ms() == far_ms
