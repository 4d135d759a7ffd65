"""Where a fault applies: the whole namespace, named entities, or entities whose name matches a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import translate

MANAGEMENT_SUFFIX = "/$management"
BELOW_TOPIC = "/subscriptions/"
BELOW_ENTITY = "/$"
"""Followed by a part of an entity: its dead-letter queue, its management node."""
NAME_LENGTH_MAX = 260
ENTITIES_MAX = 1_000


def entity_of(path: str) -> str:
    """The entity of an address, in lower case: its dead-letter queue and management node belong to it."""
    return path.lower().partition(BELOW_ENTITY)[0]


def topic_of(entity: str) -> str:
    """The topic of a subscription; any other entity itself."""
    return entity.partition(BELOW_TOPIC)[0]


@dataclass(frozen=True, slots=True)
class Scope:
    """Without entities and pattern: the whole namespace."""

    entities: tuple[str, ...] = ()
    pattern: str | None = None

    @property
    def is_namespace(self) -> bool:
        return not self.entities and self.pattern is None

    @property
    def names(self) -> tuple[str, ...]:
        """As given; empty: the whole namespace."""
        return self.entities if self.pattern is None else (self.pattern,)

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"entities like {self.pattern}"
        return ", ".join(self.entities) or "the namespace"

    def compile(self) -> Callable[[str | None], bool]:
        """Whether an entity, as `entity_of` returns it, is in scope. None is the namespace itself.

        Subscriptions are in scope with their topic.
        """
        if self.is_namespace:
            return lambda _entity: True
        entities = frozenset(name.lower() for name in self.entities)
        pattern = None if self.pattern is None else re.compile(translate(self.pattern.lower()))

        def is_named(entity: str) -> bool:
            return entity in entities or (pattern is not None and pattern.match(entity) is not None)

        return lambda entity: entity is not None and (is_named(entity) or is_named(topic_of(entity)))
