"""Rules for any text and any message: no crash, one meaning, one way to write it, one way to find it."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rule_message import RuleMessage
from seeds import examples
from sql_model import Model, Wrong
from written_actions import write_action

from twinbus.amqp.codec.types import Byte, Float32, Int, Long, Timestamp, UInt, ULong
from twinbus.broker.filters.actions import compile_action
from twinbus.broker.filters.compiler import Compiler, compile_filter
from twinbus.broker.filters.correlation import CorrelationCondition, CorrelationIndex
from twinbus.broker.filters.formatter import write
from twinbus.broker.filters.parser import parse_action, parse_filter
from twinbus.broker.filters.rule_errors import FilterError, SqlError
from twinbus.broker.filters.syntax import (
    And,
    Chain,
    Comparison,
    Constant,
    Exists,
    In,
    IsNull,
    Like,
    NamedProperty,
    Not,
    Or,
    ParameterRef,
    Property,
    Remove,
    Set,
    Signed,
)

# --- any text --------------------------------------------------------------------------------------

KEYWORDS = ["AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "ESCAPE", "EXISTS", "TRUE", "FALSE", "SET", "REMOVE"]
NAMES = ["sys", "user", "a", "label", "newid", "property", "p", "[a]", "[b]]", '"c"', "@p", "@", "[", '"']
CONSTANTS_WRITTEN = ["1", "2.5", "1E3", "9223372036854775808", "''", "'x'", "'%'", "'"]
SIGNS = ["=", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "(", ")", ",", ".", ";"]
WORDS = st.sampled_from(KEYWORDS) | st.sampled_from(NAMES) | st.sampled_from(CONSTANTS_WRITTEN) | st.sampled_from(SIGNS)
TEXTS = st.text(max_size=40) | st.lists(WORDS, max_size=25).map(" ".join) | st.lists(WORDS, max_size=25).map("".join)


@given(TEXTS)
@example("(" * 1024)
@example("NOT " * 256)
@example("a=" + "-" * 1000)
@example("p(" * 512)
@example("1" * 1024)
@example("a=1" + "+1" * 510)
def test_any_text_is_a_rule_or_an_sql_error(text: str) -> None:
    message = RuleMessage({"a": 1}, {"Label": "x"})
    with contextlib.suppress(SqlError, FilterError):
        assert compile_filter(text, {"p": "x"}).matches(message) in (True, False, None)
    with contextlib.suppress(SqlError, FilterError):
        compile_action(text, {"p": "x"}).apply(message)


# --- any tree --------------------------------------------------------------------------------------

SMALL_TEXTS = st.text("ab%_!", max_size=4)
NUMBERS = st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
CONSTANTS = st.builds(Constant, st.none() | st.booleans() | NUMBERS | SMALL_TEXTS)
USER_NAMES = st.sampled_from(["a", "b", "C", "like", "x y", "w]", 'q"'])
PROPERTIES = st.builds(Property, st.just("user"), USER_NAMES) | st.builds(
    Property, st.just("sys"), st.sampled_from(["Label", "To", "SequenceNumber"])
)
REFERENCES = PROPERTIES | st.builds(NamedProperty, USER_NAMES.map(Constant) | PROPERTIES)


def _is_read_so(signed: Signed) -> bool:
    """Not so a minus in front of a number: that is part of the number."""
    match signed:
        case Signed("-", Constant(value)) if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value).startswith("-")
        case _:
            return True


def _chains(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def chain(signs: str) -> st.SearchStrategy[Any]:
        rest = st.lists(st.tuples(st.sampled_from(signs), values), min_size=1, max_size=3).map(tuple)
        return st.builds(Chain, values, rest)

    return chain("+-") | chain("*/%")


VALUES: st.SearchStrategy[Any] = st.recursive(
    CONSTANTS | REFERENCES,
    lambda inner: st.builds(Signed, st.sampled_from("+-"), inner).filter(_is_read_so) | _chains(inner),
    max_leaves=5,
)
SIMPLE_CONDITIONS: st.SearchStrategy[Any] = (
    st.builds(Comparison, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), VALUES, VALUES)
    | st.builds(IsNull, REFERENCES, st.booleans())
    | st.builds(Exists, REFERENCES)
    | st.builds(In, VALUES, st.lists(VALUES, min_size=1, max_size=4).map(tuple), st.booleans())
    | st.builds(Like, VALUES, VALUES, st.none() | SMALL_TEXTS.map(Constant) | VALUES, st.booleans())
)


def _several(conditions: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(conditions, min_size=2, max_size=4).map(tuple)


CONDITIONS: st.SearchStrategy[Any] = st.recursive(
    SIMPLE_CONDITIONS,
    lambda inner: st.builds(Not, inner) | st.builds(And, _several(inner)) | st.builds(Or, _several(inner)),
    max_leaves=6,
)
STATEMENTS = st.builds(Set, PROPERTIES, VALUES) | st.builds(Remove, st.builds(Property, st.just("user"), USER_NAMES))


@given(CONDITIONS)
def test_a_written_filter_is_read_as_the_same_tree(tree: Any) -> None:
    written = write(tree)
    if len(written) <= 1024:
        assert parse_filter(written) == tree


@given(st.lists(STATEMENTS, min_size=1, max_size=5).map(tuple))
def test_a_written_action_is_read_as_the_same_statements(statements: Any) -> None:
    written = write_action(statements)
    if len(written) <= 1024:
        assert parse_action(written) == statements


@given(st.lists(WORDS, max_size=12).map(" ".join))
def test_a_filter_that_was_read_can_be_written_and_read_again(text: str) -> None:
    with contextlib.suppress(SqlError):
        tree = parse_filter(text)
        assert parse_filter(write(tree)) == tree


# --- any message -----------------------------------------------------------------------------------

SENT = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3).flatmap(lambda n: st.sampled_from([n, Int(n), Byte(n), Long(n), float(n), Float32(n)]))
    | st.sampled_from([ULong(2**64 - 1), UInt(7), Long(2**63 - 1), Long(-(2**63)), float("nan"), float("inf"), -0.0])
    | SMALL_TEXTS
    | st.sampled_from([UUID(int=1), UUID(int=2), Timestamp(0), Timestamp(5000), timedelta(seconds=5), timedelta()])
)
MESSAGES = st.tuples(
    st.dictionaries(USER_NAMES, SENT, max_size=5),
    st.fixed_dictionaries({}, optional={"Label": SMALL_TEXTS, "To": SMALL_TEXTS, "SequenceNumber": st.integers(0, 3)}),
)


def _outcome(ask: Any, *failures: type[Exception]) -> object:
    try:
        return ask()
    except failures:
        return "error"


@settings(max_examples=examples(400))
@given(CONDITIONS, MESSAGES)
def test_a_filter_answers_as_the_slow_model_does(tree: Any, message: tuple[dict[str, Any], dict[str, Any]]) -> None:
    with contextlib.suppress(SqlError):  # a pattern that no message can make right
        condition = Compiler({}, _no_id).condition(tree)
        quick = _outcome(lambda: condition(RuleMessage(*message)), FilterError)
        assert quick == _outcome(lambda: Model(*message).answer(tree), Wrong)


@given(st.sampled_from([1, "a", 2.5, True]), MESSAGES)
def test_a_parameter_is_worth_as_much_as_a_constant(value: Any, message: tuple[dict[str, Any], dict[str, Any]]) -> None:
    view = RuleMessage(*message)
    with_constant = Compiler({}, _no_id).condition(_about(Constant(value)))
    with_parameter = Compiler({"@P": value}, _no_id).condition(_about(ParameterRef("p")))
    assert _outcome(lambda: with_constant(view), FilterError) == _outcome(lambda: with_parameter(view), FilterError)


def _no_id() -> UUID:
    raise AssertionError


def _about(node: Any) -> Any:
    a = Property("user", "a")
    return Or((Comparison("<=", a, node), In(a, (node,)), Comparison("<>", node, a), Like(a, node)))


# --- the index -------------------------------------------------------------------------------------

ASKED = st.sampled_from(["x", "X", 1, 1.0, True, Int(2), 2.5, UUID(int=1), timedelta(seconds=5), float("nan")])
FILTERS = st.builds(
    CorrelationCondition,
    label=st.none() | st.sampled_from(["x", "y"]),
    to=st.none() | st.sampled_from(["x", "y"]),
    properties=st.dictionaries(st.sampled_from(["a", "B"]), ASKED, max_size=2),
)
STEPS = st.lists(st.tuples(st.integers(0, 6), st.none() | FILTERS), max_size=20)
MARKED = st.tuples(
    st.dictionaries(st.sampled_from(["A", "b"]), ASKED | st.none(), max_size=2),
    st.fixed_dictionaries({}, optional={"Label": st.sampled_from(["x", "y"]), "To": st.sampled_from(["x", "y"])}),
)


@given(STEPS, st.lists(MARKED, min_size=1, max_size=5))
def test_the_index_finds_what_asking_every_filter_finds(
    steps: list[tuple[int, CorrelationCondition | None]], messages: list[Any]
) -> None:
    index: CorrelationIndex[int] = CorrelationIndex()
    kept: dict[int, CorrelationCondition] = {}
    for rule, correlation in steps:
        if correlation is None:
            index.remove(rule)
            kept.pop(rule, None)
        else:
            index.add(rule, correlation)
            kept[rule] = correlation
    assert len(index) == len(kept)
    for message in messages:
        view = RuleMessage(*message)
        assert sorted(index.match(view)) == sorted(rule for rule, one in kept.items() if one.matches(view))


@pytest.mark.parametrize("asked", ["x", 1, True])
def test_a_correlation_filter_is_the_sql_filter_with_equal_signs(asked: Any) -> None:
    correlation = CorrelationCondition(label="x", properties={"color": asked})
    sql = compile_filter("sys.Label = 'x' AND color = @asked", {"asked": asked})
    for label in ("x", "y", None):
        view = RuleMessage({"Color": asked}, {"Label": label} if label else {})
        assert correlation.matches(view) is (sql.matches(view) is True)
