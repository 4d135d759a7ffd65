"""Shared access rules: named pairs of keys, and the rights that they give."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from twinbus.broker.auth.claims import owner_of, with_implied
from twinbus.broker.operations import Right
from twinbus.errors import OptionsError

RULES_MAX = 12
"""On the namespace, and on each entity."""
NAME_LENGTH_MAX = 256
KEY_LENGTH_MAX = 256
KEYS_OF_A_RULE = 2

_NAME = re.compile(r"[\x21-\x3a\x3c\x3e-\x7e]+")
_KEY = re.compile(r"[\x21-\x3a\x3c-\x7e]+")
_NO_KEY = "-" * 44
_FORM = "NAME:RIGHTS or NAME:RIGHTS:KEY, e.g. reader:Listen or app:Send+Listen"


@dataclass(frozen=True, slots=True)
class AccessRule:
    """A name, what it allows, and the keys that prove it. Both keys work, so that one can be changed at a time."""

    name: str
    rights: frozenset[Right]
    primary_key: str | None = field(default=None, repr=False)
    """None, where options are given: made once and kept with the data."""
    secondary_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        OptionsError.raise_for(self._problems())

    def _problems(self) -> Iterator[str]:
        if not _NAME.fullmatch(self.name) or len(self.name) > NAME_LENGTH_MAX:
            yield (
                f"a rule's name has 1 to {NAME_LENGTH_MAX} printable ASCII characters "
                f"without spaces, semicolons and equals signs, got {self.name!r}"
            )
        if not self.rights:
            yield f"the rule {self.name!r} needs at least one of Send, Listen and Manage"
        for key in self.keys:
            if not _KEY.fullmatch(key) or len(key) > KEY_LENGTH_MAX:
                yield (
                    f"a key of the rule {self.name!r} must have 1 to {KEY_LENGTH_MAX} printable ASCII characters "
                    "without spaces and semicolons"
                )

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key for key in (self.primary_key, self.secondary_key) if key is not None)

    @property
    def grants(self) -> frozenset[Right]:
        """The rights in the rule and those that come with them."""
        return with_implied(self.rights)


def any_key_fits(keys: Sequence[str], digest: Callable[[str], bytes], given: bytes, compared: int) -> bool:
    """Whether a key has the digest that was given. The work is that of `compared` keys, also if there are fewer.

    So the time of the answer does not tell whether there is a rule of that name, nor how many keys it has.
    """
    fits = False
    for number in range(max(compared, len(keys))):
        is_real = number < len(keys)
        is_equal = hmac.compare_digest(digest(keys[number] if is_real else _NO_KEY), given)
        fits |= is_equal and is_real
    return fits


def has_key(keys: Sequence[str], key: str) -> bool:
    """Whether this is one of a rule's keys; no keys stand for a rule that does not exist."""
    return any_key_fits(keys, _digest, _digest(key), KEYS_OF_A_RULE)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()  # of one length, whatever the key's


def parse_rule(text: str) -> AccessRule:
    """`app:Send+Listen` or `app:Send+Listen:KEY` -> the rule; raises `OptionsError` if it is malformed."""
    name, *parts = text.split(":", 2)
    if not parts or not name:
        raise OptionsError(f"a rule is written {_FORM}, got {text!r}")
    return AccessRule(name, parse_rights(parts[0]), *parts[1:])


def parse_rights(text: str) -> frozenset[Right]:
    """`Send+Listen` -> the rights, in any case."""
    known = {right.value.lower(): right for right in Right}
    names = text.lower().split("+")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise OptionsError(f"rights are Send, Listen and Manage, joined by '+', got {text!r}")
    return frozenset(known[name] for name in names)


def check_rules(rules: Iterable[AccessRule]) -> None:
    """Raise `OptionsError` if these cannot be the rules of one namespace or one entity."""
    names = [rule.name.lower() for rule in rules]
    if len(names) > RULES_MAX:
        raise OptionsError(f"a namespace or an entity has at most {RULES_MAX} rules, got {len(names)}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionsError(f"a rule is given twice: {', '.join(twice)}")


EntityRules = Callable[[str], tuple[AccessRule, ...]]
"""The rules of the entity at a path, in any case; none if there is no such entity."""


class RuleBook:
    """All rules of a namespace: its own, and those of its entities, looked up when they are needed."""

    def __init__(self, rules: tuple[AccessRule, ...], entity_rules: EntityRules = lambda _path: ()) -> None:
        check_rules(rules)
        self.rules = rules
        self._entity_rules = entity_rules

    def named(self, name: str) -> AccessRule | None:
        """The namespace's own rule of that name."""
        return next((rule for rule in self.rules if rule.name == name), None)

    def entity_rules(self, path: str) -> tuple[AccessRule, ...]:
        """The rules of the entity that a plain path belongs to; they give no rights to entities below its name."""
        return self._entity_rules(owner_of(path))
