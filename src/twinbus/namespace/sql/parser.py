"""Read a filter or an action into its tree. The grammar is written down in docs/reference/sql-filters.md.

A bracket may hold a condition or a value, and which is known only at its end. So both are read by the same
functions, weakest operator first, and every operator then asks for the sort of operand that it needs.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from twinbus.namespace.sql.failures import SqlError
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
    Remove,
    Scope,
    Set,
    Signed,
    Statement,
)
from twinbus.namespace.sql.tokens import INTEGER_LIMIT, Sort, Token, cut

TEXT_LENGTH: Final = 1024
"""Characters of a filter or an action."""
STATEMENTS: Final = 32
"""Statements of an action."""
DEPTH: Final = 50
"""Brackets, signs, NOTs and functions inside each other."""

_Node: TypeAlias = Expression | Predicate

_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
_SCOPES: Final[dict[str, Scope]] = {"sys": "sys", "user": "user"}


def parse_filter(text: str) -> Predicate:
    """The condition; raises `SqlError`, which says where the text stops making sense."""
    reader = _Reader(text, "a filter")
    return reader.whole_condition()


def parse_action(text: str) -> tuple[Statement, ...]:
    """The statements in order; raises `SqlError`, which says where the text stops making sense."""
    reader = _Reader(text, "an action")
    return reader.statements()


class _Reader:
    def __init__(self, text: str, what: str) -> None:
        if len(text) > TEXT_LENGTH:
            raise SqlError(f"{what} has at most {TEXT_LENGTH} characters, this one {len(text)}")
        if not text.strip():
            raise SqlError(f"{what} cannot be empty")
        self._text = text
        self._tokens = cut(text)
        self._next = 0
        self._depth = 0

    # --- tokens ------------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        token = self._token
        self._next += token.sort is not Sort.END
        return token

    def _is(self, sort: Sort, *values: str) -> bool:
        return self._token.sort is sort and (not values or self._token.value in values)

    def _took(self, sort: Sort, *values: str) -> bool:
        if self._is(sort, *values):
            self._advance()
            return True
        return False

    def _take(self, sort: Sort, value: str) -> None:
        if not self._took(sort, value):
            raise self._error(f"{value} is expected")

    def _error(self, problem: str, token: Token | None = None) -> SqlError:
        return SqlError(problem, self._text, (token or self._token).at)

    # --- statements --------------------------------------------------------------------------------

    def statements(self) -> tuple[Statement, ...]:
        found: list[Statement] = []
        while not self._is(Sort.END):
            if len(found) == STATEMENTS:
                raise self._error(f"an action has at most {STATEMENTS} statements")
            found.append(self._statement())
            self._took(Sort.SIGN, ";")
        return tuple(found)

    def _statement(self) -> Statement:
        if self._took(Sort.KEYWORD, "SET"):
            target = self._property()
            self._take(Sort.SIGN, "=")
            start = self._token
            return Set(target, self._value(self._any_of(), start))
        if self._took(Sort.KEYWORD, "REMOVE"):
            start = self._token
            target = self._property()
            if target.scope == "sys":
                raise self._error("a system property can be SET, but not removed", start)
            return Remove(target)
        raise self._error("SET or REMOVE is expected")

    # --- conditions --------------------------------------------------------------------------------

    def whole_condition(self) -> Predicate:
        start = self._token
        condition = self._condition(self._any_of(), start)
        if not self._is(Sort.END):
            raise self._error("AND, OR or the end is expected")
        return condition

    def _condition(self, node: _Node, start: Token) -> Predicate:
        if isinstance(node, Predicate):
            return node
        raise self._error("a condition is expected, such as x = TRUE; this is only a value", start)

    def _value(self, node: _Node, start: Token) -> Expression:
        if isinstance(node, Expression):
            return node
        raise self._error("a value is expected; this is a condition", start)

    def _any_of(self) -> _Node:
        start = self._token
        first = self._all_of()
        if not self._is(Sort.KEYWORD, "OR"):
            return first
        parts = [self._condition(first, start)]
        while self._took(Sort.KEYWORD, "OR"):
            start = self._token
            parts.append(self._condition(self._all_of(), start))
        return Or(tuple(parts))

    def _all_of(self) -> _Node:
        start = self._token
        first = self._negation()
        if not self._is(Sort.KEYWORD, "AND"):
            return first
        parts = [self._condition(first, start)]
        while self._took(Sort.KEYWORD, "AND"):
            start = self._token
            parts.append(self._condition(self._negation(), start))
        return And(tuple(parts))

    def _negation(self) -> _Node:
        if not self._took(Sort.KEYWORD, "NOT"):
            return self._comparison()
        self._deeper()
        start = self._token
        operand = self._condition(self._negation(), start)
        self._depth -= 1
        return Not(operand)

    def _comparison(self) -> _Node:
        start = self._token
        left = self._sum()
        if self._is(Sort.SIGN, *_COMPARISONS):
            sign = str(self._advance().value)
            return Comparison(sign, self._value(left, start), self._operand())
        if self._took(Sort.KEYWORD, "IS"):
            negated = self._took(Sort.KEYWORD, "NOT")
            self._take(Sort.KEYWORD, "NULL")
            return IsNull(self._whole_property(left, start), negated)
        return self._membership(left, start)

    def _membership(self, left: _Node, start: Token) -> _Node:
        negated = self._took(Sort.KEYWORD, "NOT")
        if self._took(Sort.KEYWORD, "IN"):
            return In(self._value(left, start), self._items(), negated)
        if self._took(Sort.KEYWORD, "LIKE"):
            pattern = self._operand()
            escape = self._operand() if self._took(Sort.KEYWORD, "ESCAPE") else None
            return Like(self._value(left, start), pattern, escape, negated)
        if negated:
            raise self._error("IN or LIKE is expected")
        return left

    def _items(self) -> tuple[Expression, ...]:
        self._take(Sort.SIGN, "(")
        items = [self._operand()]
        while self._took(Sort.SIGN, ","):
            items.append(self._operand())
        self._take(Sort.SIGN, ")")
        return tuple(items)

    def _whole_property(self, node: _Node, start: Token) -> Property | NamedProperty:
        if isinstance(node, Property | NamedProperty):
            return node
        raise self._error("a property is expected", start)

    # --- values ------------------------------------------------------------------------------------

    def _operand(self) -> Expression:
        start = self._token
        return self._value(self._sum(), start)

    def _sum(self) -> _Node:
        start = self._token
        first = self._product()
        rest: list[tuple[str, Expression]] = []
        while self._is(Sort.SIGN, "+", "-"):
            sign, term = str(self._advance().value), self._token
            rest.append((sign, self._value(self._product(), term)))
        return Chain(self._value(first, start), tuple(rest)) if rest else first

    def _product(self) -> _Node:
        start = self._token
        first = self._signed()
        rest: list[tuple[str, Expression]] = []
        while self._is(Sort.SIGN, "*", "/", "%"):
            sign, factor = str(self._advance().value), self._token
            rest.append((sign, self._value(self._signed(), factor)))
        return Chain(self._value(first, start), tuple(rest)) if rest else first

    def _signed(self) -> _Node:
        if not self._is(Sort.SIGN, "+", "-"):
            return self._primary()
        sign = str(self._advance().value)
        if sign == "-" and self._is(Sort.NUMBER):
            value = self._advance().value
            assert not isinstance(value, str)
            return Constant(-value)
        self._deeper()
        start = self._token
        operand = self._value(self._signed(), start)
        self._depth -= 1
        return Signed(sign, operand)

    def _primary(self) -> _Node:
        token = self._token
        match token.sort:
            case Sort.NUMBER | Sort.TEXT:
                return self._constant()
            case Sort.PARAMETER:
                return Parameter(str(self._advance().value))
            case Sort.NAME if self._tokens[self._next + 1][:2] == (Sort.SIGN, "("):
                return self._function()
            case Sort.NAME | Sort.QUOTED:
                return self._property()
            case Sort.KEYWORD:
                return self._keyword()
            case Sort.SIGN if token.value == "(":
                return self._bracketed()
            case _:
                raise self._error("a value is expected")

    def _constant(self) -> Constant:
        token = self._advance()
        if token.value == INTEGER_LIMIT and type(token.value) is int:
            raise self._error("an integer does not fit in 64 bits", token)
        return Constant(token.value)

    def _keyword(self) -> _Node:
        token = self._advance()
        match token.value:
            case "TRUE" | "FALSE":
                return Constant(token.value == "TRUE")
            case "NULL":
                return Constant(None)
            case "EXISTS":
                return self._exists()
            case keyword:
                raise self._error(f"a value is expected; a property called {keyword} is written in [ ]", token)

    def _exists(self) -> Exists:
        self._take(Sort.SIGN, "(")
        start = self._token
        what = self._whole_property(self._sum(), start)
        self._take(Sort.SIGN, ")")
        return Exists(what)

    def _bracketed(self) -> _Node:
        self._deeper()
        self._take(Sort.SIGN, "(")
        node = self._any_of()
        self._take(Sort.SIGN, ")")
        self._depth -= 1
        return node

    def _function(self) -> Expression:
        name = self._advance()
        self._deeper()
        self._take(Sort.SIGN, "(")
        match str(name.value).lower():
            case "newid":
                call: Expression = NewId()
            case "property" | "p":
                call = NamedProperty(self._operand())
            case _:
                raise self._error("the functions are newid(), property(name) and p(name)", name)
        self._take(Sort.SIGN, ")")
        self._depth -= 1
        return call

    def _property(self) -> Property:
        name = self._name()
        if not self._took(Sort.SIGN, "."):
            return Property("user", str(name.value))
        scope = _SCOPES.get(str(name.value).lower())
        if scope is None:
            raise self._error("in front of a dot is sys or user; a name with a dot is written in [ ]", name)
        return Property(scope, str(self._name().value))

    def _name(self) -> Token:
        if self._is(Sort.NAME) or self._is(Sort.QUOTED):
            return self._advance()
        if self._is(Sort.KEYWORD):
            raise self._error(f"{self._token.value} is a keyword; a property called so is written in [ ]")
        raise self._error("the name of a property is expected")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH:
            raise self._error(f"more than {DEPTH} brackets, signs or NOTs inside each other")
