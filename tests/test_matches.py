"""Every `match` says what becomes of everything else; over a closed set, by `assert_never`: mypy finds what is new."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "twinbus"

EVERYTHING_ELSE = {
    "pairing/failover.py (state, event)": "a table: what is not in it changes nothing, and a test tries every pair",
    "pairing/closing.py (state, event)": "the same",
    "amqp/session.py state": "a state that is an outcome is that outcome",
    "broker/filters/value_types.py value": "values of AMQP, of any type",
    "broker/core/commit_gate.py command": "commands that store something are few; the set of commands is open",
}
"""Where something is done with all other members of a closed set, and why."""


@cache
def trees() -> dict[str, ast.Module]:
    files = sorted(SOURCE.rglob("*.py"))
    return {file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def own_classes() -> set[str]:
    """Names of classes that are not exceptions; those of enums too."""
    found = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]

    def is_error(name: str) -> bool:
        return name.endswith(("Error", "Exception")) or any(is_error(base) for base in found.get(name, ()))

    return {name for name in found if not is_error(name)}


def matches() -> Iterator[tuple[str, ast.Match]]:
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Match):
                yield file, node


def is_about(pattern: ast.pattern, classes: set[str]) -> bool:
    """Whether all it names are these classes, or values of these enums."""
    match pattern:
        case ast.MatchOr(patterns) | ast.MatchSequence(patterns):
            return all(is_about(each, classes) for each in patterns)
        case ast.MatchClass(ast.Name(name)) | ast.MatchValue(ast.Attribute(ast.Name(name))):
            return name in classes
        case ast.MatchAs(None):
            return True
        case ast.MatchAs(inner) if inner is not None:
            return is_about(inner, classes)
        case ast.MatchSingleton(None):
            return True
        case _:
            return False


def takes_everything(case: ast.match_case) -> bool:
    pattern = case.pattern
    while isinstance(pattern, ast.MatchAs) and pattern.pattern is not None:
        pattern = pattern.pattern
    return isinstance(pattern, ast.MatchAs) and case.guard is None


def test_every_match_says_what_becomes_of_everything_else() -> None:
    silent = [f"{file}:{node.lineno}" for file, node in matches() if not takes_everything(node.cases[-1])]
    assert silent == []


def test_every_match_over_a_closed_set_ends_with_assert_never() -> None:
    classes = own_classes()
    closed = [
        (file, node)
        for file, node in matches()
        if all(is_about(case.pattern, classes) for case in node.cases)
        and any(
            isinstance(each, ast.MatchClass | ast.MatchValue) for case in node.cases for each in ast.walk(case.pattern)
        )
    ]
    assert len(closed) > 40
    open_ended = {
        f"{file} {ast.unparse(node.subject)}": node.lineno
        for file, node in closed
        if "assert_never" not in (end := ast.unparse(node.cases[-1])) and "raise" not in end
    }
    assert open_ended.keys() == EVERYTHING_ELSE.keys(), open_ended
