"""The keys of a running namespace: its own rules and those of its queues and topics, in one authority."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from twinbus.broker.auth.access_rules import AccessRule, RuleBook
from twinbus.broker.auth.authority import Authority
from twinbus.broker.auth.jwt import JwtIssuer
from twinbus.broker.core.registry import Registry
from twinbus.broker.data_directory import namespace_key, new_key, rule_keys
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.topics.topic import Topic
from twinbus.broker.operations import Right
from twinbus.connection_string import ROOT_KEY_NAME
from twinbus.errors import EntityNotFound


def rules_with_keys(key: str | None, rules: Sequence[AccessRule], directory: Path | None) -> tuple[AccessRule, ...]:
    """The rule that every namespace has, with this key, then the given ones.

    Keys that are missing are made and kept in the directory; without one they are made for this run.
    """
    root_key = key or (new_key() if directory is None else namespace_key(directory))
    root = AccessRule(ROOT_KEY_NAME, frozenset(Right), root_key)
    keyless = [rule.name for rule in rules if rule.primary_key is None]
    made = [new_key() for _ in keyless] if directory is None else rule_keys(directory, keyless)
    keys = dict(zip(keyless, made, strict=True))
    return (root, *[replace(rule, primary_key=keys[rule.name]) if rule.name in keys else rule for rule in rules])


def build_authority(
    rules: tuple[AccessRule, ...], jwt_issuers: Sequence[JwtIssuer], registry: Callable[[], Registry]
) -> Authority:
    """`registry` is asked each time: it is another one after the store has failed."""

    def rules_of(path: str) -> tuple[AccessRule, ...]:
        try:
            entity = registry().find(path)
        except EntityNotFound:
            return ()
        if not isinstance(entity, Queue | Topic):
            return ()
        return tuple(
            AccessRule(rule.key_name, frozenset(map(Right, rule.rights)), rule.primary_key, rule.secondary_key)
            for rule in entity.settings.authorization_rules
        )

    return Authority(RuleBook(rules, rules_of), jwt_issuers)
