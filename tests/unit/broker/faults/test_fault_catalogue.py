"""The words for faults: what is taken, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.broker.faults.catalogue import KINDS, FaultPhase, read_fault
from twinbus.broker.faults.effects import Direction, OutageEffect, OutageMode, Restarting, Slow
from twinbus.broker.faults.scope import Scope
from twinbus.errors import OptionsError
from twinbus.units import parse_duration, short_duration

KIND_NAMES = {
    "no-send",
    "no-receive",
    "no-manage",
    "unreachable",
    "refuse",
    "busy",
    "slow",
    "late",
    "unanswered",
    "restart",
}


def problem_with(**values: Any) -> str:
    with pytest.raises(OptionsError) as refused:
        read_fault(values)
    return str(refused.value)


def test_the_vocabulary_is_the_promised_one() -> None:
    assert set(KINDS) == KIND_NAMES


@pytest.mark.parametrize("kind", sorted(KIND_NAMES))
def test_a_fault_reads_back_as_the_values_it_is_written_as(kind: str) -> None:
    needed = {"condition": "amqp:not-found"} if kind == "refuse" else {}
    fault = read_fault({"fault": kind, "entities": ["Orders"], "length_ms": 30_000, **needed})
    assert fault.scope == Scope(("Orders",))
    assert fault.length_ms == 30_000
    assert read_fault(fault.to_values()) == fault


def test_without_entities_pattern_and_length_it_is_everything_until_cleared() -> None:
    fault = read_fault({"fault": "no-send", "entities": None, "pattern": None, "length_ms": None})
    assert fault.scope.is_namespace
    assert fault.length_ms is None


def test_parameters_are_read_into_words() -> None:
    assert read_fault({"fault": "unreachable", "how": "silent"}).phases() == (
        FaultPhase(None, OutageEffect(OutageMode.SILENT)),
    )
    refuse = read_fault({"fault": "refuse", "condition": "amqp:not-found", "on": "sends", "count": 3})
    assert (refuse.parameters["on"], refuse.parameters["count"]) == (Direction.SENDS, 3)


def test_a_restart_is_unavailability_followed_by_slowness_and_never_for_ever() -> None:
    values = {"fault": "restart", "length_ms": 5_000, "slow_for_ms": 60_000, "delay_ms": 250}
    assert read_fault(values).phases() == (FaultPhase(5_000, Restarting()), FaultPhase(60_000, Slow(250)))
    assert read_fault({"fault": "restart", "slow_for_ms": 0}).phases() == (FaultPhase(10_000, Restarting()),)


def test_every_problem_is_in_one_message() -> None:
    text = problem_with(
        fault="slow", entities=["orders", ""], pattern="x*", length_ms=-1, delay_ms=0, jitter_ms="much", how="silent"
    )
    assert text.split("; ") == [
        "slow takes no how",
        "entities and pattern exclude each other: choose one",
        "'' is not a name of an entity",
        "length must be from 1 ms to 168 h, got -1",
        "delay must be from 1 ms to 5 min, got 0 ms",
        "jitter must be from 0 ms to 5 min, got 'much'",
    ]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"fault": "no-sent"}, "did you mean no-send?"),
        ({"fault": "earthquake"}, "there are no-send, no-receive"),
        ({"fault": None}, "no fault is called None"),
        ({"fault": ["no-send"]}, "no fault is called"),
        ({"fault": "refuse"}, "condition is missing"),
        ({"fault": "refuse", "condition": "nonsense"}, "must be an AMQP condition"),
        ({"fault": "refuse", "condition": "amqp:not-found\n"}, "must be an AMQP condition"),
        ({"fault": "refuse", "condition": "amqp:not-found", "text": "two\nlines"}, "one line"),
        ({"fault": "unreachable", "how": "gently"}, "must be refuse, drop or silent, got 'gently'"),
        ({"fault": "unreachable", "how": ["drop"]}, "must be refuse, drop or silent"),
        ({"fault": "busy", "per_second": -1}, "from 0 (always busy)"),
        ({"fault": "busy", "per_second": float("nan")}, "from 0 (always busy)"),
        ({"fault": "busy", "per_second": True}, "from 0 (always busy)"),
        ({"fault": "unanswered", "probability": 0}, "above 0 and at most 1"),
        ({"fault": "unanswered", "probability": float("nan")}, "above 0 and at most 1"),
        ({"fault": "unanswered", "count": 0}, "whole number from 1"),
        ({"fault": "unanswered", "count": 1.5}, "whole number from 1"),
        ({"fault": "late", "delay_ms": 15 * 60_000 + 1}, "from 1 ms to 15 min"),
        ({"fault": "slow", "delay_ms": True}, "from 1 ms to 5 min"),
        ({"fault": "no-send", "length_ms": 10**4_000}, "from 1 ms to 168 h, got 1000"),
        ({"fault": "no-send", "length_ms": 10**5_000}, "thousands of digits"),
        ({"fault": "unanswered", "probability": 10**400}, "above 0 and at most 1, got 1000"),
        ({"fault": "unanswered", "count": 10**400}, "whole number from 1"),
        ({"fault": "busy", "per_second": 10**400}, "from 0 (always busy)"),
        ({"fault": "no-send", "entities": "orders"}, "entities must be a list"),
        ({"fault": "no-send", "entities": [7]}, "7 is not a name"),
        ({"fault": "no-send", "entities": ["x" * 261]}, "is not a name"),
        ({"fault": "no-send", "entities": ["x"] * 1_001}, "at most 1000 names"),
        ({"fault": "no-send", "pattern": ""}, "pattern must be a name"),
        ({"fault": "no-send", "colour": "red"}, "no-send takes no colour"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(values: dict[str, Any], text: str) -> None:
    problem = problem_with(**values)
    assert text in problem
    assert len(problem) < 250


@pytest.mark.parametrize(
    ("scope", "inside", "outside"),
    [
        (Scope(("Orders",)), ["orders"], ["orders2", "orders/eu", None]),
        (Scope(("a", "b/c")), ["a", "b/c"], ["b", "c", None]),
        (Scope(pattern="Orders*"), ["orders", "orders-eu", "orders/eu"], ["my-orders", None]),
        (Scope(pattern="q?"), ["q1"], ["q", "q12", None]),
        (Scope(), ["orders", None], []),
    ],
)
def test_a_scope_covers_what_it_names(scope: Scope, inside: list[str | None], outside: list[str | None]) -> None:
    covers = scope.compile()
    assert [entity for entity in inside if not covers(entity)] == []
    assert [entity for entity in outside if covers(entity)] == []


@pytest.mark.parametrize(
    ("text", "length_ms"), [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("1.5s", 1_500)]
)
def test_a_length_of_time_is_read_as_people_write_it(text: str, length_ms: int) -> None:
    assert parse_duration(text) == length_ms


@pytest.mark.parametrize("text", ["", "30", "s", "-1s", "30 s x", "1e3s", "٣s", "9" * 20 + "s", "5min"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(OptionsError, match=r"e\.g\. 500ms, 30s or 5m"):
        parse_duration(text)


def test_a_length_of_time_is_shown_in_its_largest_unit() -> None:
    assert [short_duration(each) for each in (7, 1_500, 60_000, 5_400_000)] == ["7 ms", "1.5 s", "1 min", "1.5 h"]
