"""Where messages lie: a queue, a subscription, or the dead letters of one."""

from __future__ import annotations

from dataclasses import dataclass

from twinbus.errors import OptionsError
from twinbus.transport.links.peek import DEAD_LETTER_QUEUE

_LENGTH_MAX = 260
_SUBSCRIPTIONS = "/subscriptions/"


@dataclass(frozen=True, slots=True)
class MessagePlace:
    entity: str
    """A queue or a topic."""
    subscription: str | None = None
    is_dead_letters: bool = False

    def __post_init__(self) -> None:
        """Raises `OptionsError` for what cannot be the name of an entity, e.g. a node of the service."""
        for name in (self.entity, *(() if self.subscription is None else (self.subscription,))):
            is_node = any(part.startswith("$") for part in name.split("/"))
            if not name.strip("/") or len(name) > _LENGTH_MAX or not name.isprintable() or "://" in name or is_node:
                raise OptionsError(f"not the name of a queue, topic or subscription: {name[:60]!r}")

    @classmethod
    def parse(cls, text: str, subscription: str | None = None, *, is_dead_letters: bool = False) -> MessagePlace:
        """Also of the forms `orders/$DeadLetterQueue` and `topic/Subscriptions/name`. Raises `OptionsError`."""
        entity = text.strip("/")
        if entity.lower().endswith(DEAD_LETTER_QUEUE.lower()):
            entity, is_dead_letters = entity[: -len(DEAD_LETTER_QUEUE)], True
        at = entity.lower().find(_SUBSCRIPTIONS)
        if subscription is None and at > 0:
            entity, subscription = entity[:at], entity[at + len(_SUBSCRIPTIONS) :]
        return cls(entity, subscription, is_dead_letters)

    @property
    def path(self) -> str:
        """The address of its links."""
        whole = self.entity if self.subscription is None else f"{self.entity}/Subscriptions/{self.subscription}"
        return whole + DEAD_LETTER_QUEUE if self.is_dead_letters else whole

    def __str__(self) -> str:
        where = self.entity if self.subscription is None else f"{self.entity}/{self.subscription}"
        return f"the dead letters of {where}" if self.is_dead_letters else where
