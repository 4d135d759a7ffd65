"""Schedules of topics, states of sessions, idle entities and partitions keep their promises in every simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator

import pytest
from seeds import found, seed_count

from sim.__main__ import main
from sim.runner import first_kind_problem, run_kind_seed
from twinbus.broker.core.replies import Step
from twinbus.broker.entities import entity
from twinbus.broker.entities.entity import MessagingEntity
from twinbus.broker.entities.recent_changes import RecentChanges
from twinbus.broker.entities.session_queue import SessionQueue
from twinbus.broker.entities.topics import message_copies, topic
from twinbus.broker.entities.topics.message_copies import Groups, PublishedMessage
from twinbus.broker.entities.topics.subscription import RuleMatcher
from twinbus.broker.entities.topics.topic import Topic
from twinbus.broker.message import Arrival
from twinbus.broker.store.api import PutSessionState, RowsRead

SEEDS, CHUNK, STEPS = seed_count(50, 200), 25, 300
SEEDS_TO_FIND_A_BUG = 200


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_each_kind_keeps_its_promises(first: int) -> None:
    outcome = first_kind_problem(range(first, first + CHUNK), STEPS)
    assert outcome is None, f"{outcome.problem}\nagain: {outcome.replay}"


def test_the_simulations_of_kinds_meet_everything_they_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1_000, 1_030):
        seen += run_kind_seed(seed, STEPS).seen
    assert {
        "asleep", "awake", "cancelled", "states set", "states found", "removed itself", "kept in order",
        "torn between partitions", "crashes", "store failed", "refused: SessionLockLost", "refused: EntityNotFound",
        "refused: MessageNotFound", "refused: SessionCannotBeLocked",
    } <= set(seen)  # fmt: skip


def test_a_seed_of_kinds_always_gives_the_same_trace() -> None:
    assert run_kind_seed(7) == run_kind_seed(7)


def test_the_command_simulates_kinds() -> None:
    assert main(["--kinds", "--seeds", "2"]) == 0


# --- planted bugs: each of these must be found ---


def wake_what_was_cancelled(self: Topic, read: RowsRead, now_ms: int, step: Step) -> None:
    met = [(row.due_at_ms or 0, row.sequence) for row in read.rows[-1:]]
    self._due_scan.end(met[0] if met else None, read.next_time_ms)
    self._activate(list(read.rows), now_ms, step)
    self.recent.read_ended(read.request)


def hand_on_to_one(matcher: RuleMatcher, sequence: int, message: PublishedMessage) -> Generator[float, None, Groups]:
    groups = yield from _choose(matcher, sequence, message)
    return [group[:1] for group in groups]


def keep_states_in_memory(
    self: SessionQueue, name: str, state: bytes | None, now_ms: int, step: Step, *, holder: int | None = None
) -> None:
    self.check_locked(name, now_ms)


def report_states_too_early(
    self: SessionQueue, name: str, state: bytes | None, now_ms: int, step: Step, *, holder: int | None = None
) -> None:
    """What is being written is not noted: the old state is answered after the new one was promised, or vice versa."""
    self.check_locked(name, now_ms)
    step.changes.append(PutSessionState(self.entity_id, "a", state, now_ms))
    self._on_commit(step)


def remove_what_is_in_use(self: MessagingEntity, now_ms: int) -> bool:
    end_ms = self._idle_end_ms()
    if end_ms is None or end_ms > now_ms:
        return False
    if self._idle_since_ms is None:
        self._idle_since_ms = now_ms
        return False
    return True


def take_no_notice(self: MessagingEntity, now_ms: int) -> None:
    if self._idle_since_ms is None:
        self._idle_since_ms = now_ms


def never_idle(self: MessagingEntity) -> int | None:
    return None


def forget_the_partition(self: MessagingEntity, arrivals: tuple[Arrival, ...]) -> tuple[str, ...]:
    return tuple([arrival.message_id or "" for arrival in arrivals])


def let_through(arrivals: tuple[Arrival, ...]) -> None:
    return None


def trust_any_answer(self: RecentChanges) -> int:
    return 0


_choose = message_copies.choose_copies


def name_of_bug(value: object) -> str:
    bug = value.fget if isinstance(value, property) else value
    return str(getattr(bug, "__name__", bug))


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Topic, "rows_read", wake_what_was_cancelled),
        (topic, "choose_copies", hand_on_to_one),
        (SessionQueue, "set_state", keep_states_in_memory),
        (SessionQueue, "set_state", report_states_too_early),
        (RecentChanges, "known", property(trust_any_answer)),
        (MessagingEntity, "has_idled_out", remove_what_is_in_use),
        (MessagingEntity, "touch", take_no_notice),
        (MessagingEntity, "_idle_end_ms", never_idle),
        (MessagingEntity, "keys_of", forget_the_partition),
        (entity, "check_partitions", let_through),
    ],
    ids=name_of_bug,
)
def test_a_kind_that_breaks_a_promise_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, bug: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, bug)
    about = f"kinds: {name_of_bug(bug)}"
    assert found(about, lambda seeds: first_kind_problem(seeds, STEPS), SEEDS_TO_FIND_A_BUG) is not None
