"""SQL actions: what a rule changes in the copy of a message that it selected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias
from uuid import UUID, uuid4

from twinbus.amqp.values import Byte, Int, Long, Short, UByte, UInt, ULong, UShort, Value
from twinbus.namespace.sql.compilation import Compiler
from twinbus.namespace.sql.failures import FilterError
from twinbus.namespace.sql.kinds import FLOATS, INTEGERS, Kind, as_text, for_the_wire, kind_of
from twinbus.namespace.sql.parser import parse_action
from twinbus.namespace.sql.readings import Reading
from twinbus.namespace.sql.syntax import Property, Remove, Statement
from twinbus.namespace.sql.system_properties import SystemProperty, system_property
from twinbus.namespace.sql.view import MISSING, MessageView


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to become of a message. No user property is named twice, whatever the case of its name."""

    system: Mapping[str, Value]
    """Names as in `SYSTEM_PROPERTIES`; None clears. Texts are str, times Timestamp, time to live a timedelta."""
    user: Mapping[str, Value]
    """Set, in the action's spelling: one that the message has in another spelling is the same property."""
    removed: frozenset[str]
    """User properties to remove, if they are there; names in lower case."""


@dataclass(frozen=True, slots=True)
class Action:
    text: str
    steps: tuple[Step, ...]

    def apply(self, view: MessageView) -> Changes:
        """The changes, the message itself staying as it is; raises `FilterError` if a statement cannot be done."""
        draft = _Draft(view)
        for step in self.steps:
            step(draft)
        return draft.changes()


def compile_action(
    text: str, parameters: Mapping[str, object] | None = None, *, new_id: Callable[[], UUID] = uuid4
) -> Action:
    """The action, ready to be applied to many messages; raises `SqlError` if the text is no action."""
    compiler = Compiler(parameters or {}, new_id)
    return Action(text, tuple(_step(statement, compiler) for statement in parse_action(text)))


class _Draft:
    """The message as the statements so far have left it; later ones see what earlier ones did."""

    def __init__(self, view: MessageView) -> None:
        self._view = view
        self._system: dict[str, Value] = {}
        self._user: dict[str, tuple[str, Value]] = {}

    def system(self, name: str, /) -> Value:
        return self._system[name] if name in self._system else self._view.system(name)

    def user(self, name: str, /) -> Value:
        return self._user[name][1] if name in self._user else self._view.user(name)

    def set_system(self, name: str, value: Value) -> None:
        self._system[name] = value

    def set_user(self, name: str, value: Value) -> None:
        self._user[name.lower()] = (name, value)

    def changes(self) -> Changes:
        written = {name: for_the_wire(value) for name, value in self._user.values() if value is not MISSING}
        removed = frozenset(name for name, (_, value) in self._user.items() if value is MISSING)
        return Changes(self._system, written, removed)


Step: TypeAlias = Callable[[_Draft], None]


def _step(statement: Statement, compiler: Compiler) -> Step:
    target = statement.target
    if isinstance(statement, Remove):
        return lambda draft: draft.set_user(target.name, MISSING)
    value = compiler.value(statement.value)
    return _set_system(target, value) if target.scope == "sys" else _set_user(target.name, value)


def _set_user(name: str, reading: Reading) -> Step:
    lowered = name.lower()

    def set_user(draft: _Draft) -> None:
        draft.set_user(name, _like_before(reading(draft), draft.user(lowered)))

    return set_user


def _set_system(target: Property, reading: Reading) -> Step:
    known = system_property(target.name)

    def set_system(draft: _Draft) -> None:
        if known is None:
            raise FilterError(f"there is no system property {target.name}")
        if not known.settable:
            raise FilterError(f"system property {known.name} cannot be set")
        draft.set_system(known.name, _fitting(known, reading(draft)))

    return set_system


def _fitting(known: SystemProperty, value: Value) -> Value:
    """The value as this system property holds it."""
    if value is None:
        return None
    if known.kind is Kind.TEXT:
        value = as_text(value)
    if kind_of(value) is not known.kind:
        raise FilterError(f"system property {known.name} must be {known.kind}, not {kind_of(value)}")
    if known.length is not None and len(value) > known.length:
        raise FilterError(f"system property {known.name} has at most {known.length} characters")
    if known.kind is Kind.DURATION and value <= timedelta():
        raise FilterError(f"system property {known.name} must be more than zero")
    return value


_RANGES: Final[dict[type, range]] = {
    UByte: range(2**8),
    UShort: range(2**16),
    UInt: range(2**32),
    ULong: range(2**64),
    Byte: range(-(2**7), 2**7),
    Short: range(-(2**15), 2**15),
    Int: range(-(2**31), 2**31),
    Long: range(-(2**63), 2**63),
}


def _like_before(value: Value, before: Value) -> Value:
    """The value in the type that the property had, where that holds it: halving an int leaves an int."""
    wanted = type(before)
    if type(value) in INTEGERS:
        if wanted in _RANGES and int(value) in _RANGES[wanted]:
            return wanted(value)
        if wanted in FLOATS:
            return wanted(value)
    return value
