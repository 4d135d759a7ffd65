"""The syntax tree of a filter or action: names keep their spelling, the default scope `user.` is explicit.

Chains (`a AND b AND c`, `a + b - c`) are one node with many parts, so a long text is not a deep tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Scope: TypeAlias = Literal["sys", "user"]


@dataclass(frozen=True, slots=True)
class Constant:
    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class ParameterRef:
    name: str
    """Without the @."""


@dataclass(frozen=True, slots=True)
class Property:
    scope: Scope
    name: str


@dataclass(frozen=True, slots=True)
class NamedProperty:
    """`property(name)`: the name depends on the message."""

    name: Expression


@dataclass(frozen=True, slots=True)
class NewId:
    pass


@dataclass(frozen=True, slots=True)
class Signed:
    sign: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators of one precedence, from left to right: either `+ -` or `* / %`."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    what: Property | NamedProperty
    negated: bool = False


@dataclass(frozen=True, slots=True)
class In:
    left: Expression
    items: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like:
    left: Expression
    pattern: Expression
    escape: Expression | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    what: Property | NamedProperty


@dataclass(frozen=True, slots=True)
class Not:
    operand: Predicate


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Set:
    target: Property
    value: Expression


@dataclass(frozen=True, slots=True)
class Remove:
    target: Property


Expression: TypeAlias = Constant | ParameterRef | Property | NamedProperty | NewId | Signed | Chain
Predicate: TypeAlias = Comparison | IsNull | In | Like | Exists | Not | And | Or
Statement: TypeAlias = Set | Remove
