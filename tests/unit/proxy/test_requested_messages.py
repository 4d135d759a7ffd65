"""Messages that are received and settled by request: the observer sees them as it sees those of links."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from twinbus.amqp.codec.encoding import Array
from twinbus.amqp.message.sections import encode_message
from twinbus.broker.links.request_messages import Request, failure_response, management_response
from twinbus.broker.operations import Abandon, Complete, DeadLetter, SettlementOutcome
from twinbus.errors import LockLost
from twinbus.proxy.relay import requested_messages
from twinbus.proxy.relay.requested_messages import RequestedMessages

TOKENS = [uuid.UUID(int=number) for number in range(1, 5)]
ON_LINK = uuid.UUID(int=77)


class Seen:
    """Implements `SettlementObserver`."""

    def __init__(self) -> None:
        self.delivered_finally: list[bool] = []
        self.outcomes: list[tuple[list[object], SettlementOutcome]] = []

    def delivered(self, path: str, payload: bytes, *, is_final: bool) -> object:
        self.delivered_finally.append(is_final)
        return payload

    def settled(self, path: str, messages: Sequence[object], outcome: SettlementOutcome) -> None:
        self.outcomes.append((list(messages), outcome))


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def messages(seen: Seen) -> RequestedMessages:
    return RequestedMessages(seen)


def request(operation: str, body: Any) -> Request:
    return Request("id", "me", f"com.microsoft:{operation}", {}, body)


def receive(messages: RequestedMessages, *tokens: uuid.UUID | None) -> list[bytes]:
    payloads = [encode_message(data=f"{number}".encode()) for number, _ in enumerate(tokens)]
    found = [
        {"message": payload} | ({} if token is None else {"lock-token": token})
        for payload, token in zip(payloads, tokens, strict=True)
    ]
    asked = request("receive-by-sequence-number", {})
    messages.responded("orders", asked, management_response(asked, 200, "OK", {"messages": found}))
    return payloads


def settle(messages: RequestedMessages, status: str, *tokens: uuid.UUID, error: LockLost | None = None) -> None:
    asked = request("update-disposition", {"disposition-status": status, "lock-tokens": Array(tokens, 0x98)})
    answer = management_response(asked, 200, "OK", {}) if error is None else failure_response(asked, error)
    messages.responded("orders", asked, answer)


def test_a_message_is_settled_with_what_was_noted_when_it_was_received(messages: RequestedMessages, seen: Seen) -> None:
    first, second, third = receive(messages, *TOKENS[:3])
    settle(messages, "completed", TOKENS[1], TOKENS[0])
    settle(messages, "suspended", TOKENS[2])
    assert seen.delivered_finally == [False, False, False]
    assert seen.outcomes == [([second, first], Complete()), ([third], DeadLetter({}))]


def test_without_a_token_it_is_removed_already(messages: RequestedMessages, seen: Seen) -> None:
    receive(messages, None, uuid.UUID(int=0))
    assert seen.delivered_finally == [True, True]


def test_a_message_whose_link_has_ended_can_be_settled_by_request(messages: RequestedMessages, seen: Seen) -> None:
    messages.keep({ON_LINK.bytes_le: "on a link"})
    settle(messages, "completed", ON_LINK)
    assert seen.outcomes == [(["on a link"], Complete())]


def test_what_the_primary_refuses_is_not_settled(messages: RequestedMessages, seen: Seen) -> None:
    (payload,) = receive(messages, TOKENS[0])
    settle(messages, "completed", TOKENS[0], error=LockLost("too late"))
    assert seen.outcomes == []
    settle(messages, "abandoned", TOKENS[0])
    assert seen.outcomes == [([payload], Abandon({}))]


@pytest.mark.parametrize("body", [None, {}, {"lock-tokens": "x", "disposition-status": "completed"}])
def test_what_cannot_be_read_disturbs_nobody(messages: RequestedMessages, seen: Seen, body: Any) -> None:
    asked = request("update-disposition", body)
    messages.responded("orders", asked, management_response(asked, 200, "OK", {}))
    messages.responded("orders", asked, b"damaged")
    assert seen.outcomes == []


@pytest.mark.parametrize("found", [None, 7, [None], [{}], [{"message": "text"}], [{"lock-token": 5}]])
def test_a_strange_answer_disturbs_nobody(messages: RequestedMessages, seen: Seen, found: Any) -> None:
    asked = request("receive-by-sequence-number", {})
    messages.responded("orders", asked, management_response(asked, 200, "OK", {"messages": found}))
    assert seen.delivered_finally == []


def test_notes_are_bounded(messages: RequestedMessages, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requested_messages, "NOTES_MAX", 2)
    payloads = receive(messages, *TOKENS[:3])
    settle(messages, "completed", *TOKENS[:3])
    assert seen.outcomes == [(payloads[1:], Complete())]
