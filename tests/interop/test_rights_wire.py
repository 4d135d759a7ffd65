"""Rights as any AMQP client meets them: name and key, tokens that end, tokens that are put again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from engine_client import EngineClient
from token_makers import js_token

from twinbus.amqp.codec.outcomes import ACCEPTED, Error
from twinbus.amqp.events import Detached
from twinbus.amqp.message import sections
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sending_link import SendingLink
from twinbus.testing import LocalNamespace

MESSAGE = sections.encode_message(data=b"42")
UNAUTHORIZED = "amqp:unauthorized-access"
RULES = ["sender:Send:send-key", "reader:Listen:listen-key", "boss:Manage:boss-key"]


@pytest.fixture
def served() -> Iterator[LocalNamespace]:
    with LocalNamespace(queues=["orders", "other"], rules=RULES) as running:
        yield running


def token(served: LocalNamespace, path: str, rule: str, key: str, life_s: int = 3600) -> tuple[str, str]:
    """A token and its audience."""
    audience = f"sb://127.0.0.1:{served.port}/{path}"
    return js_token(audience, rule, key, int(time.time()) + life_s), audience


def refused(answer: object) -> Error:
    assert isinstance(answer, Error)
    assert answer.condition == UNAUTHORIZED
    return answer


def description(error: Error) -> str:
    return str(error.description)


# --- name and key ---


def test_a_name_and_a_key_give_the_rules_rights_in_the_whole_namespace(served: LocalNamespace) -> None:
    with EngineClient(served.port, "sender", "send-key") as client:
        link = client.sender("orders")
        assert isinstance(link, SendingLink)
        assert client.send(link, MESSAGE) == ACCEPTED
        assert isinstance(client.sender("other"), SendingLink)
        assert "'orders' does not give the right 'Listen'" in description(refused(client.receiver("orders")))
        assert "'Listen'" in description(refused(client.receiver("orders/$deadletterqueue")))
    with EngineClient(served.port, "reader", "listen-key") as client:
        assert isinstance(client.receiver("orders"), ReceivingLink)
        assert "'Send'" in description(refused(client.sender("orders")))
    with EngineClient(served.port, "boss", "boss-key") as client:
        assert isinstance(client.sender("orders"), SendingLink)
        assert isinstance(client.receiver("orders"), ReceivingLink)


@pytest.mark.parametrize(("user", "key"), [("sender", "listen-key"), ("nobody", "send-key"), ("", ""), ("sender", "")])
def test_a_wrong_name_or_key_is_not_let_in(served: LocalNamespace, user: str, key: str) -> None:
    with EngineClient(served.port, user, key) as client:
        assert not client.wait_open()


def test_calling_oneself_by_a_rules_name_opens_nothing(served: LocalNamespace) -> None:
    with EngineClient(served.port) as client:
        for answer in (client.sender("orders"), client.receiver("orders"), client.sender("orders/$management")):
            assert "no valid token for 'orders" in description(refused(answer))


# --- tokens ---


def test_a_token_gives_its_rights_to_its_entity_only(served: LocalNamespace) -> None:
    with EngineClient(served.port) as client:
        assert client.put_token(*token(served, "orders", "sender", "send-key")) == 202
        assert isinstance(client.sender("orders"), SendingLink)
        refused(client.sender("other"))
        refused(client.receiver("orders"))
        bad, audience = token(served, "other", "sender", "wrong")
        assert client.put_token(bad, audience) == 401
        refused(client.sender("other"))


@pytest.mark.parametrize(
    ("rule", "operation", "body", "allowed"),
    [
        ("reader:listen-key", "peek-message", {"from-sequence-number": 1, "message-count": 1}, True),
        ("sender:send-key", "peek-message", {"from-sequence-number": 1, "message-count": 1}, False),
        ("sender:send-key", "schedule-message", {"messages": [{"message": MESSAGE}]}, True),
        ("reader:listen-key", "schedule-message", {"messages": [{"message": MESSAGE}]}, False),
        ("boss:boss-key", "schedule-message", {"messages": [{"message": MESSAGE}]}, True),
        ("sender:send-key", "renew-lock", {"lock-tokens": []}, False),
        ("sender:send-key", "update-disposition", {}, False),
        ("sender:send-key", "receive-by-sequence-number", {}, False),
        ("reader:listen-key", "cancel-scheduled-message", {}, False),
    ],
)
def test_each_request_to_management_needs_its_right(
    served: LocalNamespace, rule: str, operation: str, body: dict[str, Any], allowed: bool
) -> None:
    with EngineClient(served.port, *rule.split(":")) as client:
        status = client.ask("orders/$management", {"operation": f"com.microsoft:{operation}"}, body)
    assert (status["statusCode"] == 401) is not allowed
    assert (status.get("errorCondition") == UNAUTHORIZED) is not allowed


def test_a_token_for_management_alone_is_enough_for_requests_and_for_nothing_else(served: LocalNamespace) -> None:
    """What the official JavaScript and .NET clients put when they only peek, or only schedule."""
    peek = {"operation": "com.microsoft:peek-message"}, {"from-sequence-number": 1, "message-count": 1}
    with EngineClient(served.port) as client:
        assert client.put_token(*token(served, "orders/$management", "reader", "listen-key")) == 202
        assert client.ask("orders/$management", *peek)["statusCode"] == 204
        schedule = {"operation": "com.microsoft:schedule-message"}
        assert client.ask("orders/$management", schedule, {"messages": []})["statusCode"] == 401
        refused(client.receiver("orders"))
        refused(client.sender("other/$management"))


def test_links_end_with_their_token_and_messages_stay(served: LocalNamespace) -> None:
    with EngineClient(served.port) as client:
        client.put_token(*token(served, "orders", "boss", "boss-key", life_s=8))
        client.put_token(*token(served, "other", "boss", "boss-key"))
        sender, receiver, other = client.sender("orders"), client.receiver("orders"), client.sender("other")
        assert isinstance(sender, SendingLink)
        assert isinstance(receiver, ReceivingLink)
        assert isinstance(other, SendingLink)
        for link in (sender, receiver):
            error = client.detached(link)
            assert error is not None
            assert error.condition == UNAUTHORIZED
            assert "'orders' has expired" in description(error)
        assert client.send(other, MESSAGE) == ACCEPTED, "its token is good"
        refused(client.sender("orders"))
        client.put_token(*token(served, "orders", "boss", "boss-key"))
        assert isinstance(client.sender("orders"), SendingLink)


@pytest.mark.long
def test_a_token_that_is_put_again_in_time_keeps_links(served: LocalNamespace) -> None:
    with EngineClient(served.port) as client:
        client.put_token(*token(served, "orders", "sender", "send-key", life_s=8))
        link = client.sender("orders")
        assert isinstance(link, SendingLink)
        client.put_token(*token(served, "orders", "sender", "send-key"))
        assert client.hears_nothing(Detached, for_s=8.2)
        assert client.send(link, MESSAGE) == ACCEPTED


def test_a_token_with_fewer_rights_takes_the_others_away(served: LocalNamespace) -> None:
    with EngineClient(served.port) as client:
        client.put_token(*token(served, "orders", "sender", "send-key"))
        link = client.sender("orders")
        assert isinstance(link, SendingLink)
        client.put_token(*token(served, "orders", "reader", "listen-key"))
        error = client.detached(link)
        assert error is not None
        assert "allows less now" in description(error)
        assert isinstance(client.receiver("orders"), ReceivingLink)
