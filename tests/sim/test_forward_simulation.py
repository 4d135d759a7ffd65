"""Simulated entities that forward to each other keep their promises, and the simulator notices when one does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from seeds import seed_count

from twinbus.namespace.entities import forwarding, topic
from twinbus.namespace.entities.copies import Plan
from twinbus.namespace.entities.duplicates import DuplicateGuard, PendingSend
from twinbus.namespace.entities.forwarding import Courier
from twinbus.namespace.entities.journeys import Journey
from twinbus.namespace.entities.queue import Queue
from twinbus.namespace.entities.shelf import EntityContext, Shelf
from twinbus.namespace.entities.topic import Topic
from twinbus.namespace.message import Arrival
from twinbus.namespace.replies import Step
from twinbus.namespace.store.api import EntityRow, EntitySummary, MessageRow
from twinbus.sim.__main__ import main
from twinbus.sim.runner import first_forward_problem, run_forward_seed

SEEDS, CHUNK, STEPS = seed_count(150, 400), 50, 250
SEEDS_TO_FIND_A_BUG = 300


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_chains_end_and_nothing_is_lost_on_the_way(first: int) -> None:
    outcome = first_forward_problem(range(first, first + CHUNK), STEPS)
    assert outcome is None, f"{outcome.problem}\nagain: {outcome.replay}"


@pytest.mark.long
def test_the_simulations_of_forwarding_meet_everything_they_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1_000, 1_060):
        seen += run_forward_seed(seed, STEPS).seen
    assert {
        "forwarded", "crashes", "store failed", "refused: EntityDisabled", "refused: EntityNotFound",
        "in the end: None", "in the end: MaxTransferHopCountExceeded", "in the end: MessagingEntityDisabled",
        "in the end: MessagingEntityNotFound", "in the end: TTLExpiredException",
        "recorded: forwarded", "recorded: stored", "recorded: dead_lettered",
    } <= set(seen)  # fmt: skip


def test_a_seed_of_forwarding_always_tells_the_same_story() -> None:
    assert run_forward_seed(7) == run_forward_seed(7)


def test_the_command_simulates_forwarding() -> None:
    assert main(["--forward", "--seeds", "3"]) == 0


# --- planted bugs: each of these must be found ---


def throw_away(self: Courier, source: Queue, row: MessageRow, reason: str, text: str, step: Step) -> None:
    return None


def move_without_removing(self: Courier, source: Queue, now_ms: int, step: Step) -> None:
    while (row := source.take_visible(now_ms, step)) is not None:
        self._carry(source, row, Journey(), now_ms, step)
    source.fetch(step)


def forget_the_hops(row: MessageRow, journey: Journey) -> MessageRow:
    return row


def read_nothing(self: Queue, step: Step) -> None:
    return None


def lose_what_cannot_go(self: Queue, row: MessageRow, step: Step) -> None:
    self.loans.take_back(row.sequence)


def never_look_at_the_start(self: Queue) -> int | None:
    return None if self._has_to_look else self._dues.next_ms


def count_in_memory_only(self: Shelf, step: Step) -> None:
    self._after(step)


def take_everything_for_new(self: DuplicateGuard, pending: PendingSend, keys: tuple[str, ...]) -> list[bool]:
    return [True] * len(keys)


def note_nothing(self: Shelf, keys: tuple[str, ...], now_ms: int, step: Step) -> None:
    return None


def tell_nothing(self: Courier, source: Queue, row: MessageRow, step: Step) -> None:
    return None


def never_rest(self: Courier, source: Queue, step: Step) -> bool:
    return False


def overtake_the_line(
    self: Topic, arrivals: Sequence[tuple[int, Arrival]], now_ms: int, step: Step
) -> list[Plan] | None:
    in_line, self.in_line = self.in_line, 0
    plans = _short_plans(self, arrivals, now_ms, step)
    self.in_line = in_line
    return plans


def forget_the_line_at_the_start(
    self: Topic, row: EntityRow, summary: EntitySummary, context: EntityContext, *, committed: int
) -> None:
    _begin(self, row, summary._replace(due_at_once=0, due_at_once_bytes=0), context, committed=committed)


def hand_on_and_keep(self: Topic, row: MessageRow, step: Step) -> None:
    self._after(step)


_short_plans, _begin = Topic._short_plans, Topic.__init__


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Courier, "_put_aside", throw_away),
        (Courier, "pump", move_without_removing),
        (Courier, "_has_to_rest", never_rest),
        (forwarding, "written", forget_the_hops),
        (forwarding, "HOPS_MAX", 3),
        (Queue, "fetch", read_nothing),
        (Queue, "keep", lose_what_cannot_go),
        (Queue, "_next_work_ms", never_look_at_the_start),
        (Shelf, "count_sequences", count_in_memory_only),
        (Shelf, "note_ids", note_nothing),
        (DuplicateGuard, "new_ones", take_everything_for_new),
        (Courier, "_tell_forwarded", tell_nothing),
        (Topic, "_short_plans", overtake_the_line),
        (Topic, "__init__", forget_the_line_at_the_start),
        (Topic, "remove", hand_on_and_keep),
        (topic, "written", forget_the_hops),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_forwarding_that_breaks_a_promise_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, bug: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert first_forward_problem(range(SEEDS_TO_FIND_A_BUG), STEPS) is not None
