"""SQL actions: what they change, and what they refuse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from rule_message import RuleMessage

from twinbus.amqp.codec.types import Described, Float32, Int, Long, Symbol, Timestamp, UByte
from twinbus.broker.filters.actions import PropertyChanges, compile_action
from twinbus.broker.filters.rule_errors import FilterError


def apply(
    text: str, user: dict[str, Any] | None = None, *, parameters: dict[str, Any] | None = None, **system: Any
) -> PropertyChanges:
    return compile_action(text, parameters, new_id=lambda: UUID(int=7)).apply(RuleMessage(user, system))


def test_an_order_is_halved_loses_its_priority_and_is_marked() -> None:
    changes = apply(
        "SET quantity = quantity / 2; REMOVE priority;SET sys.CorrelationId = 'low';",
        {"quantity": Int(9), "priority": "high"},
        CorrelationId="high",
    )
    assert changes == PropertyChanges({"CorrelationId": "low"}, {"quantity": 4}, frozenset({"priority"}))
    assert type(changes.user["quantity"]) is Int


def test_a_source_is_set_to_a_constant_or_a_parameter() -> None:
    assert apply("SET source='routedOrders'").user == {"source": "routedOrders"}
    due = datetime(2020, 7, 5, 11, 12, 13, tzinfo=UTC)
    assert apply("SET Priority = @param", parameters={"@param": due}).user == {"Priority": Timestamp(1593947533000)}


def test_later_statements_see_what_earlier_ones_did() -> None:
    changes = apply("SET a = a + 1; SET b = A * 10; REMOVE a; SET c = a; SET sys.To = 'x'; SET d = sys.To", {"a": 1})
    assert changes == PropertyChanges({"To": "x"}, {"b": 20, "c": None, "d": "x"}, frozenset({"a"}))


def test_the_last_word_on_a_property_counts_whatever_its_case() -> None:
    assert apply("SET Tag = 1; SET TAG = 2") == PropertyChanges({}, {"TAG": 2}, frozenset())
    assert apply("SET tag = 1; REMOVE Tag") == PropertyChanges({}, {}, frozenset({"tag"}))
    assert apply("REMOVE Tag; SET Tag = 1", {"tag": 0}) == PropertyChanges({}, {"Tag": 1}, frozenset())


def test_a_missing_user_property_is_no_error_and_sets_null() -> None:
    assert apply("SET a = nowhere; SET b = nowhere + 1; REMOVE nowhere").user == {"a": None, "b": None}
    assert apply("SET sys.Label = nowhere", Label="x").system == {"Label": None}


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        (Int(1), "SET a = 7", Int(7)),
        (UByte(1), "SET a = 255", UByte(255)),
        (UByte(1), "SET a = 256", 256),
        (Int(1), "SET a = 2147483648", 2147483648),
        (Int(1), "SET a = 1.5", 1.5),
        (2.0, "SET a = 3", 3.0),
        (Float32(2.0), "SET a = 3", Float32(3.0)),
        ("text", "SET a = 3", 3),
        (Int(1), "SET a = 'text'", "text"),
        (Int(1), "SET a = TRUE", True),
    ],
)
def test_a_property_keeps_its_type_where_that_holds_the_new_value(before: Any, text: str, after: Any) -> None:
    value = apply(text, {"a": before}).user["a"]
    assert (type(value), value) == (type(after), after)


def test_a_new_id_becomes_a_text_in_a_system_property_and_stays_a_uuid_in_a_user_one() -> None:
    changes = apply("SET sys.MessageId = newid(); SET id = newid(); SET sys.Subject = 'n' + 1")
    assert changes.system == {"MessageId": str(UUID(int=7)), "Label": "n1"}
    assert changes.user == {"id": UUID(int=7)}


def test_times_and_durations_can_be_set() -> None:
    parameters = {"wait": timedelta(minutes=1)}
    text = "SET sys.TimeToLive = @wait; SET sys.ScheduledEnqueueTime = at + @wait; SET took = @wait"
    changes = apply(text, {"at": Timestamp(1000)}, parameters=parameters)
    assert changes.system == {"TimeToLive": timedelta(minutes=1), "ScheduledEnqueueTimeUtc": Timestamp(61_000)}
    assert changes.user == {"took": Described(Symbol("com.microsoft:timespan"), Long(600_000_000))}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SET sys.Body = 'x'", "no system property Body"),
        ("SET a = sys.Body", "no system property Body"),
        ("SET sys.SequenceNumber = 1", "SequenceNumber cannot be set"),
        ("SET sys.TimeToLive = 5", "TimeToLive must be a duration, not a number"),
        ("SET sys.TimeToLive = -@wait", "TimeToLive must be more than zero"),
        ("SET sys.Label = @wait", "a duration cannot be converted to text"),
        ("SET sys.SessionId = long", "SessionId has at most 128 characters"),
        ("SET a = 1 / 0", "division by zero"),
    ],
)
def test_a_statement_that_cannot_be_done_is_a_filter_error(text: str, problem: str) -> None:
    with pytest.raises(FilterError) as caught:
        apply(text, {"long": "x" * 129}, parameters={"wait": timedelta(minutes=1)})
    assert problem in str(caught.value)
