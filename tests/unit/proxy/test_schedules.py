"""Requests to schedule messages and to cancel them."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from proxied import encoded

from twinbus.amqp.codec.encoding import Array
from twinbus.amqp.codec.types import UInt
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.links.request_messages import Request
from twinbus.broker.message import read_arrival
from twinbus.client.flows.schedule_tokens import tokens_for
from twinbus.errors import AmqpError, ArgumentError
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt
from twinbus.proxy.sending.schedules import read_schedule, refused_cancellation, scheduled_response, sequences_in
from twinbus.transport.links.requests import Response, read_response


def request(operation: str, body: Any, **properties: Any) -> Request:
    return Request("id-1", "me", f"com.microsoft:{operation}", {"operation": operation, **properties}, body)


def new_id() -> Any:
    numbers = count(1)
    return lambda: f"new-{next(numbers)}"


def test_a_message_without_an_id_is_given_one_in_the_message_and_beside_it() -> None:
    entries = [
        {"message": encoded("a"), "session-id": "s"},
        {"message": encoded("b", "mine"), "message-id": "mine", "partition-key": "p"},
    ]
    asked = read_schedule(request("schedule-message", {"messages": entries}), new_id())
    assert [arrival.message_id for arrival in asked.arrivals] == ["new-1", "mine"]
    first, second = asked.body["messages"]
    assert (first["message-id"], first["session-id"]) == ("new-1", "s")
    assert read_arrival(first["message"], str).message_id == "new-1"
    assert second == entries[1]


def test_what_is_about_the_connection_of_the_application_is_not_passed_on() -> None:
    properties = {"com.microsoft:server-timeout": UInt(60_000), "associated-link-name": "sender-1"}
    body = {"messages": [{"message": encoded("a", "1")}]}
    asked = read_schedule(request("schedule-message", body, **properties), new_id())
    assert asked.properties == {"com.microsoft:server-timeout": 60_000}


@pytest.mark.parametrize(
    "body", [None, [], {}, {"messages": []}, {"messages": [{}]}, {"messages": [{"message": "text"}]}, {"messages": [7]}]
)
def test_a_request_without_messages_is_refused(body: Any) -> None:
    with pytest.raises(ArgumentError):
        read_schedule(request("schedule-message", body), new_id())


def test_a_message_that_is_none_is_refused() -> None:
    with pytest.raises(AmqpError):
        read_schedule(request("schedule-message", {"messages": [{"message": b"\xff"}]}), new_id())


def receipt(side: NamespaceSide, numbers: tuple[int, ...] = ()) -> SendReceipt:
    return SendReceipt("orders", ("a", "b"), side, 2, sequence_numbers=numbers)


def test_the_numbers_of_the_primary_are_passed_on() -> None:
    asked = request("schedule-message", {})
    payload = scheduled_response(asked, receipt(NamespaceSide.PRIMARY, (7, 8)))
    response = read_response(payload)
    assert (response.code, list(response.body["sequence-numbers"])) == (200, [7, 8])
    assert sections.read_property(payload, sections.walk(payload), PropertyField.CORRELATION_ID) == "id-1"
    assert sequences_in(response) == (7, 8)


def test_messages_in_the_backlog_have_tokens_that_cannot_be_cancelled() -> None:
    asked = request("schedule-message", {})
    response = read_response(scheduled_response(asked, receipt(NamespaceSide.BACKLOG)))
    tokens = sequences_in(response)
    assert len(tokens) == 2
    cancel = request("cancel-scheduled-message", {"sequence-numbers": Array([5, tokens[0]], 0x81)})
    refusal = refused_cancellation(cancel)
    assert refusal is not None
    answer = read_response(refusal)
    assert (answer.code, answer.condition) == (400, "amqp:not-allowed")
    assert answer.text.startswith("1 of these messages were scheduled while the primary was down")


@pytest.mark.parametrize(
    "other",
    [
        request("cancel-scheduled-message", {"sequence-numbers": Array([5, 6], 0x81)}),
        request("cancel-scheduled-message", {"sequence-numbers": "none"}),
        request("cancel-scheduled-message", None),
        request("receive-by-sequence-number", {"sequence-numbers": Array(tokens_for(1), 0x81)}),
    ],
)
def test_every_other_request_is_the_primarys(other: Request) -> None:
    assert refused_cancellation(other) is None


def test_a_response_without_numbers_has_none() -> None:
    assert sequences_in(Response(200, "OK", None, None)) == ()
    assert sequences_in(Response(200, "OK", None, {})) == ()
