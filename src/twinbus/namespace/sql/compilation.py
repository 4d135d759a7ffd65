"""Turn a tree into functions that are given messages: everything that can be decided before is decided here, once.

A condition answers True, False or None (unknown); a value is None if it is unknown or null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, assert_never
from uuid import UUID

from twinbus.amqp.values import Value
from twinbus.namespace.sql.failures import FilterError, SqlError
from twinbus.namespace.sql.kinds import FLOATS, INTEGERS, Kind, kind_of, parameter_value
from twinbus.namespace.sql.operators import COMPARISONS, calculate, compare, signed
from twinbus.namespace.sql.patterns import Likeness, like
from twinbus.namespace.sql.readings import Reading, look_up, look_up_by_value, read_user, readable
from twinbus.namespace.sql.syntax import (
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
    Parameter,
    Predicate,
    Property,
    Signed,
)
from twinbus.namespace.sql.view import MISSING, MessageView
from twinbus.namespace.sql.writing import write

Answer: TypeAlias = Callable[[MessageView], bool | None]


class Compiler:
    """Knows what a tree does not say: the values of parameters, and where new ids come from."""

    def __init__(self, parameters: Mapping[str, object], new_id: Callable[[], UUID]) -> None:
        self._parameters = {name.removeprefix("@").lower(): value for name, value in parameters.items()}
        self._new_id = new_id
        self.known_patterns: list[int] = []
        """How long the patterns of LIKE are that no message decides."""
        self.other_patterns = 0
        """How many others there are."""

    # --- conditions --------------------------------------------------------------------------------

    def condition(self, node: Predicate) -> Answer:
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
                return self._exists(what)
            case Not(operand):
                return _negated(self.condition(operand))
            case And(parts):
                return _all_of(tuple(map(self.condition, parts)))
            case Or(parts):
                return _any_of(tuple(map(self.condition, parts)))
            case _:
                assert_never(node)

    def _comparison(self, node: Comparison) -> Answer:
        sign, left, right = node.sign, self.value(node.left), self.value(node.right)
        known = self._known(node.right)
        if type(known) in _COMPARED_AT_ONCE and not self._is_known(node.left):
            return _compared_with(known, left, node)

        def comparison(view: MessageView) -> bool | None:
            left_value, right_value = left(view), right(view)
            try:
                return compare(sign, left_value, right_value)
            except FilterError as problem:
                raise _inside(node, problem) from None

        if self._is_known(node.left) and self._is_known(node.right):
            return _decided(comparison)
        return comparison

    def _in(self, node: In) -> Answer:
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

    def _like(self, node: Like) -> Answer:
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
                raise _inside(node, problem) from None

        return likeness

    def _known_pattern(self, node: Like) -> Likeness | None:
        """The pattern, if no message decides it; one that is wrong whatever the message is refused at once."""
        pattern, escape = self._known(node.pattern), None if node.escape is None else self._known(node.escape)
        try:
            if type(pattern) is str and (node.escape is None or type(escape) is str):
                return like(pattern, escape)
            if type(escape) is str:
                like("", escape)
        except FilterError as problem:
            raise SqlError(f"{problem}, in: {write(node)}") from None
        return None

    def _exists(self, what: Property | NamedProperty) -> Answer:
        lookup = self._lookup(what)
        return lambda view: lookup(view) is not MISSING

    # --- values ------------------------------------------------------------------------------------

    def value(self, node: Expression) -> Reading:
        match node:
            case Constant() | Parameter():
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

    def _signed(self, node: Signed, sign: str, operand: Reading) -> Reading:
        def with_sign(view: MessageView) -> Value:
            value = operand(view)
            try:
                return signed(sign, value)
            except FilterError as problem:
                raise _inside(node, problem) from None

        return with_sign

    def _chain(self, node: Chain, first: Reading, rest: list[tuple[str, Reading]]) -> Reading:
        def calculation(view: MessageView) -> Value:
            result = first(view)
            for sign, operand in rest:
                value = operand(view)
                try:
                    result = calculate(sign, result, value)
                except FilterError as problem:
                    raise _inside(node, problem) from None
            return result

        return calculation

    def _is_known(self, node: Expression) -> bool:
        return isinstance(node, Constant | Parameter)

    def _known(self, node: Expression) -> Value:
        """The value that does not depend on the message; None also if there is none."""
        if isinstance(node, Constant):
            return node.value
        if not isinstance(node, Parameter):
            return None
        name = node.name.lower()
        if name not in self._parameters:
            raise SqlError(f"parameter @{node.name} has no value")
        return parameter_value(f"@{node.name}", self._parameters[name])

    # --- properties --------------------------------------------------------------------------------

    def _lookup(self, what: Property | NamedProperty) -> Reading:
        """A function that asks the view, whose answer may be `MISSING`."""
        if isinstance(what, NamedProperty):
            return look_up_by_value(self.value(what.name), what)
        return look_up(what.scope, what.name)


# --- answers ---------------------------------------------------------------------------------------


def _all_of(parts: tuple[Answer, ...]) -> Answer:
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


def _any_of(parts: tuple[Answer, ...]) -> Answer:
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


def _negated(operand: Answer) -> Answer:
    def negation(view: MessageView) -> bool | None:
        answer = operand(view)
        return None if answer is None else not answer

    return negation


def _is_null(lookup: Reading, negated: bool) -> Answer:
    def is_null(view: MessageView) -> bool:
        value = lookup(view)
        return (value is None or value is MISSING) is not negated

    return is_null


def _compared_with(known: Value, left: Reading, node: Comparison) -> Answer:
    """The commonest condition of all, `x = constant`, without asking for kinds where there is no doubt."""
    sign, holds, same_kind = node.sign, COMPARISONS[node.sign], _COMPARED_AT_ONCE[type(known)]

    def comparison(view: MessageView) -> bool | None:
        value = left(view)
        if type(value) in same_kind:
            return holds(value, known)
        try:
            return compare(sign, value, known)
        except FilterError as problem:
            raise _inside(node, problem) from None

    return comparison


_COMPARED_AT_ONCE: dict[type, frozenset[type]] = {
    str: frozenset({str}),
    int: frozenset(INTEGERS),
    float: frozenset(FLOATS),
}


def _equal(value: Value, candidate: Value, node: In) -> bool:
    """Whether an item of IN is the value; an unknown one equals nothing, only the left side can be unknown."""
    try:
        return compare("=", value, candidate) is True
    except FilterError as problem:
        raise _inside(node, problem) from None


def _is_like(value: Value, pattern: Value, escape: Value = None) -> bool:
    for operand in (value, pattern) if escape is None else (value, pattern, escape):
        if kind_of(operand) is not Kind.TEXT:
            raise FilterError(f"LIKE is for texts, not {kind_of(operand)}")
    return like(str(pattern), None if escape is None else str(escape)).matches(str(value))


def _decided(comparison: Answer) -> Answer:
    """The answer of a comparison that asks no message, such as 1 = 1."""
    try:
        answer = comparison(_NO_MESSAGE)
    except FilterError:
        return comparison  # every message will be told
    return lambda _: answer


class _NoMessage:
    def system(self, name: str, /) -> Value:
        raise AssertionError(name)

    def user(self, name: str, /) -> Value:
        raise AssertionError(name)


_NO_MESSAGE = _NoMessage()


def _inside(node: Expression | Predicate, problem: FilterError) -> FilterError:
    return FilterError(f"{problem}, in: {write(node)}")
