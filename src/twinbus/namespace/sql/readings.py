"""How rules read properties: what is known of a name is settled when the rule is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from twinbus.amqp.values import Value
from twinbus.namespace.sql.failures import FilterError
from twinbus.namespace.sql.kinds import KINDS, Kind, kind_of, plain
from twinbus.namespace.sql.syntax import NamedProperty
from twinbus.namespace.sql.system_properties import system_property
from twinbus.namespace.sql.view import MISSING, MessageView
from twinbus.namespace.sql.writing import write

Reading: TypeAlias = Callable[[MessageView], Value]


def look_up(scope: str, name: str) -> Reading:
    """Asks for the property; the answer is `MISSING` if it is not there."""
    if scope == "user":
        lowered = name.lower()
        return lambda view: view.user(lowered)
    known = system_property(name)
    if known is None:
        return _unknown_system_property(name)
    return _look_up_system(known.name)


def _look_up_system(canonical: str) -> Reading:
    def lookup(view: MessageView) -> Value:
        value = view.system(canonical)
        return MISSING if value is None else value  # a message has no null there, only nothing

    return lookup


def _unknown_system_property(name: str) -> Reading:
    def complain(_: MessageView) -> Value:
        raise FilterError(f"there is no system property {name}")

    return complain


def look_up_by_value(name: Reading, node: NamedProperty) -> Reading:
    """As `look_up`, of a property whose name each message decides."""

    def lookup(view: MessageView) -> Value:
        value = name(view)
        if value is None:
            return MISSING
        if kind_of(value) is not Kind.TEXT:
            raise FilterError(f"the name of a property must be a text, not {kind_of(value)}, in: {write(node)}")
        scope, dot, rest = value.partition(".")
        if dot and scope.lower() in ("sys", "user"):
            return look_up(scope.lower(), rest)(view)
        return view.user(value.lower())

    return lookup


def read_user(lowered: str) -> Reading:
    """As `readable(look_up("user", name))`, in one call: most of what rules do is this."""

    def read(view: MessageView) -> Value:
        value = view.user(lowered)
        if type(value) in KINDS:
            return value
        return None if value is MISSING else plain(value)

    return read


def readable(lookup: Reading) -> Reading:
    """The value as operators take it: None if it is missing, and of a kind that rules know if it can be."""

    def read(view: MessageView) -> Value:
        value = lookup(view)
        if value is MISSING:
            return None
        return value if type(value) in KINDS else plain(value)

    return read
