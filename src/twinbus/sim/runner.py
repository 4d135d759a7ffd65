"""Run simulations and say how they ended."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from twinbus.sim.invariants import Violation
from twinbus.sim.world import Parts, World

STEPS = 400


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    steps: int
    problem: str | None
    """What a user would have noticed; None if every promise was kept."""
    trace: tuple[str, ...]
    """The last things that happened before the problem."""
    seen: Counter[str]
    """How often what happened."""

    @property
    def replay(self) -> str:
        """The command that shows the same simulation again."""
        return f"python -m twinbus.sim --first {self.seed} --seeds 1 --steps {self.steps} --trace"


def run_seed(seed: int, steps: int = STEPS, parts: Parts | None = None) -> Outcome:
    """Simulate one namespace from an empty disk until it is empty again."""
    world = World(seed, parts)
    problem = None
    try:
        world.run(steps)
    except Violation as violation:
        problem = str(violation)
    except Exception:  # whatever the machine raises is a finding too
        problem = traceback.format_exc(limit=-4)
    trace = tuple(f"{now_ms} {what!r:.240}" for now_ms, what in world.trace) if problem else ()
    return Outcome(seed, steps, problem, trace, world.invariants.seen)


def first_problem(seeds: Iterable[int], steps: int = STEPS, parts: Parts | None = None) -> Outcome | None:
    """The first simulation in which a promise is broken; None if there is none."""
    return next((outcome for seed in seeds if (outcome := run_seed(seed, steps, parts)).problem), None)
