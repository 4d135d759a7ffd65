"""A simulated fleet is as its readers see it, whatever is posted, however wrong their clocks are; or it is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from seeds import seed_count

from sim.board_world import BoardWorld, run_board_seed
from twinbus.board import fleet, schedule
from twinbus.board.fleet import FleetMemory

SEEDS = seed_count(2, 60)
SEEDS_TO_FIND_A_BUG = 12


@pytest.mark.parametrize("seed", range(SEEDS))
def test_readers_of_a_board_see_the_truth_or_say_that_it_is_unknown(seed: int) -> None:
    problem, _ = run_board_seed(seed)
    assert problem is None


@pytest.mark.long
def test_simulated_fleets_meet_what_they_are_about_and_a_seed_gives_the_same_trace() -> None:
    seen: Counter[str] = Counter()
    for seed in range(6):
        seen += run_board_seed(seed)[1].seen
    for what in ("killed", "closes", "forged", "lie", "secondary", "fleet known as a whole", "verdict unknown"):
        assert seen[what], what
    first, second = BoardWorld(3), BoardWorld(3)
    first.run()
    second.run()
    assert first.trace == second.trace


def _reader_clock_decides(memory: FleetMemory, at: float) -> float:
    return at + 1_700_000_000.0


def _forgets_nothing(memory: FleetMemory, at: float) -> None: ...


def _posts_when_time_comes_only(self: schedule.PostSchedule, at: float, essence: object) -> None: ...


BUGS: tuple[tuple[object, str, object], ...] = (
    (FleetMemory, "_now_there", _reader_clock_decides),
    (FleetMemory, "_forget_what_is_over", _forgets_nothing),
    (schedule.PostSchedule, "changed", _posts_when_time_comes_only),
    (fleet, "LATE_FACTOR", 50.0),
)


@pytest.mark.long
@pytest.mark.parametrize(("owner", "name", "bug"), BUGS, ids=lambda each: getattr(each, "__name__", str(each)))
def test_a_board_that_deceives_is_found(
    owner: object, name: str, bug: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert any(run_board_seed(seed)[0] is not None for seed in range(SEEDS_TO_FIND_A_BUG))
