"""Ids of scheduled messages are remembered, for a while, in bounded room."""

from __future__ import annotations

from twinbus.client.reporting.ledger_events import ScheduledIds


def test_an_id_is_known_by_entity_and_number_until_it_is_taken() -> None:
    known = ScheduledIds()
    known.remember("orders", [7, 8], ["a", "b"])
    known.remember("invoices", [7], ["c"])
    assert known.take("orders", [8, 9, 7]) == {8: "b", 7: "a"}
    assert known.take("orders", [7]) == {}
    assert known.take("invoices", [7]) == {7: "c"}


def test_the_oldest_are_forgotten_first() -> None:
    known = ScheduledIds(most=2)
    known.remember("orders", [1, 2], ["a", "b"])
    known.remember("orders", [1], ["a again"])
    known.remember("orders", [3], ["c"])
    assert known.take("orders", [1, 2, 3]) == {1: "a again", 3: "c"}


def test_messages_without_a_number_are_not_remembered() -> None:
    known = ScheduledIds()
    known.remember("orders", [], ["sent at once"])
    assert known.take("orders", range(10)) == {}
