"""Schedules of topics, states of sessions, idle entities and partitions keep their promises in every simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator

import pytest
from seeds import seed_count

from twinbus.namespace.entities import copies, shelf, topic
from twinbus.namespace.entities.copies import Groups, Published
from twinbus.namespace.entities.duplicates import keys_of
from twinbus.namespace.entities.matching import Matcher
from twinbus.namespace.entities.recent import RecentChanges
from twinbus.namespace.entities.session_queue import SessionQueue
from twinbus.namespace.entities.shelf import Shelf
from twinbus.namespace.entities.topic import Topic
from twinbus.namespace.message import Arrival
from twinbus.namespace.replies import Step
from twinbus.namespace.store.api import PutSessionState, RowsRead
from twinbus.sim.__main__ import main
from twinbus.sim.runner import first_kind_problem, run_kind_seed

SEEDS, CHUNK, STEPS = seed_count(100, 200), 50, 300
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


def test_a_seed_of_kinds_always_tells_the_same_story() -> None:
    assert run_kind_seed(7) == run_kind_seed(7)


def test_the_command_simulates_kinds() -> None:
    assert main(["--kinds", "--seeds", "2"]) == 0


# --- planted bugs: each of these must be found ---


def wake_what_was_cancelled(self: Topic, read: RowsRead, now_ms: int, step: Step) -> None:
    self._end_due_sweep(read)
    self._wake(list(read.rows), now_ms, step)
    self.recent.read_ended(read.request)


def hand_on_to_one(matcher: Matcher, sequence: int, message: Published) -> Generator[float, None, Groups]:
    groups = yield from _choose(matcher, sequence, message)
    return [group[:1] for group in groups]


def keep_states_in_memory(self: SessionQueue, name: str, state: bytes | None, now_ms: int, step: Step) -> None:
    self.check_held(name, now_ms)


def tell_states_too_early(self: SessionQueue, name: str, state: bytes | None, now_ms: int, step: Step) -> None:
    """What is being written is not noted, so the old state is told after the new one was promised, or the other way."""
    self.check_held(name, now_ms)
    step.changes.append(PutSessionState(self.entity_id, "a", state, now_ms))
    self._after(step)


def remove_what_is_in_use(self: Shelf, now_ms: int) -> bool:
    end_ms = self._idle_end_ms()
    if end_ms is None or end_ms > now_ms:
        return False
    if self._idle_since_ms is None:
        self._idle_since_ms = now_ms
        return False
    return True


def take_no_notice(self: Shelf, now_ms: int) -> None:
    if self._idle_since_ms is None:
        self._idle_since_ms = now_ms


def never_idle(self: Shelf) -> int | None:
    return None


def forget_the_partition(self: Shelf, arrivals: tuple[Arrival, ...]) -> tuple[str, ...]:
    return keys_of(arrivals, with_partitions=False)


def let_through(arrivals: tuple[Arrival, ...]) -> None:
    return None


def trust_any_answer(self: RecentChanges) -> int:
    return 0


_choose = copies.choose


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Topic, "rows_read", wake_what_was_cancelled),
        (topic, "choose", hand_on_to_one),
        (SessionQueue, "set_state", keep_states_in_memory),
        (SessionQueue, "set_state", tell_states_too_early),
        (RecentChanges, "known", property(trust_any_answer)),
        (Shelf, "has_idled_out", remove_what_is_in_use),
        (Shelf, "used", take_no_notice),
        (Shelf, "_idle_end_ms", never_idle),
        (Shelf, "keys_of", forget_the_partition),
        (shelf, "check_partitions", let_through),
    ],
    ids=lambda value: getattr(value, "__name__", value) if not isinstance(value, property) else "trust_any_answer",
)
def test_a_kind_that_breaks_a_promise_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, bug: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert first_kind_problem(range(SEEDS_TO_FIND_A_BUG), STEPS) is not None
