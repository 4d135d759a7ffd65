"""The keys of a running namespace: its own rules and those of its queues and topics, in one authority."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from twinbus.broker.auth.access_rules import AccessRule, EntityRules, RuleBook
from twinbus.broker.auth.authority import Authority
from twinbus.broker.auth.jwt import JwtIssuer
from twinbus.broker.core.registry import Registry
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.settings import AuthorizationRule
from twinbus.broker.entities.topic import Topic
from twinbus.broker.operations import Right
from twinbus.connection_string import ROOT_KEY_NAME
from twinbus.errors import EntityNotFound


def root_rule(key: str) -> AccessRule:
    """The rule that every namespace has."""
    return AccessRule(ROOT_KEY_NAME, frozenset(Right), key)


def keyed_rules(rules: Iterable[AccessRule], keys_for: Callable[[Sequence[str]], Sequence[str]]) -> list[AccessRule]:
    """The rules, with keys for those that came without; `keys_for` names gives a key each."""
    rules = list(rules)
    keyless = [rule.name for rule in rules if rule.primary_key is None]
    keys = dict(zip(keyless, keys_for(keyless), strict=True))
    return [rule.with_key(keys[rule.name]) if rule.name in keys else rule for rule in rules]


def build_authority(
    rules: Sequence[AccessRule], jwt_issuers: Sequence[JwtIssuer], registry: Callable[[], Registry]
) -> Authority:
    """`registry` is asked each time: it is another one after the store has failed."""
    return Authority(RuleBook(tuple(rules), _rules_of_entities(registry)), jwt_issuers)


def _rules_of_entities(registry: Callable[[], Registry]) -> EntityRules:
    def rules_of(path: str) -> tuple[AccessRule, ...]:
        try:
            entity = registry().find(path)
        except EntityNotFound:
            return ()
        if not isinstance(entity, Queue | Topic):
            return ()
        return tuple(map(_access_rule, entity.settings.authorization_rules))

    return rules_of


def _access_rule(rule: AuthorizationRule) -> AccessRule:
    return AccessRule(rule.key_name, frozenset(map(Right, rule.rights)), rule.primary_key, rule.secondary_key)
