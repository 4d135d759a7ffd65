"""Rules over AMQP: requests to `<subscription>/$management`, as one official client of another language makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from engine_client import EngineClient

from twinbus.amqp.codec.types import Described, Int, Timestamp
from twinbus.connection_string import ROOT_KEY_NAME
from twinbus.testing import LocalNamespace

ADDRESS = "events/Subscriptions/audit/$management"


@pytest.fixture
def client(tmp_path: Any) -> Iterator[EngineClient]:
    with LocalNamespace(key="secret", rules=["reader:Send+Listen:other"]) as namespace:
        namespace.create_topic("events", "audit")
        with EngineClient(namespace.port, ROOT_KEY_NAME, "secret") as client:
            yield client


def ask(client: EngineClient, operation: str, body: dict[str, Any]) -> tuple[int, Any]:
    properties, answer = client.ask_fully(ADDRESS, {"operation": f"com.microsoft:{operation}"}, body)
    return int(properties["statusCode"]), answer


def rules(client: EngineClient) -> list[Any]:
    status, answer = ask(client, "enumerate-rules", {"top": Int(100), "skip": Int(0)})
    return [] if status == 204 else [entry["rule-description"] for entry in answer["rules"]]


def test_rules_are_added_listed_and_removed(client: EngineClient) -> None:
    correlation = {"correlation-filter": {"label": "paid", "properties": {"n": 1, "at": Timestamp(5)}}}
    assert ask(client, "add-rule", {"rule-name": "paid", "rule-description": correlation})[0] == 200
    sql = {"sql-filter": {"expression": "a = 1"}, "sql-rule-action": {"expression": "SET b = 2"}}
    assert ask(client, "add-rule", {"rule-name": "sql", "rule-description": sql})[0] == 200
    default, paid, with_action = rules(client)
    assert all(
        isinstance(each, Described) and each.descriptor == 0x13700000004 for each in (default, paid, with_action)
    )
    condition, action, name, created = default.value
    assert (condition, action) == (Described(0x1370000007, []), Described(0x13700000005, []))
    assert (name, type(created)) == ("$Default", Timestamp)
    assert paid.value[0].descriptor == 0x1370000009
    assert paid.value[0].value == [None, None, None, None, "paid", None, None, None, {"n": 1, "at": Timestamp(5)}]
    assert with_action.value[0] == Described(0x1370000006, ["a = 1", 20])
    assert with_action.value[1] == Described(0x13700000006, ["SET b = 2", 20])
    for name in ("$Default", "paid", "sql"):
        assert ask(client, "remove-rule", {"rule-name": name})[0] == 200
    assert rules(client) == []


def test_pages_of_rules_begin_where_they_are_asked_to(client: EngineClient) -> None:
    for name in ("a", "b"):
        ask(client, "add-rule", {"rule-name": name, "rule-description": {"true-filter": {}}})
    _, answer = ask(client, "enumerate-rules", {"top": Int(1), "skip": Int(1)})
    assert [entry["rule-description"].value[2] for entry in answer["rules"]] == ["a"]


@pytest.mark.parametrize(
    ("operation", "body", "status"),
    [
        ("add-rule", {"rule-name": "$Default", "rule-description": {"true-filter": {}}}, 409),
        ("add-rule", {"rule-name": "x", "rule-description": {"sql-filter": {"expression": "a ="}}}, 400),
        ("add-rule", {"rule-name": "x", "rule-description": {"sql-filter": {"expression": ""}}}, 400),
        ("add-rule", {"rule-name": "x", "rule-description": {"correlation-filter": {"label": 5}}}, 400),
        ("add-rule", {"rule-name": "x", "rule-description": {"correlation-filter": {}}}, 400),
        ("add-rule", {"rule-name": "x", "rule-description": {}}, 400),
        ("add-rule", {"rule-name": 5, "rule-description": {"true-filter": {}}}, 400),
        ("add-rule", {"rule-name": "a/b", "rule-description": {"true-filter": {}}}, 400),
        ("remove-rule", {"rule-name": "nobody"}, 404),
        ("enumerate-rules", {"top": Int(0), "skip": Int(0)}, 400),
    ],
)
def test_what_cannot_be_is_reported_and_nothing_changes(
    client: EngineClient, operation: str, body: dict[str, Any], status: int
) -> None:
    assert ask(client, operation, body)[0] == status
    assert [each.value[2] for each in rules(client)] == ["$Default"]


def test_rules_need_the_right_to_manage() -> None:
    with LocalNamespace(key="secret", rules=["reader:Send+Listen:other"]) as namespace:
        namespace.create_topic("events", "audit")
        with EngineClient(namespace.port, "reader", "other") as client:
            assert ask(client, "remove-rule", {"rule-name": "$Default"})[0] == 401
