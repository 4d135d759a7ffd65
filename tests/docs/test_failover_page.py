"""The page about the failover decision is what the code says, and says all of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from pages.failover_page import EVENTS, PAGE, STATES, diagram, page, shown, transitions, write
from twinbus.pairing.events import Event
from twinbus.pairing.failover import State

FOLDER = Path(__file__).parent.parent.parent / "docs" / "reference"
FOUND = list(transitions())
ARROW = re.compile(r"    (\w+|\[\*\]) --> (\w+)(: [^:]+)?")


def test_the_page_is_fresh() -> None:
    fresh = (FOLDER / PAGE).read_text(encoding="utf-8") == page()
    assert fresh, "stale: run make pages"


def test_writing_mends_a_stale_page_and_leaves_a_fresh_one(tmp_path: Path) -> None:
    assert write(tmp_path / "new") == tmp_path / "new" / PAGE
    (tmp_path / PAGE).write_text("old")
    assert write(tmp_path) == tmp_path / PAGE
    assert write(tmp_path) is None


def test_every_kind_of_state_and_event_is_asked_for() -> None:
    assert {type(make(0.0, 0)) for make in EVENTS.values()} == set(get_args(Event))
    assert {type(state) for state in STATES} == set(get_args(State))


def test_every_state_can_be_reached_and_left() -> None:
    names = {shown(state) for state in STATES}
    arrows = {(each.before, each.outcome.after) for each in FOUND if each.before != each.outcome.after}
    assert {before for before, _ in arrows} == {after for _, after in arrows} == names


def test_the_diagram_has_an_arrow_for_every_transition_and_nothing_that_mermaid_would_stumble_over() -> None:
    lines = diagram(FOUND)
    arrows = [match for line in lines if (match := ARROW.fullmatch(line))]
    states = [line for line in lines if line.startswith("    state ")]
    assert len(lines) == 1 + len(states) + len(arrows)
    labels = [label for match in arrows if match[3] for label in match[3].removeprefix(": ").split("<br>")]
    assert len(labels) == len(FOUND)
