"""The text of rules: what is refused, why, and where."""

from __future__ import annotations

import pytest
from written_actions import write_action

from twinbus.broker.filters.actions import compile_action
from twinbus.broker.filters.compiler import compile_filter
from twinbus.broker.filters.formatter import write
from twinbus.broker.filters.parser import parse_action, parse_filter
from twinbus.broker.filters.rule_errors import SqlError
from twinbus.broker.filters.syntax import And, Chain, Comparison, Constant, Not, Or, Property


@pytest.mark.parametrize(
    ("text", "problem", "column"),
    [
        ("a = ", "a value is expected", 5),
        ("a = 'x", "a text without its closing '", 5),
        ("[a = 1", "a name without its closing ]", 1),
        ('"a = 1', 'a name without its closing "', 1),
        ("[] = 1", "a name is empty", 1),
        ("(a = 1", ") is expected", 7),
        ("a = 1)", "AND, OR or the end is expected", 6),
        ("a", "a condition is expected", 1),
        ("a = 1 AND b", "a condition is expected", 11),
        ("b OR a = 1", "a condition is expected", 1),
        ("NOT a", "a condition is expected", 5),
        ("(a = 1) = TRUE", "a value is expected; this is a condition", 1),
        ("1 + (a = 1) = 2", "a value is expected; this is a condition", 5),
        ("a = b = c", "AND, OR or the end is expected", 7),
        ("1 IS NULL", "a property is expected", 1),
        ("a + b IS NULL", "a property is expected", 1),
        ("EXISTS('a')", "a property is expected", 8),
        ("EXISTS a", "( is expected", 8),
        ("a NOT 3", "IN or LIKE is expected", 7),
        ("a IN ()", "a value is expected", 7),
        ("a IN (1, )", "a value is expected", 10),
        ("a IS 1", "NULL is expected", 6),
        ("order.id = 1", "in front of a dot is sys or user", 1),
        ("like = 1", "a property called LIKE is written in [ ]", 1),
        ("user.set = 1", "SET is a keyword", 6),
        ("sys. = 1", "the name of a property is expected", 6),
        ("_a = 1", "a name begins with a letter", 1),
        ("a-b# = 1", "no filter or action has this character", 4),
        ("²a = 1", "any other name goes in [ ]", 1),
        ("a² = 1", "a name has letters, digits and _ only", 1),
        ("12a = 1", "a number runs into a name", 1),
        ("a = 9223372036854775808", "does not fit in 64 bits", 5),
        ("a = -9223372036854775809", "does not fit in 64 bits", 6),
        ("a = 1E999", "too large", 5),
        ("a = 1.", "AND, OR or the end is expected", 6),
        ("sum(a) = 1", "the functions are newid(), property(name) and p(name)", 1),
        ("newid(1) = 1", ") is expected", 7),
        ("p() = 1", "a value is expected", 3),
        ("SET a = 1", "a property called SET is written in [ ]", 1),
        ("a = 1; b = 2", "AND, OR or the end is expected", 6),
        ("a = @", "no filter or action has this character", 5),
    ],
)
def test_a_text_that_is_no_filter_is_refused_where_it_stops_being_one(text: str, problem: str, column: int) -> None:
    with pytest.raises(SqlError) as caught:
        compile_filter(text)
    assert problem in str(caught.value)
    assert (caught.value.line, caught.value.column) == (1, column)


def test_the_place_is_reported_by_line_and_column() -> None:
    with pytest.raises(SqlError, match=r"at line 2, column 7: «# 1»") as caught:
        compile_filter("a = 1\nAND b # 1")
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = 1", "SET or REMOVE is expected"),
        ("SET a", "= is expected"),
        ("SET a = b = 1", "a value is expected; this is a condition"),
        ("SET 'a' = 1", "the name of a property is expected"),
        ("SET p('a') = 1", "= is expected"),
        ("REMOVE sys.Label", "a system property can be SET, but not removed"),
        ("REMOVE", "the name of a property is expected"),
        ("SET a = 1;;", "SET or REMOVE is expected"),
        ("SET a = 1, SET b = 2", "SET or REMOVE is expected"),
    ],
)
def test_a_text_that_is_no_action_is_refused(text: str, problem: str) -> None:
    with pytest.raises(SqlError) as caught:
        compile_action(text)
    assert problem in str(caught.value)


