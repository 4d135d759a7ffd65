"""What a drill comes to, from events alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from twinbus.drill.measures import (
    CanaryAccepted,
    CanaryRaised,
    Event,
    FaultLifted,
    FaultOrdered,
    LeftBehind,
    Limits,
    Measures,
    NotLooked,
    OthersReceive,
    Seen,
    SentHome,
    check_limits,
    measure,
    passes,
)
from twinbus.drill.report import DrillResult, headline, page, remarks

OUTAGE: tuple[Event, ...] = (
    CanaryAccepted("1", 9.0, 9.1, "primary"),
    FaultOrdered(10.0),
    CanaryAccepted("2", 10.2, 11.4, "backlog"),
    CanaryAccepted("3", 11.5, 11.6, "backlog"),
    FaultLifted(20.0),
    SentHome(20.5, "2"),
    SentHome(20.5, "3"),
    CanaryAccepted("4", 21.0, 21.25, "primary"),
    Seen(22.0, "1", 101),
    Seen(22.0, "2", 102),
    Seen(22.0, "3", 103),
    Seen(22.0, "4", 104),
)


def about(value: float) -> object:
    return pytest.approx(value)


def test_an_outage_has_its_numbers() -> None:
    measures = measure(OUTAGE)
    assert (measures.sent, measures.to_primary, measures.to_backlog, measures.raised) == (4, 2, 2, 0)
    assert measures.effect_s == about(0.2)
    assert measures.failover_s == about(1.2), "from the start of the send that met the fault"
    assert measures.gap_s == about(21.25 - 11.6)
    assert measures.recovery_s == about(1.25)
    assert measures.drain_s == about(0.5)
    assert (measures.lost, measures.waiting, measures.taken, measures.duplicates) == ((), 0, 0, 0)


def test_the_order_in_which_events_are_given_does_not_matter() -> None:
    assert measure(reversed(OUTAGE)) == measure(OUTAGE)


def test_the_gap_begins_with_the_last_send_before_the_fault_and_slow_starts_do_not_count() -> None:
    events: list[Event] = [
        CanaryAccepted("0", 0.0, 5.0, "primary"),
        CanaryAccepted("1", 5.0, 9.5, "primary"),
        FaultOrdered(10.0),
        CanaryAccepted("2", 10.0, 12.0, "backlog"),
    ]
    assert measure(events).gap_s == about(2.5)


def test_sends_that_fail_to_the_end_make_the_gap_longer() -> None:
    events: list[Event] = [
        CanaryAccepted("1", 9.0, 9.5, "primary"),
        FaultOrdered(10.0),
        CanaryRaised("2", 10.0, 11.0),
        CanaryRaised("3", 11.0, 15.0, True),
    ]
    measures = measure(events)
    assert measures.gap_s == about(5.5)
    assert (measures.raised, measures.in_doubt) == (2, 1)
    assert (measures.failover_s, measures.recovery_s, measures.drain_s) == (None, None, None)
    assert measures.effect_s == about(0.0)


def test_a_send_that_was_under_way_when_the_fault_came_counts_from_its_start() -> None:
    events: list[Event] = [FaultOrdered(10.0), CanaryAccepted("1", 9.8, 10.8, "backlog")]
    measures = measure(events)
    assert (measures.effect_s, measures.failover_s) == (0.0, about(1.0))


def test_an_acceptance_of_the_primary_during_the_fault_is_no_recovery() -> None:
    events = [*OUTAGE[:4], CanaryAccepted("x", 12.0, 12.1, "primary"), FaultLifted(20.0)]
    assert measure(events).recovery_s is None


def test_what_was_accepted_and_is_not_seen_is_lost() -> None:
    events = [event for event in OUTAGE if not (isinstance(event, Seen) and event.canary in "13")]
    assert measure(events).lost == ("1", "3"), "whether it took the detour or not, and whatever the syphon said"


def test_what_was_never_accepted_cannot_be_lost() -> None:
    assert measure([*OUTAGE, CanaryRaised("5", 12.0, 13.0), CanaryRaised("6", 13.0, 14.0, in_doubt=True)]).lost == ()


def test_what_still_lies_in_the_backlog_is_not_home_and_not_lost() -> None:
    events = [event for event in OUTAGE if getattr(event, "canary", "") != "3" or isinstance(event, CanaryAccepted)]
    measures = measure([*events, LeftBehind("3")])
    assert (measures.lost, measures.waiting, measures.drain_s) == ((), 1, None)


def test_where_others_receive_what_is_not_seen_was_taken() -> None:
    events = [event for event in OUTAGE if not isinstance(event, Seen)]
    measures = measure([*events, OthersReceive()])
    assert (measures.lost, measures.taken) == ((), 4)
    assert measures.drain_s == about(0.5), "what the syphon stored is home, seen or not"


def test_losses_that_nobody_could_look_for_are_unknown() -> None:
    assert measure([*OUTAGE, NotLooked()]).lost is None


def test_every_further_copy_is_a_duplicate_and_seeing_one_twice_is_none() -> None:
    again = [Seen(23.0, "2", 102), Seen(23.0, "2", 105), Seen(23.0, "2", 106)]
    assert measure([*OUTAGE, *again]).duplicates == 2


def test_without_a_detour_the_drain_takes_no_time() -> None:
    assert measure([FaultOrdered(1.0), FaultLifted(2.0)]).drain_s == 0.0


def test_nothing_comes_to_nothing() -> None:
    measures = measure([])
    assert (measures.sent, measures.gap_s, measures.lost) == (0, None, ())


# --- limits ---


def kept(measures: Measures, limits: Limits) -> dict[str, bool]:
    return {finding.name: finding.is_kept for finding in check_limits(measures, limits)}


def test_without_limits_it_is_enough_that_everything_happens() -> None:
    assert passes(check_limits(measure(OUTAGE), Limits()))


@pytest.mark.parametrize("name", ["failover_s", "gap_s", "recovery_s", "drain_s"])
def test_a_limit_is_kept_up_to_its_last_moment(name: str) -> None:
    measures = measure(OUTAGE)
    value = getattr(measures, name)
    for limit_s, is_kept in ((value, True), (value - 0.001, False)):
        findings = kept(measures, Limits(**{name: limit_s}))
        assert findings.pop(name.removesuffix("_s")) is is_kept
        assert all(findings.values())


@pytest.mark.parametrize("name", ["failover_s", "gap_s", "recovery_s", "drain_s", "lost"])
def test_what_never_happened_or_is_unknown_is_missed_without_any_limit(name: str) -> None:
    findings = kept(replace(measure(OUTAGE), **dict[str, Any]({name: None})), Limits())
    assert [each for each, is_kept in findings.items() if not is_kept] == [name.removesuffix("_s")]


def test_losses_are_allowed_up_to_the_limit() -> None:
    measures = replace(measure(OUTAGE), lost=("1", "2"))
    assert [kept(measures, Limits(lost=most))["lost"] for most in (1, 2)] == [False, True]


# --- the report ---


def outcome(**changes: object) -> DrillResult:
    made = DrillResult(
        drill="d1",
        began_at=datetime(2031, 3, 9, 14, 5, tzinfo=UTC),
        entity="orders",
        primary="contoso",
        secondary="backup",
        fault="no-send",
        way="control",
        length_s=10.0,
        measures=measure(OUTAGE),
        limits=Limits(),
        is_interrupted=False,
        is_put_back=True,
        taken_back=4,
        expire_at=datetime(2031, 3, 9, 14, 20, tzinfo=UTC),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_drill_passes_fails_or_was_interrupted() -> None:
    assert outcome().verdict == "pass"
    assert outcome(limits=Limits(gap_s=1.0)).verdict == "fail"
    assert outcome(is_put_back=False).verdict == "fail"
    assert outcome(is_interrupted=True).verdict == "interrupted"


def test_kept_is_said_only_of_a_limit_that_was_set() -> None:
    words = {each.name: each.word for each in outcome(limits=Limits(gap_s=60.0)).findings}
    assert words == {"failover": "", "gap": "kept", "recovery": "", "drain": "", "lost": "kept"}
    never = outcome(measures=replace(measure(OUTAGE), drain_s=None)).as_dict()["findings"][3]
    assert (never["name"], never["kept"], never["passed"]) == ("drain", None, False)


@pytest.mark.parametrize(
    ("changes", "measured", "text"),
    [
        ({"taken_back": 4}, {"at_home": 4}, "no canary is left in orders"),
        ({"taken_back": 4}, {"at_home": 6}, "2 canaries are left in orders: they expire by 14:20:00 UTC"),
        ({}, {"waiting": 3}, "3 canaries are left in the backlog: twinbus syphon brings them home; they expire by"),
        ({}, {"lost": None}, "whether canaries are left in orders is unknown; they expire by 14:20:00 UTC"),
        ({"is_topic": True}, {}, "other subscriptions of orders have copies of the canaries, which expire by 14:20"),
    ],
)
def test_a_drill_says_what_it_leaves_behind(changes: dict[str, Any], measured: dict[str, Any], text: str) -> None:
    said = list(remarks(outcome(measures=replace(measure(OUTAGE), **measured), **changes)))
    assert [remark for remark in said if remark.startswith(text)] != [], said


def test_a_page_has_the_verdict_every_measure_and_what_was_lost() -> None:
    lost = outcome(measures=replace(measure(OUTAGE), lost=("d1-7",)))
    text = page(lost)
    assert text.startswith("# FAILED: no-send of orders on contoso for 10 s\n")
    assert "| failover | 1.20 s | - |  |" in text
    assert "| lost | 1 | at most 0 | MISSED |" in text
    assert "* LOST: d1-7" in text
    assert headline(outcome()).startswith("PASSED")
    assert not any("LOST" in remark for remark in remarks(outcome()))
