"""What a status tells of the fences that keep order."""

from __future__ import annotations

import json
from dataclasses import replace

from sample_status import STATUS

from twinbus.client.reporting.metrics import METRICS
from twinbus.client.reporting.order_status import FENCES_SHOWN, OrderStatus, order_status
from twinbus.pairing.backlog.ordering import DepartedMessage, Fences, key_of


def path_of(queue: int) -> str:
    return f"contoso/x-servicebus-transfer/{queue}"


def filled(sessions: dict[str | None, int], path: str = "Orders") -> Fences:
    """So many messages of each session are in the only backlog queue, which was seen empty before."""
    fences = Fences()
    fences.use([0])
    fences.seen_empty(0, fences.time)
    for session, messages in sessions.items():
        for number in range(messages):
            fences.arrived(fences.depart(key_of(path, session), [f"{session}-{number}".encode()]))
    return fences


def test_every_session_that_goes_through_the_backlog_is_reported_with_what_is_missing() -> None:
    order = order_status(filled({"a": 3, "b": 1, None: 2}), path_of)
    assert (order.fences, order.messages_left, order.unseen_queues) == (3, 6, ())
    assert [(each.session_id, each.messages_left) for each in order.largest] == [("a", 3), (None, 2), ("b", 1)]
    assert {(each.entity, each.backlog_queue) for each in order.largest} == {("orders", path_of(0))}
    assert order.by_entity == (("orders", 3, 6),)


def test_what_came_home_is_missing_no_more() -> None:
    fences = filled({"a": 2})
    fences.came(0, [DepartedMessage("orders", "a", 1, b"a-0")])
    assert order_status(fences, path_of).messages_left == 1
    fences.came(0, [DepartedMessage("orders", "a", 2, b"a-1")])
    assert order_status(fences, path_of) == OrderStatus()


def test_only_the_largest_are_reported_one_by_one() -> None:
    order = order_status(filled({f"s{number}": 1 + number for number in range(50)}), path_of)
    assert (order.fences, len(order.largest)) == (50, FENCES_SHOWN)
    assert [each.messages_left for each in order.largest] == list(range(50, 30, -1))


def test_a_queue_that_was_not_seen_empty_is_reported() -> None:
    fences = Fences()
    fences.use([0, 1])
    fences.seen_empty(1, fences.time)
    assert order_status(fences, path_of).unseen_queues == (path_of(0),)


def test_it_reads_as_lines_and_is_in_json_and_metrics() -> None:
    status = replace(STATUS, order=order_status(filled({"a\n": 3, None: 2}), path_of))
    assert "order: sessions that go through the backlog 2, messages not home 5" in str(status)
    assert r"order: orders, session 'a\n': about 3 to come from contoso/x-servicebus-transfer/0" in str(status)
    assert "order: orders, no session: about 2 to come" in str(status)
    plain = json.loads(json.dumps(status.as_dict()))
    assert plain["order"]["largest"][0]["session_id"] == "a\n"
    values = {metric.name: [value for _, value in metric.read(status)] for metric in METRICS}
    assert values["twinbus_pair_order_fences"] == [2]
    assert values["twinbus_pair_order_messages_left"] == [5]
    assert values["twinbus_pair_order_queues_unseen"] == [0]


def test_without_order_nothing_is_reported_of_it() -> None:
    status = replace(STATUS, order=None)
    assert "order:" not in str(status)
    assert all(not list(metric.read(status)) for metric in METRICS if "_order_" in metric.name)
