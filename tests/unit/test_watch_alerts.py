"""When a watch alerts, and when it says that it is over: time is an argument."""

from __future__ import annotations

from typing import Any

from twinbus.spark.jobs.findings import AwayMessages
from twinbus.spark.report.alerts import AlertState, RoundFacts, WatchAlert

MINUTE = 60_000
START = 1_800_000_000_000
STUCK_AFTER, QUIET, BLIND = 15 * MINUTE, 10 * MINUTE, 3 * MINUTE


def state() -> AlertState:
    return AlertState(STUCK_AFTER, QUIET, BLIND)


def facts(minute: float, **found: Any) -> RoundFacts:
    known: dict[str, Any] = {"lost": 0, "unknown": 0, "waiting": 0, "away": {}, "out": frozenset()}
    return RoundFacts(at_ms=START + round(minute * MINUTE), **(known | found))


def away(messages: int, minute: float = 0) -> dict[str, AwayMessages]:
    return {"orders": AwayMessages(messages, START + round(minute * MINUTE))}


def kinds(alerts: list[WatchAlert]) -> list[tuple[str, bool]]:
    return [(each.kind, each.is_over) for each in alerts]


def test_a_loss_alerts_once_again_if_it_grows_and_when_it_is_over() -> None:
    watch = state()
    assert watch.after_round(facts(0)) == []
    [first] = watch.after_round(facts(1, lost=2, named=({"message_id": "a"},)))
    assert (first.kind, first.is_over, first.messages) == ("lost", False, 2)
    assert first.as_dict()["named"] == [{"message_id": "a"}]
    assert watch.after_round(facts(2, lost=2)) == []
    assert kinds(watch.after_round(facts(3, lost=3))) == [("lost", False)]
    assert watch.after_round(facts(4, lost=1)) == []
    assert kinds(watch.after_round(facts(5))) == [("lost", True)]
    assert watch.after_round(facts(6)) == []


def test_a_backlog_that_does_not_move_is_stuck_only_after_both_times() -> None:
    watch = state()
    for minute in range(15):
        assert watch.after_round(facts(minute, away=away(5))) == [], minute
    [stuck] = watch.after_round(facts(15, away=away(5)))
    assert (stuck.kind, stuck.entity, stuck.messages) == ("stuck", "orders", 5)
    assert watch.after_round(facts(16, away=away(5))) == []
    [over] = watch.after_round(facts(17, away=away(4)))
    assert (over.kind, over.is_over) == ("stuck", True)


def test_a_watch_that_was_just_started_waits_until_it_has_seen_that_nothing_moves() -> None:
    watch = state()
    assert watch.after_round(facts(100, away=away(5))) == []
    assert watch.after_round(facts(109, away=away(5))) == []
    assert kinds(watch.after_round(facts(110, away=away(5)))) == [("stuck", False)]


def test_a_backlog_that_moves_is_not_stuck_however_old_it_is() -> None:
    watch = state()
    for minute in range(60):
        assert watch.after_round(facts(minute, away=away(100 - minute))) == []
    for minute in range(60, 120):  # as many as before, but others
        assert watch.after_round(facts(minute, away=away(40, minute - 60))) == []


def test_while_the_primary_is_out_nothing_is_stuck_and_the_time_counts_from_its_return() -> None:
    watch = state()
    for minute in range(60):
        assert watch.after_round(facts(minute, away=away(5), out=frozenset({"orders"}))) == []
    assert watch.after_round(facts(60, away=away(5))) == []
    assert watch.after_round(facts(68, away=away(5))) == []
    assert kinds(watch.after_round(facts(69, away=away(5)))) == [("stuck", False)]
    assert kinds(watch.after_round(facts(70, away=away(5), out=frozenset({"orders"})))) == [("stuck", True)]


def test_an_empty_backlog_ends_the_alert_and_is_forgotten() -> None:
    watch = state()
    watch.after_round(facts(0, away=away(5)))
    assert kinds(watch.after_round(facts(20, away=away(5)))) == [("stuck", False)]
    [over] = watch.after_round(facts(21))
    assert over.is_over
    assert "empty" in over.text
    assert watch.backlogs == {}


def test_rounds_that_fail_for_long_alert_once() -> None:
    watch = state()
    watch.after_round(facts(0))
    assert watch.after_failure(START + 2 * MINUTE, "gone") == []
    [blind] = watch.after_failure(START + 3 * MINUTE, "gone")
    assert blind.kind == "blind"
    assert "gone" in blind.text
    assert watch.after_failure(START + 4 * MINUTE, "gone") == []
    assert kinds(watch.after_round(facts(5))) == [("blind", True)]


def test_counts_that_disagree_alert_until_they_agree() -> None:
    watch = state()
    assert kinds(watch.after_round(facts(0, doubts=("fewer",)))) == [("counts", False)]
    assert watch.after_round(facts(1, doubts=("fewer",))) == []
    assert kinds(watch.after_round(facts(2))) == [("counts", True)]
