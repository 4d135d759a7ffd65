"""Entities as the official emulator's file describes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from twinbus.broker.admin.entity_file import read_inventory, read_inventory_file
from twinbus.broker.core.commands import CreateQueue, CreateRule, CreateSubscription, CreateTopic
from twinbus.broker.entities.topics.rules import CorrelationFilter, Rule, SqlAction, SqlFilter, TypedValue
from twinbus.errors import OptionsError


def written(*, queues: list[Any] | None = None, topics: list[Any] | None = None) -> str:
    described = {"Name": "local", "Queues": queues or [], "Topics": topics or []}
    return json.dumps({"UserConfig": {"Namespaces": [described], "Logging": {"Type": "File"}}})


def test_properties_of_a_queue_mean_what_they_mean_to_the_administration_api() -> None:
    properties = {
        "LockDuration": "PT30S",
        "MaxDeliveryCount": 3,
        "DefaultMessageTimeToLive": "PT1H",
        "DeadLetteringOnMessageExpiration": True,
        "RequiresSession": False,
        "ForwardTo": "",
    }
    (queue,) = read_inventory(written(queues=[{"Name": "orders", "Properties": properties}]))["local"]
    assert isinstance(queue, CreateQueue)
    settings = queue.settings
    assert (queue.path, settings.lock_ms, settings.max_delivery_count) == ("orders", 30_000, 3)
    assert (settings.default_ttl_ms, settings.dead_letter_on_expiration) == (3_600_000, True)
    assert (settings.requires_session, settings.forward_to) == (False, None)


def test_a_subscription_gets_the_rules_of_the_file_and_no_other() -> None:
    rules = [
        {
            "Name": "large",
            "Properties": {
                "FilterType": "Sql",
                "SqlFilter": {"SqlExpression": "amount > 100"},
                "Action": {"SqlExpression": "SET checked = TRUE"},
            },
        },
        {
            "Name": "mine",
            "Properties": {
                "FilterType": "Correlation",
                "CorrelationFilter": {"Label": "mine", "Properties": {"colour": "red", "size": 4}},
            },
        },
    ]
    topic = {"Name": "events", "Subscriptions": [{"Name": "audit", "Rules": rules}]}
    first, second, third = read_inventory(written(topics=[topic]))["local"]
    assert isinstance(first, CreateTopic)
    assert isinstance(second, CreateSubscription)
    assert second.rule == Rule("large", SqlFilter("amount > 100"), SqlAction("SET checked = TRUE"))
    assert isinstance(third, CreateRule)
    colours = (("colour", TypedValue("string", "red")), ("size", TypedValue("long", 4)))
    assert third == CreateRule(
        "events/Subscriptions/audit", Rule("mine", CorrelationFilter(label="mine", properties=colours))
    )


def test_what_is_forwarded_to_comes_before_what_forwards() -> None:
    queues = [
        {"Name": "first", "Properties": {"ForwardTo": "second"}},
        {"Name": "second", "Properties": {"ForwardDeadLetteredMessagesTo": "Third"}},
        {"Name": "third"},
    ]
    made = read_inventory(written(queues=queues))["local"]
    assert [creation.path for creation in made if isinstance(creation, CreateQueue)] == ["third", "second", "first"]


def test_a_circle_is_left_for_the_namespace_to_refuse() -> None:
    queues = [{"Name": "a", "Properties": {"ForwardTo": "b"}}, {"Name": "b", "Properties": {"ForwardTo": "a"}}]
    assert len(read_inventory(written(queues=queues))["local"]) == 2


def test_everything_that_is_wrong_is_said_at_once() -> None:
    queues = [
        {"Name": "orders", "Properties": {"LockDuration": "soon", "Colour": "red"}},
        {"Properties": {}},
        "invoices",
        {"Name": "short", "Properties": {"LockDuration": "PT1S"}},
    ]
    rule = {"Name": "odd", "Properties": {"FilterType": "Magic"}}
    topic = {"Name": "events", "Subscriptions": [{"Name": "audit", "Rules": [rule]}]}
    with pytest.raises(OptionsError) as refused:
        read_inventory(written(queues=queues, topics=[topic]))
    text = str(refused.value)
    assert "queue orders: LockDuration takes a duration such as PT1M30S, got 'soon'" in text
    assert "queue orders: Colour is none of " in text
    assert "each queue needs Name, a text" in text
    assert "Queues holds 'invoices', not an object" in text
    assert "queue short: " in text
    assert "FilterType is Sql, Correlation, True or False, got 'magic'" in text


def test_sql_that_cannot_be_read_is_named_with_its_file_subscription_and_rule(tmp_path: Path) -> None:
    rules = [
        {"Name": "warm", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "degrees > > 20"}}},
        {"Name": "mark", "Properties": {"FilterType": "True", "Action": {"SqlExpression": "SET checked ="}}},
        {"Name": "none", "Properties": {"FilterType": "Sql"}},
    ]
    file = tmp_path / "Config.json"
    file.write_text(written(topics=[{"Name": "news", "Subscriptions": [{"Name": "paris", "Rules": rules}]}]))
    with pytest.raises(OptionsError) as refused:
        read_inventory_file(file)
    text = str(refused.value)
    assert text.startswith(f"{file}: ")
    assert "subscription news/paris: rule warm: SqlFilter: a value is expected, at line 1, column 11" in text
    assert "subscription news/paris: rule mark: Action: a value is expected" in text
    assert "subscription news/paris: rule none: SqlFilter: " in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "this is not JSON"),
        ("[]", "the file needs UserConfig, an object"),
        ('{"UserConfig": {"Namespaces": {}}}', "UserConfig needs Namespaces, a list"),
        ('{"UserConfig": {"Namespaces": []}}', "names no namespace"),
    ],
)
def test_a_file_that_is_something_else_is_refused(text: str, said: str) -> None:
    with pytest.raises(OptionsError, match=said):
        read_inventory(text)
