"""What happens is told once, and briefly, however much of it there is."""

from __future__ import annotations

from typing import Any

from twinbus.console.state import EVENT_LENGTH_MAX, EVENTS_MAX, ConsoleState


def rows(state: str, count: int, reason: str = "") -> dict[str, dict[str, Any]]:
    return {f"q-{n}": {"name": f"q-{n}", "state": state, "reason": reason, "since": None} for n in range(count)}


def texts(state: ConsoleState) -> list[str]:
    return [each["text"] for each in state.section("events").values()]


def test_a_few_changes_are_an_event_each() -> None:
    state = ConsoleState(lambda: 5.0)
    state.put("entities", rows("healthy", 2))
    state.put("entities", rows("failing", 2, "it broke"))
    assert texts(state) == ["q-0 is failing: it broke", "q-1 is failing: it broke"]
    assert [row["since"] for row in state.section("entities").values()] == [5.0, 5.0]


def test_a_thousand_changes_at_once_are_one_event_and_push_out_no_other() -> None:
    state = ConsoleState()
    state.put("sides", {"primary": {"name": "contoso", "state": "does not answer", "reason": "", "since": None}})
    for word in ("failing", "healthy", "failing"):
        state.put("entities", rows(word, 1_000, "x" * 1_000))
    told = texts(state)
    assert told[0] == "contoso does not answer"
    assert len(told) == 4
    assert told[-1].startswith("1,000 queues and topics are failing, e.g. q-0, q-1, q-2: x")
    assert max(map(len, told)) <= EVENT_LENGTH_MAX + len(" ...")


def test_an_entity_of_which_less_is_known_is_no_event_and_one_that_fails_is() -> None:
    state = ConsoleState()
    for word in ("healthy", "unknown", "healthy", "unknown", "failing"):
        state.put("entities", rows(word, 1))
    assert texts(state) == ["q-0 is failing"]
    for word in ("healthy", "unknown"):
        state.put("verdict", rows(word, 1))
    assert texts(state)[-1] == "q-0 is unknown", "of the pair it is"


def test_texts_of_others_are_cut_wherever_they_are() -> None:
    state = ConsoleState()
    state.put("queues", {"q": {"name": "q", "reason": "x" * 100_000, "who": [{"why": "y" * 100_000}], "size": 10**18}})
    row = state.section("queues")["q"]
    assert (len(row["reason"]), len(row["who"][0]["why"]), row["size"]) == (2_003, 2_003, 10**18)


def test_events_are_bounded_and_the_newest_stay() -> None:
    state = ConsoleState()
    for number in range(EVENTS_MAX + 5):
        state.add_event("note", f"event {number}")
    assert (len(texts(state)), texts(state)[-1]) == (EVENTS_MAX, f"event {EVENTS_MAX + 4}")