def test_statements_need_no_semicolon_between_them() -> None:
    assert parse_action("SET a = 1 REMOVE b SET c = 2") == parse_action("set a=1;remove b;set c=2;")


def test_a_text_of_1024_characters_is_read_and_one_more_is_not() -> None:
    filled = "a = '" + "x" * 1018 + "'"
    compile_filter(filled)
    for refused in (filled + " ", "SET " + filled):
        with pytest.raises(SqlError, match="at most 1024 characters"):
            compile_action(refused) if refused.startswith("SET") else compile_filter(refused)


def test_an_action_has_at_most_32_statements() -> None:
    assert len(compile_action("SET a = 1;" * 32).steps) == 32
    with pytest.raises(SqlError, match="at most 32 statements"):
        compile_action("SET a = 1;" * 33)


@pytest.mark.parametrize("text", ["", " \n\t "])
def test_an_empty_text_is_no_rule(text: str) -> None:
    with pytest.raises(SqlError, match="a filter cannot be empty"):
        compile_filter(text)
    with pytest.raises(SqlError, match="an action cannot be empty"):
        compile_action(text)


@pytest.mark.parametrize("opening", ["(", "NOT ", "a = -(", "a = - ", "a = + ", "p("])
def test_nesting_has_a_limit_that_is_reported(opening: str) -> None:
    with pytest.raises(SqlError, match="more than 50"):
        compile_filter((opening * 1024)[:1024] if "a =" not in opening else "a = " + opening[4:] * 400)


def test_fifty_brackets_are_read_and_a_long_chain_is_not_deep() -> None:
    compile_filter("(" * 50 + "1 = 1" + ")" * 50)
    compile_filter("1" + "+1" * 500 + "=501")
    compile_filter("1=1" + " OR 1=1" * 145)


@pytest.mark.parametrize(
    "text", [r"a LIKE 'x\' ESCAPE '\'", "a LIKE 'x' ESCAPE 'no'", "a LIKE b ESCAPE ''", "a LIKE @p ESCAPE '!'"]
)
def test_a_pattern_that_is_always_wrong_is_refused_at_once(text: str) -> None:
    with pytest.raises(SqlError, match="escape character"):
        compile_filter(text, {"p": "!"})


def test_operators_of_one_strength_are_one_chain() -> None:
    a, one = Property("user", "a"), Constant(1)
    assert parse_filter("a - 1 + a * 1 = 1") == Comparison(
        "=", Chain(a, (("-", one), ("+", Chain(a, (("*", one),))))), one
    )
    same = Comparison("=", a, one)
    assert parse_filter("a=1 OR NOT a=1 AND a=1 OR a=1") == Or((same, And((Not(same), same)), same))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("user.a!=1", "a <> 1"),
        ("not(a=1 or b=2)and c is not null", "NOT (a = 1 OR b = 2) AND c IS NOT NULL"),
        ("[x y]like'%''s'escape'\\'", "[x y] LIKE '%''s' ESCAPE '\\'"),
        ('"like" not in(-1,+@p,true,null)', "[like] NOT IN (-1, + @p, TRUE, NULL)"),
        ("(1+2)*3-(4-5)=p('a')", "(1 + 2) * 3 - (4 - 5) = property('a')"),
        ("exists(SYS.[label])", "EXISTS(sys.label)"),
    ],
)
def test_a_tree_is_written_one_way(text: str, written: str) -> None:
    assert write(parse_filter(text)) == written
    assert write_action(parse_action("SET a=-1.5 REMOVE [b c]")) == "SET a = -1.5; REMOVE [b c];"
