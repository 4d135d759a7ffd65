"""What an operator is told: what is known, what is not, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.client.inspection.freshness import FRESH_S
from twinbus.console.advice import advise

NOW = 1_000.0


def sections(**changes: Any) -> dict[str, Any]:
    calm: dict[str, Any] = {
        "sides": {"primary": {"state": "answers"}, "secondary": {"state": "answers"}},
        "backlog": {"waiting": 0, "waiting_at_least": 0, "full_in": None, "doubt": None, "quarantined": 0},
    }
    return calm | changes


def backlog(**changes: Any) -> dict[str, Any]:
    calm: dict[str, Any] = sections()["backlog"]
    return calm | changes


def down(*which: str) -> dict[str, Any]:
    sides = ("primary", "secondary")
    return {side: {"state": "does not answer" if side in which else "answers"} for side in sides}


def refused(*which: str) -> dict[str, Any]:
    return {**down(), **{side: {"state": "refuses the key"} for side in which}}


def entity(state: str, waiting: int = 5) -> dict[str, Any]:
    return {"orders": {"name": "orders", "state": state, "waiting_at_least": waiting}}


def process(state: str = "reporting", spooled: int | None = None) -> dict[str, Any]:
    return {"state": state, "spooled": spooled, "syphon": None}


def syphon(state: str, rate: float = 0.0) -> dict[str, Any]:
    return {"7-1": {"name": "syphon 7-1", "state": state, "rate": rate}}


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        (sections(), "no"),
        ({}, "unknown"),
        (sections(sides=down("primary")), "no"),
        (sections(sides=down("secondary")), "risk"),
        (sections(sides=down("primary", "secondary")), "risk"),
        (sections(sides=refused("primary")), "unknown"),
        (sections(sides=refused("secondary")), "unknown"),
        (sections(sides=refused("primary", "secondary")), "unknown"),
        (sections(backlog=backlog(waiting=9, waiting_at_least=9, full_in=600.0)), "risk"),
        (sections(backlog=backlog(waiting=9, waiting_at_least=9, full_in=1e6)), "no"),
        (sections(backlog=backlog(waiting=None, waiting_at_least=None)), "unknown"),
        (sections(backlog=backlog(doubt="there may be more queues")), "unknown"),
        (sections(entities=entity("failing")), "risk"),
    ],
)
def test_whether_anything_is_being_lost(state: dict[str, Any], answer: str) -> None:
    assert advise(state, NOW)["loss"]["state"] == answer


@pytest.mark.parametrize(
    ("state", "seconds", "words"),
    [
        (sections(), 0.0, "Everything is home"),
        (sections(backlog=backlog(quarantined=None)), 0.0, "not known"),
        (sections(backlog=backlog(quarantined=2)), None, "2 in quarantine"),
        (sections(spools={"a": {"messages": 7}}), None, "7 in spools"),
        (sections(processes={"a": process(spooled=7)}), None, "7 in spools"),
        (sections(processes={"a": process(state="silent", spooled=7)}), 0.0, "Everything is home"),
        (sections(backlog=backlog(waiting=100, waiting_at_least=100), syphons=syphon("running", 10.0)), 10.0, "10 s"),
        (sections(backlog=backlog(waiting=None, waiting_at_least=100), syphons=syphon("running", 10.0)), 10.0, "least"),
        (sections(backlog=backlog(waiting=5, waiting_at_least=5), syphons=syphon("paused")), None, "resumes"),
        (sections(backlog=backlog(waiting=5, waiting_at_least=5), syphons=syphon("running")), None, "nothing moves"),
        (sections(backlog=backlog(waiting=5, waiting_at_least=5)), None, "No syphon"),
        (sections(backlog=backlog(waiting=None, waiting_at_least=None)), None, "cannot be counted"),
    ],
)
def test_when_it_will_be_home(state: dict[str, Any], seconds: float | None, words: str) -> None:
    home = advise(state, NOW)["home"]
    assert home["seconds"] == seconds
    assert words in home["text"]


def steps(state: dict[str, Any]) -> list[dict[str, str]]:
    return list(advise(state, NOW)["todo"])


def test_nothing_is_concluded_from_what_was_seen_too_long_ago() -> None:
    assert steps(sections(backlog=backlog(at=NOW - FRESH_S))) == []
    state = sections(backlog=backlog(at=NOW - FRESH_S - 1))
    found = advise(state, NOW)
    assert (found["loss"]["state"], found["home"]["seconds"]) == ("unknown", None)
    assert [step["command"] for step in steps(state)] == ["twinbus status"]


def test_a_rate_that_was_seen_too_long_ago_says_nothing_of_when_it_will_be_home() -> None:
    state = sections(backlog=backlog(waiting=100, waiting_at_least=100), syphons=syphon("running", 10.0))
    fresh, old = ({"this machine": {"at": NOW - age_s}} for age_s in (FRESH_S, FRESH_S + 1))
    assert advise(state | {"sources": fresh}, NOW)["home"]["seconds"] == 10.0
    assert advise(state | {"sources": old}, NOW)["home"]["seconds"] is None


def test_a_key_that_is_refused_says_nothing_about_applications() -> None:
    (step,) = steps(sections(sides=refused("secondary")))
    assert step["text"] == "Give the console a key that the secondary accepts."


def test_nothing_is_to_be_done_while_all_is_well() -> None:
    assert steps(sections()) == []


def test_a_paused_syphon_is_resumed_by_a_button_while_something_waits() -> None:
    (step,) = steps(sections(backlog=backlog(waiting=5, waiting_at_least=5), syphons=syphon("paused")))
    assert (step["action"], step["key"], step["command"]) == ("syphon.resume", "7-1", "twinbus syphon resume 7-1")
    assert steps(sections(syphons=syphon("paused"))) == []


def test_the_backlog_is_brought_home_only_when_there_is_a_home() -> None:
    waiting = backlog(waiting=5, waiting_at_least=5)
    assert [step["command"] for step in steps(sections(backlog=waiting, entities=entity("waiting")))] == [
        "twinbus syphon --first 1 --until-empty"
    ]
    commands = [step["command"] for step in steps(sections(backlog=waiting, entities=entity("failed over")))]
    assert commands == [""], "look at the entity first"
    assert all("syphon" not in step["command"] for step in steps(sections(backlog=waiting, sides=down("primary"))))


def test_without_backlog_queues_there_is_no_detour() -> None:
    queues = {f"q/{n}": {"name": f"q/{n}", "state": "cannot be used", "reason": "not found: nothing"} for n in range(3)}
    state = sections(queues=queues)
    assert advise(state, NOW)["loss"]["state"] == "risk"
    assert [step["command"] for step in steps(state)] == ["twinbus pair"]
