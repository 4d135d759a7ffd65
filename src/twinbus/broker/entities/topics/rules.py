"""Rules of subscriptions, as values: which messages a subscription gets, and what is changed in them.

Rules are stored as JSON; `twinbus.broker.filters` evaluates their SQL.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from twinbus.errors import StoreDamaged

DEFAULT_RULE = "$Default"
KINDS = ("string", "int", "long", "double", "boolean", "dateTime", "duration")


class TypedValue(NamedTuple):
    """A value with the type it has in documents; times and durations are whole milliseconds."""

    kind: str
    """One of `KINDS`."""
    value: str | int | float | bool
    lacks_zone: bool = False
    """Whether it is a time that was written without a zone: it counts as UTC, and is written without one again."""


NamedValues = tuple[tuple[str, TypedValue], ...]


class TrueFilter(NamedTuple):
    """Every message."""


class FalseFilter(NamedTuple):
    """No message."""


class CorrelationFilter(NamedTuple):
    """Messages that have all these properties with exactly these values. None: any value."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: NamedValues = ()
    """Application properties."""


class SqlFilter(NamedTuple):
    """Messages for which an expression is true."""

    expression: str
    parameters: NamedValues = ()


class SqlAction(NamedTuple):
    """Changes to the properties of a message."""

    expression: str
    parameters: NamedValues = ()


Filter = TrueFilter | FalseFilter | CorrelationFilter | SqlFilter


class Rule(NamedTuple):
    name: str
    filter: Filter = TrueFilter()
    action: SqlAction | None = None
    created_at_ms: int = 0


# --- as text ------------------------------------------------------------------------------------------

_FILTERS: dict[str, type[Filter]] = {
    "true": TrueFilter,
    "false": FalseFilter,
    "correlation": CorrelationFilter,
    "sql": SqlFilter,
}
_WORDS = {kind: word for word, kind in _FILTERS.items()}


def to_text(rule: Rule) -> str:
    written = {"filter": [_WORDS[type(rule.filter)], *rule.filter], "action": rule.action, "name": rule.name}
    return json.dumps(written | {"created_at_ms": rule.created_at_ms}, separators=(",", ":"))


def from_text(text: str) -> Rule:
    """Read what `to_text` wrote; raises `StoreDamaged` for anything else."""
    try:
        values = json.loads(text)
        word, *parts = values["filter"]
        action = values["action"] and SqlAction(*_restore(values["action"]))
        return Rule(values["name"], _FILTERS[word](*_restore(parts)), action, values["created_at_ms"])
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise StoreDamaged(f"the store has an invalid rule: {error}") from error


def _restore(parts: list[Any]) -> list[Any]:
    """Named values, which are lists in JSON."""
    return [
        tuple((str(name), TypedValue(*value)) for name, value in part) if isinstance(part, list) else part
        for part in parts
    ]
