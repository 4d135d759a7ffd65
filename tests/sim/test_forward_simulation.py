"""Simulated entities that forward to each other keep their promises, and the simulator notices when one does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from seeds import found, seed_count

from sim.__main__ import main
from sim.runner import first_forward_problem, run_forward_seed
from twinbus.broker.core.replies import Step
from twinbus.broker.entities import forwarding
from twinbus.broker.entities.duplicate_detection import DuplicateDetector, PendingSend
from twinbus.broker.entities.entity import EntityContext, HopCount, MessagingEntity
from twinbus.broker.entities.forwarding import Forwarder
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.topics import topic
from twinbus.broker.entities.topics.message_copies import CopyPlan
from twinbus.broker.entities.topics.topic import Topic
from twinbus.broker.message import Arrival
from twinbus.broker.store.api import EntityRow, EntitySummary, MessageRow

SEEDS, CHUNK, STEPS = seed_count(50, 400), 25, 250
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


def test_a_seed_of_forwarding_always_gives_the_same_trace() -> None:
    assert run_forward_seed(7) == run_forward_seed(7)


def test_the_command_simulates_forwarding() -> None:
    assert main(["--forward", "--seeds", "3"]) == 0


# --- planted bugs: each of these must be found ---


def throw_away(self: Forwarder, source: Queue, row: MessageRow, reason: str, text: str, step: Step) -> None:
    return None


def move_without_removing(self: Forwarder, source: Queue, now_ms: int, step: Step) -> None:
    while (row := source.take_visible(now_ms, step)) is not None:
        self._forward_now(source, row, HopCount(), now_ms, step)
    source.fetch(step)


def forget_the_hops(row: MessageRow, hops: HopCount) -> MessageRow:
    return row


def read_nothing(self: Queue, step: Step) -> None:
    return None


def lose_what_cannot_go(self: Queue, row: MessageRow, step: Step) -> None:
    self.locks.release_hold(row.sequence)


def never_look_at_the_start(self: Queue) -> int | None:
    return None if self._has_work else self._due_scan.next_ms


def count_in_memory_only(self: MessagingEntity, step: Step) -> None:
    self._on_commit(step)


def take_everything_for_new(self: DuplicateDetector, pending: PendingSend, keys: tuple[str, ...]) -> list[bool]:
    return [True] * len(keys)


def note_nothing(self: MessagingEntity, keys: tuple[str, ...], now_ms: int, step: Step) -> None:
    return None


def record_nothing(self: Forwarder, source: Queue, row: MessageRow, step: Step) -> None:
    return None


def never_rest(self: Forwarder, source: Queue, step: Step) -> bool:
    return False


def overtake_the_line(
    self: Topic, arrivals: Sequence[tuple[int, Arrival]], now_ms: int, step: Step
) -> list[CopyPlan] | None:
    pending, self.pending = self.pending, 0
    plans = _short_plans(self, arrivals, now_ms, step)
    self.pending = pending
    return plans


def forget_the_line_at_the_start(self: Topic, row: EntityRow, summary: EntitySummary, context: EntityContext) -> None:
    _begin(self, row, summary._replace(due_at_once=0, due_at_once_bytes=0), context)


def hand_on_and_keep(self: Topic, row: MessageRow, step: Step) -> None:
    self._on_commit(step)


_short_plans, _begin = Topic._short_plans, Topic.__init__


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Forwarder, "_dead_letter", throw_away),
        (Forwarder, "forward_stored", move_without_removing),
        (Forwarder, "_must_store", never_rest),
        (forwarding, "with_hop_count", forget_the_hops),
        (forwarding, "HOPS_MAX", 3),
        (Queue, "fetch", read_nothing),
        (Queue, "cancel_transfer", lose_what_cannot_go),
        (Queue, "_next_work_ms", never_look_at_the_start),
        (MessagingEntity, "count_sequences", count_in_memory_only),
        (MessagingEntity, "remember_ids", note_nothing),
        (DuplicateDetector, "new_ones", take_everything_for_new),
        (Forwarder, "_record_forwarded", record_nothing),
        (Topic, "_short_plans", overtake_the_line),
        (Topic, "__init__", forget_the_line_at_the_start),
        (Topic, "remove", hand_on_and_keep),
        (topic, "with_hop_count", forget_the_hops),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_forwarding_that_breaks_a_promise_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, bug: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, bug)
    about = f"forwarding: {owner.__name__} {name}"
    assert found(about, lambda seeds: first_forward_problem(seeds, STEPS), SEEDS_TO_FIND_A_BUG) is not None
