"""Compile a tree into functions of a message: everything that no message decides is decided here, once.

A condition returns True, False or None (unknown); a value is None if it is unknown or null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never
from uuid import UUID, uuid4

from twinbus.amqp.codec.types import Value
from twinbus.broker.filters.formatter import write
from twinbus.broker.filters.like import LikePattern, like_pattern
from twinbus.broker.filters.operators import COMPARISONS, apply_sign, calculate, compare
from twinbus.broker.filters.parser import parse_filter
from twinbus.broker.filters.properties import (
    MISSING,
    MessageView,
    ValueReader,
    lookup_by_value,
    lookup_of,
    read_user,
    readable,
)
from twinbus.broker.filters.rule_errors import FilterError, SqlError
from twinbus.broker.filters.syntax import (
    And,
    Chain,
    Comparison,
    Constant,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    NamedProperty,
    NewId,
    Not,
    Or,
    ParameterRef,
    Predicate,
    Property,
    Signed,
)
from twinbus.broker.filters.value_types import FLOATS, INTEGERS, ValueKind, kind_of, parameter_value

MessageCondition: TypeAlias = Callable[[MessageView], bool | None]


class Compiler:
    """Compiles trees, given the values of parameters and a source of new ids."""

    def __init__(self, parameters: Mapping[str, object], new_id: Callable[[], UUID]) -> None:
        self._parameters = {name.removeprefix("@").lower(): value for name, value in parameters.items()}
        self._new_id = new_id
        self.known_patterns: list[int] = []
        """The lengths of the LIKE patterns that no message decides."""
        self.other_patterns = 0
        """The number of other LIKE patterns."""

    # --- conditions --------------------------------------------------------------------------------

    def condition(self, node: Predicate) -> MessageCondition:
        match node:
            case Comparison():
                return self._comparison(node)
            case IsNull(what, negated):
                return _is_null(self._lookup(what), negated)
            case In():
                return self._in(node)
            case Like():
                return self._like(node)
            case Exists(what):
                lookup = self._lookup(what)
                return lambda view: lookup(view) is not MISSING
            case Not(operand):
                return _negate(self.condition(operand))
            case And(parts):
                return _all_of(tuple(map(self.condition, parts)))
            case Or(parts):
                return _any_of(tuple(map(self.condition, parts)))
            case _:
                assert_never(node)

    def _comparison(self, node: Comparison) -> MessageCondition:
        sign, left, right = node.sign, self.value(node.left), self.value(node.right)
        known = self._known(node.right)
        if type(known) in _COMPARED_AT_ONCE and not self._is_known(node.left):
            return _compare_with(known, left, node)

        def comparison(view: MessageView) -> bool | None:
            left_value, right_value = left(view), right(view)
            try:
                return compare(sign, left_value, right_value)
            except FilterError as problem:
                raise _error_inside(node, problem) from None

        if not (self._is_known(node.left) and self._is_known(node.right)):
            return comparison
        try:  # it needs no message, e.g. 1 = 1
            answer = compare(sign, self._known(node.left), known)
        except FilterError:
            return comparison  # it fails for every message
        return lambda _: answer

    def _in(self, node: In) -> MessageCondition:
        left, items, negated = self.value(node.left), tuple(map(self.value, node.items)), node.negated
        known = [self._known(item) for item in node.items]
        texts = frozenset(known) if all(type(item) is str for item in known) else None

        def membership(view: MessageView) -> bool | None:
            value = left(view)
            if value is None:
                return None
            if texts is not None and type(value) is str:
                return (value in texts) is not negated
            candidates = (item(view) for item in items)
            return any(_equal(value, candidate, node) for candidate in candidates) is not negated

        return membership

    def _like(self, node: Like) -> MessageCondition:
        left, pattern, negated = self.value(node.left), self.value(node.pattern), node.negated
        escape = None if node.escape is None else self.value(node.escape)
        known = self._known_pattern(node)
        if known is None:
            self.other_patterns += 1
        else:
            self.known_patterns.append(known.length)

        def likeness(view: MessageView) -> bool | None:
            value = left(view)
            if known is not None and type(value) is str:
                return known.matches(value) is not negated
            operands = (value, pattern(view)) if escape is None else (value, pattern(view), escape(view))
            if None in operands:
                return None
            try:
                return _is_like(*operands) is not negated
            except FilterError as problem:
                raise _error_inside(node, problem) from None

        return likeness

    def _known_pattern(self, node: Like) -> LikePattern | None:
        """The pattern, if no message decides it; an invalid one is refused at once."""
        pattern, escape = self._known(node.pattern), None if node.escape is None else self._known(node.escape)
        try:
            if type(pattern) is str and (node.escape is None or type(escape) is str):
                return like_pattern(pattern, escape)
            if type(escape) is str:
                like_pattern("", escape)
        except FilterError as problem:
            raise SqlError(f"{problem}, in: {write(node)}") from None
        return None

    # --- values ------------------------------------------------------------------------------------

    def value(self, node: Expression) -> ValueReader:
        match node:
            case Constant() | ParameterRef():
                known = self._known(node)
                return lambda _: known
            case Property("user", name):
                return read_user(name.lower())
            case Property() | NamedProperty():
                return readable(self._lookup(node))
            case NewId():
                new_id = self._new_id
                return lambda _: new_id()
            case Signed(sign, operand):
                return self._signed(node, sign, self.value(operand))
            case Chain(first, rest):
                return self._chain(node, self.value(first), [(sign, self.value(part)) for sign, part in rest])
            case _:
                assert_never(node)

    def _signed(self, node: Signed, sign: str, operand: ValueReader) -> ValueReader:
        def with_sign(view: MessageView) -> Value:
            value = operand(view)
            try:
                return apply_sign(sign, value)
            except FilterError as problem:
                raise _error_inside(node, problem) from None

        return with_sign

    def _chain(self, node: Chain, first: ValueReader, rest: list[tuple[str, ValueReader]]) -> ValueReader:
        def calculation(view: MessageView) -> Value:
            result = first(view)
            for sign, operand in rest:
                value = operand(view)
                try:
                    result = calculate(sign, result, value)
                except FilterError as problem:
                    raise _error_inside(node, problem) from None
            return result

        return calculation

    def _is_known(self, node: Expression) -> bool:
        return isinstance(node, Constant | ParameterRef)

    def _known(self, node: Expression) -> Value:
        """The value that does not depend on the message; None if there is none."""
        if isinstance(node, Constant):
            return node.value
        if not isinstance(node, ParameterRef):
            return None
        name = node.name.lower()
        if name not in self._parameters:
            raise SqlError(f"parameter @{node.name} has no value")
        return parameter_value(f"@{node.name}", self._parameters[name])

    # --- properties --------------------------------------------------------------------------------

    def _lookup(self, what: Property | NamedProperty) -> ValueReader:
        """A function that reads the property from a view, or returns `MISSING`."""
        if isinstance(what, NamedProperty):
            return lookup_by_value(self.value(what.name), what)
        return lookup_of(what.scope, what.name)


# --- answers ---------------------------------------------------------------------------------------


def _all_of(parts: tuple[MessageCondition, ...]) -> MessageCondition:
    def conjunction(view: MessageView) -> bool | None:
        answer: bool | None = True
        for part in parts:
            found = part(view)
            if found is False:
                return False
            if found is None:
                answer = None
        return answer

    return conjunction


def _any_of(parts: tuple[MessageCondition, ...]) -> MessageCondition:
    def disjunction(view: MessageView) -> bool | None:
        answer: bool | None = False
        for part in parts:
            found = part(view)
            if found:
                return True
            if found is None:
                answer = None
        return answer

    return disjunction


def _negate(operand: MessageCondition) -> MessageCondition:
    def negation(view: MessageView) -> bool | None:
        answer = operand(view)
        return None if answer is None else not answer

    return negation


def _is_null(lookup: ValueReader, negated: bool) -> MessageCondition:
    def is_null(view: MessageView) -> bool:
        value = lookup(view)
        return (value is None or value is MISSING) is not negated

    return is_null


def _compare_with(known: Value, left: ValueReader, node: Comparison) -> MessageCondition:
    """The most common condition, `x = constant`, without checking kinds where the types are clear."""
    sign, holds, same_kind = node.sign, COMPARISONS[node.sign], _COMPARED_AT_ONCE[type(known)]

    def comparison(view: MessageView) -> bool | None:
        value = left(view)
        if type(value) in same_kind:
            return holds(value, known)
        try:
            return compare(sign, value, known)
        except FilterError as problem:
            raise _error_inside(node, problem) from None

    return comparison


_COMPARED_AT_ONCE: dict[type, frozenset[type]] = {
    str: frozenset({str}),
    int: frozenset(INTEGERS),
    float: frozenset(FLOATS),
}


def _equal(value: Value, candidate: Value, node: In) -> bool:
    """Whether an item of IN equals the value; an unknown item equals nothing, only the left side can be unknown."""
    try:
        return compare("=", value, candidate) is True
    except FilterError as problem:
        raise _error_inside(node, problem) from None


def _is_like(value: Value, pattern: Value, escape: Value = None) -> bool:
    for operand in (value, pattern) if escape is None else (value, pattern, escape):
        if kind_of(operand) is not ValueKind.TEXT:
            raise FilterError(f"LIKE is for texts, not {kind_of(operand)}")
    return like_pattern(str(pattern), None if escape is None else str(escape)).matches(str(value))


def _error_inside(node: Expression | Predicate, problem: FilterError) -> FilterError:
    return FilterError(f"{problem}, in: {write(node)}")


@dataclass(frozen=True, slots=True)
class CompiledFilter:
    text: str
    matches: MessageCondition
    """True, False or None (unknown) for a message; only True selects it. May raise `FilterError`."""
    known_patterns: tuple[int, ...] = ()
    """The lengths of its constant LIKE patterns: they decide how long a search takes."""
    other_patterns: int = 0
    """The number of LIKEs whose pattern depends on the message."""


def compile_filter(
    text: str, parameters: Mapping[str, object] | None = None, *, new_id: Callable[[], UUID] = uuid4
) -> CompiledFilter:
    """Compile a filter; raises `SqlError` if the text is not a filter.

    Parameters may be named with or without their @. `new_id` implements `newid()`.
    """
    compiler = Compiler(parameters or {}, new_id)
    condition = compiler.condition(parse_filter(text))
    return CompiledFilter(text, condition, tuple(compiler.known_patterns), compiler.other_patterns)
