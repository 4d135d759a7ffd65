"""Where order cannot be promised, and what the pump does about it."""

from __future__ import annotations

from ordered_backlog import OrderedPumpHarness

from twinbus.pairing.backlog.ordering import key_of, queue_for
from twinbus.syphon.pump.effects import Alert
from twinbus.syphon.pump.placement import PARTITION_FROM, order_problem

QUEUES = (0, 1)


def session_of(queue: int, path: str = "orders") -> str:
    """A session whose messages belong to this queue."""
    names = (f"session-{number}" for number in range(100))
    return next(name for name in names if queue_for(key_of(path, name), QUEUES) == queue)


def test_a_message_in_the_queue_of_its_key_is_fine_whatever_the_case_of_its_entity() -> None:
    session = session_of(1)
    assert order_problem(1, QUEUES, "orders", session, 17) is None
    assert order_problem(1, QUEUES, "ORDERS", session, 17) is None


def test_a_message_in_another_queue_is_reported_with_the_queue_it_belongs_to() -> None:
    problem = order_problem(0, QUEUES, "orders", session_of(1), 17)
    assert problem is not None
    assert "belong to queue 1" in problem
    assert "without order=session" in problem


def test_where_there_is_one_queue_every_message_is_where_it_belongs() -> None:
    assert order_problem(3, (3,), "orders", "any", 17) is None


def test_numbers_of_a_partitioned_queue_prove_nothing() -> None:
    problem = order_problem(0, (0,), "orders", None, PARTITION_FROM + 17)
    assert problem is not None
    assert "partitioned" in problem


def alerts_of(harness: OrderedPumpHarness) -> list[Alert]:
    return [alert for alert in harness.alerts if alert.name == "order_unknown"]


def test_the_pump_stops_before_a_message_whose_order_nobody_knows() -> None:
    harness = OrderedPumpHarness(order_over=QUEUES)
    for number in range(5):
        harness.put("orders", session_of(0), f"m{number}")
    harness.put("orders", session_of(1), "stray")
    harness.run(2)
    assert not harness.home
    assert sorted(harness.stored) == [1, 2, 3, 4, 5, 6], "everything was given back"
    assert harness.pump.is_idle
    assert [alert.subject for alert in alerts_of(harness)] == ["q/0"]


def test_messages_of_entities_that_are_not_to_be_moved_stop_nobody() -> None:
    harness = OrderedPumpHarness(order_over=QUEUES, entities=frozenset({"orders"}))
    harness.put("invoices", session_of(1, "invoices"), "stray")
    harness.put("orders", session_of(0), "m0")
    harness.run(2)
    assert harness.first_copies("orders", session_of(0)) == ["m0"]
    assert alerts_of(harness) == []


def test_in_a_client_of_which_nobody_asked_it_nothing_is_stopped() -> None:
    harness = OrderedPumpHarness()
    harness.put("orders", session_of(1), "m0")
    harness.run(2)
    assert harness.first_copies("orders", session_of(1)) == ["m0"]
