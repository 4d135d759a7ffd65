"""Simulated pairs bring everything home, in order where it was promised, and the simulator notices when they do not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from seeds import seed_count

from twinbus.client.ordered_sending import OrderedSending
from twinbus.pairing import order
from twinbus.pairing.order import Fences
from twinbus.pairing.pair import Pair
from twinbus.sim.__main__ import main
from twinbus.sim.runner import first_home_problem, run_home_seed
from twinbus.syphon.letters import Held
from twinbus.syphon.ordered_line import OrderedLine, line_key
from twinbus.syphon.pace import Pace
from twinbus.syphon.sequence import Entry, Sequence

SEEDS, CHUNK = seed_count(90, 300), 30
SEEDS_TO_FIND_A_BUG = 600


@pytest.mark.sample(2)
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_everything_comes_home_and_in_order_where_promised(first: int) -> None:
    outcome = first_home_problem(range(first, first + CHUNK))
    assert outcome is None, f"{outcome.problem}\nagain: {outcome.replay}"


@pytest.mark.long
def test_simulations_go_where_it_hurts() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        seen += run_home_seed(seed).seen
    for what in ("accepted by backlog", "news: recovered", "syphon: links lost", "syphon: destination_down", "crashes"):
        assert seen[what] > 20, what


def test_what_is_for_an_entity_that_is_not_listed_stays_in_simulated_backlogs() -> None:
    assert sum(run_home_seed(seed).seen["kept in the backlog"] for seed in range(30)) > 5


def test_it_notices_when_nobody_keeps_to_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "allows", lambda *_: True)
    assert "not on the list" in (problem_found() or "")


def test_the_command_simulates_the_way_home(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--syphon", "--seeds", "2"]) == 0
    assert "2 simulations, 0 with a problem" in capsys.readouterr().out


def problem_found() -> str | None:
    outcome = first_home_problem(range(SEEDS_TO_FIND_A_BUG))
    return None if outcome is None else outcome.problem


def test_it_notices_when_no_fence_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fences, "stands_before", lambda *_: False)
    monkeypatch.setattr(Fences, "is_clear", lambda *_: True)
    assert "overtook" in (problem_found() or "")


def test_it_notices_when_a_fence_stands_only_after_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def depart(pair: Pair, _entity: Any, key: order.Key, marks: Any) -> order.Crossing:
        assert pair.fences is not None
        return pair.fences.depart(key, marks)

    monkeypatch.setattr(Pair, "depart", depart)
    monkeypatch.setattr(OrderedSending, "_is_detoured", lambda self: self._entity.side.value == "backlog")
    assert "overtook" in (problem_found() or "")


def test_it_notices_when_the_queue_is_chosen_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(10**9))
    monkeypatch.setattr(order, "queue_for", lambda _, queues: queues[next(numbers) % len(queues)])
    assert problem_found() is not None


@pytest.mark.long
def test_it_notices_when_nobody_looks_into_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    def enter(sequence: Sequence, held: Held) -> Entry:
        sequence.known_to = max(sequence.known_to, held.place.sequence)
        return Entry.GO

    monkeypatch.setattr(Sequence, "enter", enter)
    assert "overtook" in (problem_found() or "")


@pytest.mark.long
def test_it_notices_when_batches_of_a_key_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(line: OrderedLine, taken: list[Held], _going: list[Held]) -> None:
        for held in taken:
            line._tidy(line_key(held))

    monkeypatch.setattr(OrderedLine, "sent", sent)
    assert "overtook" in (problem_found() or "")
