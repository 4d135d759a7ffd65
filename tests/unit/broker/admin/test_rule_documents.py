"""Descriptions of rules in documents: the values of their parameters, and their times."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest

from twinbus.broker.admin.rule_documents import read_rule, rule_description
from twinbus.broker.admin.xml_text import INSTANCE, SERVICE_BUS
from twinbus.broker.entities.topics.rules import Rule, SqlAction, SqlFilter, TypedValue, from_text, to_text
from twinbus.errors import ArgumentError

NOON_MS = 1_593_950_400_000
"""2020-07-05T12:00:00Z"""


def read(value: str) -> Rule:
    pair = (
        f"<KeyValueOfstringanyType><Key>@at</Key><Value i:type='d:dateTime'>{value}</Value></KeyValueOfstringanyType>"
    )
    text = (
        f"<RuleDescription xmlns='{SERVICE_BUS}' xmlns:i='{INSTANCE}'><Filter i:type='SqlFilter'>"
        f"<SqlExpression>at = @at</SqlExpression><Parameters>{pair}</Parameters></Filter></RuleDescription>"
    )
    return read_rule(fromstring(text), "r")


@pytest.mark.parametrize(
    ("given", "moment_ms", "written"),
    [
        ("2020-07-05T12:00:00", NOON_MS, "2020-07-05T12:00:00.000<"),
        ("2020-07-05T12:00:00.25", NOON_MS + 250, "2020-07-05T12:00:00.250<"),
        ("2020-07-05T12:00:00Z", NOON_MS, "2020-07-05T12:00:00.000Z<"),
        ("2020-07-05T14:00:00+02:00", NOON_MS, "2020-07-05T12:00:00.000Z<"),
    ],
)
def test_a_time_keeps_whether_it_had_a_zone_and_without_one_it_is_utc(given: str, moment_ms: int, written: str) -> None:
    rule = from_text(to_text(read(given)))
    assert isinstance(rule.filter, SqlFilter)
    ((_, typed),) = rule.filter.parameters
    assert (typed.kind, typed.value) == ("dateTime", moment_ms)
    assert written in rule_description(rule)


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a value of type dateTime cannot be 'noon'"):
        read("noon")


def test_a_rule_that_was_stored_without_saying_so_has_a_zone() -> None:
    rule = Rule("r", SqlFilter("at = @at"), SqlAction("SET a = @at", (("@at", TypedValue("dateTime", NOON_MS)),)))
    older = to_text(rule).replace(f"{NOON_MS},false]", f"{NOON_MS}]")
    assert older != to_text(rule)
    assert from_text(older) == rule
    assert "2020-07-05T12:00:00.000Z<" in rule_description(from_text(older))
