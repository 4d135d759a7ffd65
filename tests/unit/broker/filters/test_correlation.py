"""Correlation filters, one by one and in an index."""

from __future__ import annotations

from typing import Any

import pytest
from rule_message import RuleMessage

from twinbus.amqp.codec.types import Int, Long, Symbol, Timestamp
from twinbus.broker.filters.correlation import CorrelationCondition, CorrelationIndex
from twinbus.broker.filters.rule_errors import SqlError


def test_a_correlation_id_selects_its_messages_and_no_others() -> None:
    contoso = CorrelationCondition(correlation_id="Contoso")
    assert contoso.matches(RuleMessage(system={"CorrelationId": "Contoso"}))
    assert not contoso.matches(RuleMessage(system={"CorrelationId": "contoso"}))
    assert not contoso.matches(RuleMessage())


def test_all_conditions_must_hold() -> None:
    wanted = CorrelationCondition(label="Important", reply_to="johndoe@contoso.com", properties={"color": "Red"})
    system = {"Label": "Important", "ReplyTo": "johndoe@contoso.com"}
    assert wanted.matches(RuleMessage({"Color": "Red"}, system))
    assert not wanted.matches(RuleMessage({"Color": "Blue"}, system))
    assert not wanted.matches(RuleMessage({"Color": "Red"}, {"Label": "Important"}))


@pytest.mark.parametrize(
    ("asked", "sent", "matches"),
    [
        (2, Int(2), True),
        (2, Long(2), True),
        (2.0, Int(2), True),
        (2, "2", False),
        ("2", 2, False),
        (True, True, True),
        (True, 1, False),
        (1, True, False),
        (5, Timestamp(5), False),
        ("a", Symbol("a"), True),
        ("a", None, False),
        (float("nan"), float("nan"), False),
    ],
)
def test_values_match_by_value_and_never_across_kinds(asked: object, sent: Any, matches: bool) -> None:
    wanted = CorrelationCondition(properties={"x": asked})
    index: CorrelationIndex[str] = CorrelationIndex()
    index.add("rule", wanted)
    message = RuleMessage({"X": sent})
    assert wanted.matches(message) is matches
    assert index.match(message) == ["rule"] * matches


def test_a_filter_that_asks_for_nothing_selects_everything() -> None:
    index: CorrelationIndex[int] = CorrelationIndex()
    index.add(1, CorrelationCondition())
    assert index.match(RuleMessage()) == [1]


@pytest.mark.parametrize("properties", [{"a": 1, "A": 2}, {"a": None}, {"a": [1]}])
def test_a_filter_that_makes_no_sense_is_refused(properties: dict[str, Any]) -> None:
    with pytest.raises(SqlError):
        CorrelationCondition(properties=properties)


def test_a_rule_can_be_replaced_and_removed() -> None:
    index: CorrelationIndex[str] = CorrelationIndex()
    index.add("rule", CorrelationCondition(to="a"))
    index.add("rule", CorrelationCondition(to="b"))
    assert len(index) == 1
    assert index.match(RuleMessage(system={"To": "a"})) == []
    assert index.match(RuleMessage(system={"To": "b"})) == ["rule"]
    index.remove("rule")
    index.remove("rule")
    assert (len(index), index.match(RuleMessage(system={"To": "b"}))) == (0, [])


def test_a_message_is_asked_as_often_for_a_thousand_rules_as_for_one() -> None:
    class Asked(RuleMessage):
        questions = 0

        def user(self, name: str, /) -> Any:
            self.questions += 1
            return super().user(name)

    index: CorrelationIndex[int] = CorrelationIndex()
    for number in range(1000):
        index.add(number, CorrelationCondition(properties={"store": number, "region": "north"}))
    message = Asked({"store": 7, "region": "north"})
    assert index.match(message) == [7]
    assert message.questions == 2
