"""SQL actions: what a rule changes in its copy of a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias
from uuid import UUID, uuid4

from twinbus.amqp.codec.types import Byte, Int, Long, Short, UByte, UInt, ULong, UShort, Value
from twinbus.broker.filters.compiler import Compiler
from twinbus.broker.filters.parser import parse_action
from twinbus.broker.filters.properties import MISSING, MessageView, SystemProperty, ValueReader, system_property
from twinbus.broker.filters.rule_errors import FilterError
from twinbus.broker.filters.syntax import Property, Remove, Statement
from twinbus.broker.filters.value_types import FLOATS, INTEGERS, ValueKind, as_text, for_the_wire, kind_of


@dataclass(frozen=True, slots=True)
class PropertyChanges:
    """The changes of an action. No user property appears twice, whatever the case of its name."""

    system: Mapping[str, Value]
    """Names as in `SYSTEM_PROPERTIES`; None clears. Texts are str, times Timestamp, time to live a timedelta."""
    user: Mapping[str, Value]
    """To set, in the action's spelling: a property of the message in another case is the same one."""
    removed: frozenset[str]
    """User properties to remove, if present; names in lower case."""


@dataclass(frozen=True, slots=True)
class CompiledAction:
    text: str
    steps: tuple[DraftStep, ...]

    def apply(self, view: MessageView) -> PropertyChanges:
        """The changes to make to a message; raises `FilterError` if a statement cannot be evaluated."""
        draft = _Draft(view)
        for step in self.steps:
            step(draft)
        return draft.changes()


def compile_action(
    text: str, parameters: Mapping[str, object] | None = None, *, new_id: Callable[[], UUID] = uuid4
) -> CompiledAction:
    """Compile an action; raises `SqlError` if the text is not an action."""
    compiler = Compiler(parameters or {}, new_id)
    return CompiledAction(text, tuple(_step(statement, compiler) for statement in parse_action(text)))


class _Draft:
    """The message as changed by the statements so far; later ones see what earlier ones did."""

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

    def changes(self) -> PropertyChanges:
        written = {name: for_the_wire(value) for name, value in self._user.values() if value is not MISSING}
        removed = frozenset(name for name, (_, value) in self._user.items() if value is MISSING)
        return PropertyChanges(self._system, written, removed)


DraftStep: TypeAlias = Callable[[_Draft], None]


def _step(statement: Statement, compiler: Compiler) -> DraftStep:
    target = statement.target
    if isinstance(statement, Remove):
        return lambda draft: draft.set_user(target.name, MISSING)
    value = compiler.value(statement.value)
    return _set_system(target, value) if target.scope == "sys" else _set_user(target.name, value)


def _set_user(name: str, reading: ValueReader) -> DraftStep:
    lowered = name.lower()

    def set_user(draft: _Draft) -> None:
        draft.set_user(name, _keep_type(reading(draft), draft.user(lowered)))

    return set_user


def _set_system(target: Property, reading: ValueReader) -> DraftStep:
    known = system_property(target.name)

    def set_system(draft: _Draft) -> None:
        if known is None:
            raise FilterError(f"there is no system property {target.name}")
        if not known.settable:
            raise FilterError(f"system property {known.name} cannot be set")
        draft.set_system(known.name, _convert(known, reading(draft)))

    return set_system


def _convert(known: SystemProperty, value: Value) -> Value:
    """The value in the type of this system property."""
    if value is None:
        return None
    if known.kind is ValueKind.TEXT:
        value = as_text(value)
    if kind_of(value) is not known.kind:
        raise FilterError(f"system property {known.name} must be {known.kind}, not {kind_of(value)}")
    if known.length is not None and len(value) > known.length:
        raise FilterError(f"system property {known.name} has at most {known.length} characters")
    if known.kind is ValueKind.DURATION and value <= timedelta():
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


def _keep_type(value: Value, before: Value) -> Value:
    """The value in the type that the property had, if it fits: half of an int stays an int."""
    wanted = type(before)
    if type(value) in INTEGERS:
        if wanted in _RANGES and int(value) in _RANGES[wanted]:
            return wanted(value)
        if wanted in FLOATS:
            return wanted(value)
    return value
