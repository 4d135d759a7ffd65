"""The specification's table of error classes (P4), cell by cell, and classifiers that replace a column of it."""

from __future__ import annotations

import pytest

from twinbus.errors import OptionsError
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.error_class import ErrorClass, SendKind, classifier_for, classify, documented
from twinbus.pairing.sending.failure import Failure, FailureKind

# "still down", "queue leaves rotation" and "down, report" are *down* for each role; "refused for good" is *raise*.
TABLE = """
| what happened             | primary send | ping | backlog send | syphon send |
| no answer in time         | down         | down | down         | down        |
| unreachable               | down         | down | down         | down        |
| timed out                 | down         | down | down         | down        |
| internal error            | down         | down | down         | down        |
| disabled                  | down         | down | down         | down        |
| quota exceeded            | down         | down | down         | down        |
| deleted                   | down         | down | down         | down        |
| not found                 | down         | down | down         | down        |
| not found, never seen     | raise        | down | down         | down        |
| busy                      | busy         | down | busy         | busy        |
| unauthorised              | raise        | down | down         | down        |
| not allowed               | raise        | down | down         | raise       |
| too large                 | raise        | down | raise        | raise       |
| rejected                  | raise        | down | raise        | raise       |
"""
HEADER, *ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.strip().splitlines()]
CELLS = [(row[0], role, cell) for row in ROWS for role, cell in zip(HEADER[1:], row[1:], strict=True)]
ALL_KINDS = list(FailureKind)


@pytest.mark.parametrize(("what", "role", "cell"), CELLS)
def test_the_error_class_is_what_the_table_says(what: str, role: str, cell: str) -> None:
    kind, _, known = what.partition(",")
    failure = Failure(FailureKind(kind), "so it is")
    assert classify(failure, SendKind(role), is_known=not known) is ErrorClass(cell)


def test_the_table_has_a_row_for_every_kind_of_failure_and_a_column_for_every_role() -> None:
    assert {row[0].partition(",")[0] for row in ROWS} == {kind.value for kind in FailureKind}
    assert HEADER[1:] == [role.value for role in SendKind]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_doubt_does_not_change_a_verdict(kind: FailureKind) -> None:
    for role in SendKind:
        assert classify(Failure(kind, "", in_doubt=True), role) is classify(Failure(kind, ""), role)


def judged(pair: Pair, kind: FailureKind, entity: str = "orders") -> ErrorClass:
    return pair.classify(pair.entity(entity), Failure(kind, "so it is"))


def pair_with(option: object = None) -> Pair:
    return Pair(Rules(), entities=["orders"], classifier=classifier_for(option))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_the_documented_classifier_raises_what_is_transient_and_leaves_the_rest_to_the_table(kind: FailureKind) -> None:
    transient = kind in (FailureKind.UNREACHABLE, FailureKind.INTERNAL)
    expected = ErrorClass.RAISE if transient else classify(Failure(kind, ""), SendKind.PRIMARY)
    assert judged(pair_with("documented"), kind) is expected


def test_a_time_out_counts_also_by_the_documented_rule() -> None:
    assert documented(Failure(FailureKind.NO_ANSWER, "")) is None
    assert judged(pair_with("documented"), FailureKind.NO_ANSWER) is ErrorClass.DOWN


@pytest.mark.parametrize("opinion", list(ErrorClass))
def test_a_classifier_of_the_user_is_believed(opinion: ErrorClass) -> None:
    pair = pair_with(lambda failure: opinion)
    assert {judged(pair, kind) for kind in FailureKind} == {opinion}


def test_a_classifier_without_an_opinion_leaves_it_to_the_table() -> None:
    pair = pair_with(lambda failure: ErrorClass.DOWN if failure.kind is FailureKind.UNAUTHORISED else None)
    assert judged(pair, FailureKind.UNAUTHORISED) is ErrorClass.DOWN
    assert judged(pair, FailureKind.TOO_LARGE) is ErrorClass.RAISE
    assert judged(pair, FailureKind.BUSY) is ErrorClass.BUSY


def test_not_found_is_a_typo_until_the_entity_was_declared_or_seen() -> None:
    pair = Pair(Rules(), entities=["Orders"])
    assert judged(pair, FailureKind.NOT_FOUND, "orders") is ErrorClass.DOWN
    assert judged(pair, FailureKind.NOT_FOUND, "ordrs") is ErrorClass.RAISE
    invoices = pair.entity("invoices")
    pair.sent(invoices, 1.0, 0, 1, 0.5)
    assert judged(pair, FailureKind.NOT_FOUND, "invoices") is ErrorClass.DOWN


@pytest.mark.parametrize("option", ["Documented", "", 7])
def test_a_classifier_is_documented_or_a_function_and_nothing_else(option: object) -> None:
    with pytest.raises(OptionsError, match="classifier must be"):
        classifier_for(option)  # type: ignore[arg-type]


def test_without_an_option_there_is_no_classifier() -> None:
    assert classifier_for(None) is None
