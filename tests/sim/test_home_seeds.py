"""Simulated pairs bring everything home, in order where it was promised, and the simulator notices when they do not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from seeds import found, seed_count

from sim.__main__ import main
from sim.runner import first_home_problem, run_home_seed
from twinbus.client.flows.ordered_sends import OrderedSendFlow
from twinbus.pairing.backlog import ordering as order
from twinbus.pairing.backlog.ordering import Fences
from twinbus.pairing.pair import Pair
from twinbus.syphon.pump.backlog_message import HeldMessage
from twinbus.syphon.pump.ordered_queue import OrderedQueue, queue_key
from twinbus.syphon.pump.pace import Pace
from twinbus.syphon.pump.sequence_gaps import OrderDecision, SequenceTracker

SEEDS, CHUNK = seed_count(20, 300), 10
SEEDS_TO_FIND_A_BUG = 600


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_everything_comes_home_and_in_order_where_promised(first: int) -> None:
    outcome = first_home_problem(range(first, first + CHUNK))
    assert outcome is None, f"{outcome.problem}\nagain: {outcome.replay}"


@pytest.mark.long
def test_simulations_go_where_it_hurts() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        seen += run_home_seed(seed).seen
    for what in (
        "accepted by backlog",
        "event: recovered",
        "syphon: links lost",
        "syphon: destination_down",
        "crashes",
    ):
        assert seen[what] > 20, what


def test_what_is_for_an_entity_that_is_not_listed_stays_in_simulated_backlogs() -> None:
    assert sum(run_home_seed(seed).seen["kept in the backlog"] for seed in range(seed_count(10, 30))) > 5


def test_it_notices_when_nobody_keeps_to_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "allows", lambda *_: True)
    assert "not on the list" in (problem_found("nobody keeps to the list") or "")


def test_the_command_simulates_the_way_home(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--syphon", "--seeds", "2"]) == 0
    assert "2 simulations, 0 with a problem" in capsys.readouterr().out


def problem_found(bug: str) -> str | None:
    outcome = found(f"home: {bug}", first_home_problem, SEEDS_TO_FIND_A_BUG)
    return None if outcome is None else outcome.problem


def test_it_notices_when_no_fence_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fences, "stands_before", lambda *_: False)
    monkeypatch.setattr(Fences, "is_clear", lambda *_: True)
    assert "overtook" in (problem_found("no fence stands") or "")


def test_it_notices_when_a_fence_stands_only_after_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def depart(pair: Pair, _entity: Any, key: order.Key, marks: Any) -> order.Crossing:
        assert pair.fences is not None
        return pair.fences.depart(key, marks)

    monkeypatch.setattr(Pair, "depart", depart)
    monkeypatch.setattr(OrderedSendFlow, "_is_detoured", lambda self: self._entity.side.value == "backlog")
    assert "overtook" in (problem_found("a fence stands only after the answer") or "")


def test_it_notices_when_the_queue_is_chosen_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(10**9))
    monkeypatch.setattr(order, "queue_for", lambda _, queues: queues[next(numbers) % len(queues)])
    assert problem_found("the queue is chosen by chance") is not None


def test_it_notices_when_nobody_looks_into_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    def enter(sequence: SequenceTracker, held: HeldMessage) -> OrderDecision:
        sequence.known_to = max(sequence.known_to, held.position.sequence)
        return OrderDecision.GO

    monkeypatch.setattr(SequenceTracker, "enter", enter)
    assert "overtook" in (problem_found("nobody looks into gaps") or "")


def test_it_notices_when_batches_of_a_key_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(line: OrderedQueue, taken: list[HeldMessage], _going: list[HeldMessage]) -> None:
        for held in taken:
            line._update(queue_key(held))

    monkeypatch.setattr(OrderedQueue, "sent", sent)
    assert "overtook" in (problem_found("batches of a key overlap") or "")
