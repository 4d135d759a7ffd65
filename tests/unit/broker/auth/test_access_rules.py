"""Shared access rules: what they may be, and where they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinbus.broker.auth.access_rules import AccessRule, RuleBook, has_key, parse_rule
from twinbus.broker.operations import Right
from twinbus.errors import OptionsError

SEND, LISTEN, MANAGE = Right.SEND, Right.LISTEN, Right.MANAGE


def rule(name: str, *rights: Right) -> AccessRule:
    return AccessRule(name, frozenset(rights or {SEND}), f"{name}-key", f"{name}-other")


def test_manage_includes_send_and_listen() -> None:
    assert rule("r", MANAGE).grants == {SEND, LISTEN, MANAGE}
    assert rule("r", SEND, LISTEN).grants == {SEND, LISTEN}


def test_both_keys_are_the_rules_and_no_other_is() -> None:
    both = rule("r")
    assert has_key(both.keys, "r-key")
    assert has_key(both.keys, "r-other")
    for other in ("", "r-ke", "r-keyy", "R-KEY", "\udc80", "schlüssel"):
        assert not has_key(both.keys, other)


def test_a_rule_without_a_key_opens_nothing() -> None:
    keyless = AccessRule("r", frozenset({SEND}))
    assert not has_key(keyless.keys, "")
    assert has_key(replace(keyless, primary_key="k").keys, "k")


def test_keys_are_not_shown() -> None:
    assert "key" not in repr(rule("r"))


@pytest.mark.parametrize("name", ["", "a b", "a;b", "a=b", "ä", "a\n", "x" * 257])
def test_a_rule_needs_a_name_that_a_connection_string_can_carry(name: str) -> None:
    with pytest.raises(OptionsError, match="printable ASCII"):
        AccessRule(name, frozenset({SEND}), "k")


@pytest.mark.parametrize("key", ["", "a b", "a;b", "ä", "x" * 257])
def test_a_rule_needs_keys_that_a_connection_string_can_carry(key: str) -> None:
    with pytest.raises(OptionsError, match="a key of the rule 'r'"):
        AccessRule("r", frozenset({SEND}), "fine", key)


def test_a_rule_needs_a_right() -> None:
    with pytest.raises(OptionsError, match="Send, Listen and Manage"):
        AccessRule("r", frozenset(), "k")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reader:Listen", AccessRule("reader", frozenset({LISTEN}))),
        ("app:send+LISTEN", AccessRule("app", frozenset({SEND, LISTEN}))),
        ("app:Manage:a:b=", AccessRule("app", frozenset({MANAGE}), "a:b=")),
    ],
)
def test_a_rule_can_be_written_in_one_word(text: str, expected: AccessRule) -> None:
    assert parse_rule(text) == expected


@pytest.mark.parametrize("text", ["", "reader", ":Listen", "reader:", "reader:Read", "reader:Send,Listen", "r:Send:"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(OptionsError):
        parse_rule(text)


def test_twelve_rules_are_the_most() -> None:
    RuleBook(tuple(rule(f"r{number}") for number in range(12)))
    with pytest.raises(OptionsError, match="at most 12"):
        RuleBook(tuple(rule(f"r{number}") for number in range(13)))


def test_two_rules_need_two_names() -> None:
    with pytest.raises(OptionsError, match="twice: r"):
        RuleBook((rule("r"), rule("R")))


def test_the_rules_of_an_entity_hold_for_what_is_its_own_and_for_no_other_entity() -> None:
    own = {"a": (rule("on-a"),), "a/b": (rule("on-b"),), "other": (rule("on-other"),)}
    rules = RuleBook((rule("root"),), lambda path: own.get(path, ()))
    for path in ("a", "a/$management", "a/$deadletterqueue", "a/$deadletterqueue/$management", "a/$transfer/$x"):
        assert [each.name for each in rules.entity_rules(path)] == ["on-a"]
    assert [each.name for each in rules.entity_rules("a/b/$management")] == ["on-b"]
    for path in ("", "a/c", "a/c/$management", "$management"):
        assert rules.entity_rules(path) == ()
    assert rules.named("root") is not None
    assert rules.named("on-a") is None
