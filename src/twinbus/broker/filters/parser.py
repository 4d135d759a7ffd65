"""Parse a filter or an action. The grammar is in docs/reference/sql-filters.md.

A bracket may contain a condition or a value, and which one is known only at its end. So the same functions parse both,
weakest operator first, and every operator checks that its operands are of the right sort.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from twinbus.broker.filters.rule_errors import SqlError
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
    Remove,
    Scope,
    Set,
    Signed,
    Statement,
)
from twinbus.broker.filters.tokenizer import INTEGER_LIMIT, SqlToken, TokenKind, tokenize

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
    """Parse a condition; raises `SqlError` with the position of the problem."""
    return _Parser(text, "a filter").whole_condition()


def parse_action(text: str) -> tuple[Statement, ...]:
    """Parse the statements of an action; raises `SqlError` with the position of the problem."""
    return _Parser(text, "an action").statements()


class _Parser:
    def __init__(self, text: str, what: str) -> None:
        if len(text) > TEXT_LENGTH:
            raise SqlError(f"{what} has at most {TEXT_LENGTH} characters, this one {len(text)}")
        if not text.strip():
            raise SqlError(f"{what} cannot be empty")
        self._text = text
        self._tokens = tokenize(text)
        self._next = 0
        self._depth = 0

    # --- tokens ------------------------------------------------------------------------------------

    @property
    def _current(self) -> SqlToken:
        return self._tokens[self._next]

    def _advance(self) -> SqlToken:
        token = self._current
        self._next += token.kind is not TokenKind.END
        return token

    def _is(self, kind: TokenKind, *values: str) -> bool:
        return self._current.kind is kind and (not values or self._current.value in values)

    def _took(self, kind: TokenKind, *values: str) -> bool:
        if self._is(kind, *values):
            self._advance()
            return True
        return False

    def _take(self, kind: TokenKind, value: str) -> None:
        if not self._took(kind, value):
            raise self._error(f"{value} is expected")

    def _error(self, problem: str, token: SqlToken | None = None) -> SqlError:
        return SqlError(problem, self._text, (token or self._current).at)

    # --- statements --------------------------------------------------------------------------------

    def statements(self) -> tuple[Statement, ...]:
        found: list[Statement] = []
        while not self._is(TokenKind.END):
            if len(found) == STATEMENTS:
                raise self._error(f"an action has at most {STATEMENTS} statements")
            found.append(self._statement())
            self._took(TokenKind.SIGN, ";")
        return tuple(found)

    def _statement(self) -> Statement:
        if self._took(TokenKind.KEYWORD, "SET"):
            target = self._property()
            self._take(TokenKind.SIGN, "=")
            start = self._current
            return Set(target, self._value(self._any_of(), start))
        if self._took(TokenKind.KEYWORD, "REMOVE"):
            start = self._current
            target = self._property()
            if target.scope == "sys":
                raise self._error("a system property can be SET, but not removed", start)
            return Remove(target)
        raise self._error("SET or REMOVE is expected")

    # --- conditions --------------------------------------------------------------------------------

    def whole_condition(self) -> Predicate:
        start = self._current
        condition = self._condition(self._any_of(), start)
        if not self._is(TokenKind.END):
            raise self._error("AND, OR or the end is expected")
        return condition

    def _condition(self, node: _Node, start: SqlToken) -> Predicate:
        if isinstance(node, Predicate):
            return node
        raise self._error("a condition is expected, such as x = TRUE; this is only a value", start)

    def _value(self, node: _Node, start: SqlToken) -> Expression:
        if isinstance(node, Expression):
            return node
        raise self._error("a value is expected; this is a condition", start)

    def _any_of(self) -> _Node:
        start = self._current
        first = self._all_of()
        if not self._is(TokenKind.KEYWORD, "OR"):
            return first
        parts = [self._condition(first, start)]
        while self._took(TokenKind.KEYWORD, "OR"):
            start = self._current
            parts.append(self._condition(self._all_of(), start))
        return Or(tuple(parts))

    def _all_of(self) -> _Node:
        start = self._current
        first = self._negation()
        if not self._is(TokenKind.KEYWORD, "AND"):
            return first
        parts = [self._condition(first, start)]
        while self._took(TokenKind.KEYWORD, "AND"):
            start = self._current
            parts.append(self._condition(self._negation(), start))
        return And(tuple(parts))

    def _negation(self) -> _Node:
        if not self._took(TokenKind.KEYWORD, "NOT"):
            return self._comparison()
        self._deeper()
        start = self._current
        operand = self._condition(self._negation(), start)
        self._depth -= 1
        return Not(operand)

    def _comparison(self) -> _Node:
        start = self._current
        left = self._sum()
        if self._is(TokenKind.SIGN, *_COMPARISONS):
            sign = str(self._advance().value)
            return Comparison(sign, self._value(left, start), self._operand())
        if self._took(TokenKind.KEYWORD, "IS"):
            negated = self._took(TokenKind.KEYWORD, "NOT")
            self._take(TokenKind.KEYWORD, "NULL")
            return IsNull(self._whole_property(left, start), negated)
        return self._membership(left, start)

    def _membership(self, left: _Node, start: SqlToken) -> _Node:
        negated = self._took(TokenKind.KEYWORD, "NOT")
        if self._took(TokenKind.KEYWORD, "IN"):
            return In(self._value(left, start), self._items(), negated)
        if self._took(TokenKind.KEYWORD, "LIKE"):
            pattern = self._operand()
            escape = self._operand() if self._took(TokenKind.KEYWORD, "ESCAPE") else None
            return Like(self._value(left, start), pattern, escape, negated)
        if negated:
            raise self._error("IN or LIKE is expected")
        return left

    def _items(self) -> tuple[Expression, ...]:
        self._take(TokenKind.SIGN, "(")
        items = [self._operand()]
        while self._took(TokenKind.SIGN, ","):
            items.append(self._operand())
        self._take(TokenKind.SIGN, ")")
        return tuple(items)

    def _whole_property(self, node: _Node, start: SqlToken) -> Property | NamedProperty:
        if isinstance(node, Property | NamedProperty):
            return node
        raise self._error("a property is expected", start)

    # --- values ------------------------------------------------------------------------------------

    def _operand(self) -> Expression:
        start = self._current
        return self._value(self._sum(), start)

    def _sum(self) -> _Node:
        start = self._current
        first = self._product()
        rest: list[tuple[str, Expression]] = []
        while self._is(TokenKind.SIGN, "+", "-"):
            sign, term = str(self._advance().value), self._current
            rest.append((sign, self._value(self._product(), term)))
        return Chain(self._value(first, start), tuple(rest)) if rest else first

    def _product(self) -> _Node:
        start = self._current
        first = self._signed()
        rest: list[tuple[str, Expression]] = []
        while self._is(TokenKind.SIGN, "*", "/", "%"):
            sign, factor = str(self._advance().value), self._current
            rest.append((sign, self._value(self._signed(), factor)))
        return Chain(self._value(first, start), tuple(rest)) if rest else first

    def _signed(self) -> _Node:
        if not self._is(TokenKind.SIGN, "+", "-"):
            return self._primary()
        sign = str(self._advance().value)
        if sign == "-" and self._is(TokenKind.NUMBER):
            value = self._advance().value
            assert not isinstance(value, str)
            return Constant(-value)
        self._deeper()
        start = self._current
        operand = self._value(self._signed(), start)
        self._depth -= 1
        return Signed(sign, operand)

    def _primary(self) -> _Node:
        token = self._current
        match token.kind:
            case TokenKind.NUMBER | TokenKind.TEXT:
                return self._constant()
            case TokenKind.PARAMETER:
                return ParameterRef(str(self._advance().value))
            case TokenKind.NAME if self._tokens[self._next + 1][:2] == (TokenKind.SIGN, "("):
                return self._function()
            case TokenKind.NAME | TokenKind.QUOTED:
                return self._property()
            case TokenKind.KEYWORD:
                return self._keyword()
            case TokenKind.SIGN if token.value == "(":
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
        self._take(TokenKind.SIGN, "(")
        start = self._current
        what = self._whole_property(self._sum(), start)
        self._take(TokenKind.SIGN, ")")
        return Exists(what)

    def _bracketed(self) -> _Node:
        self._deeper()
        self._take(TokenKind.SIGN, "(")
        node = self._any_of()
        self._take(TokenKind.SIGN, ")")
        self._depth -= 1
        return node

    def _function(self) -> Expression:
        name = self._advance()
        self._deeper()
        self._take(TokenKind.SIGN, "(")
        match str(name.value).lower():
            case "newid":
                call: Expression = NewId()
            case "property" | "p":
                call = NamedProperty(self._operand())
            case _:
                raise self._error("the functions are newid(), property(name) and p(name)", name)
        self._take(TokenKind.SIGN, ")")
        self._depth -= 1
        return call

    def _property(self) -> Property:
        name = self._name()
        if not self._took(TokenKind.SIGN, "."):
            return Property("user", str(name.value))
        scope = _SCOPES.get(str(name.value).lower())
        if scope is None:
            raise self._error("in front of a dot is sys or user; a name with a dot is written in [ ]", name)
        return Property(scope, str(self._name().value))

    def _name(self) -> SqlToken:
        if self._is(TokenKind.NAME) or self._is(TokenKind.QUOTED):
            return self._advance()
        if self._is(TokenKind.KEYWORD):
            raise self._error(f"{self._current.value} is a keyword; a property called so is written in [ ]")
        raise self._error("the name of a property is expected")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH:
            raise self._error(f"more than {DEPTH} brackets, signs or NOTs inside each other")
