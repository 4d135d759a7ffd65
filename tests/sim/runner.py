"""Run simulations and say how they ended."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sim.forward_world import ForwardWorld
from sim.home_world import HomeWorld
from sim.invariants import Violation
from sim.kind_world import KindWorld
from sim.pair_world import PairWorld
from sim.proxy_world import ProxyWorld
from sim.spool_world import SpoolWorld
from sim.transaction_world import TransactionWorld
from sim.world import Parts, World

STEPS = 400
CALLS = 80
"""So many sends there are in the simulation of a pair."""


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    steps: int
    about: str
    """What was simulated, as an argument of the command; empty: a namespace."""
    problem: str | None
    """What a user would have noticed; None if every promise was kept."""
    trace: tuple[str, ...]
    """The last things that happened before the problem."""
    seen: Counter[str]
    """How often what happened."""

    @property
    def replay(self) -> str:
        """The command that shows the same simulation again."""
        return f"python -m sim {self.about}--first {self.seed} --seeds 1 --steps {self.steps} --trace"


def run_seed(seed: int, steps: int = STEPS, parts: Parts | None = None) -> Outcome:
    """Simulate one namespace from an empty disk until it is empty again."""
    world = World(seed, parts)
    problem = _problem(world.run, steps)
    trace = tuple(f"{now_ms} {what!r:.240}" for now_ms, what in world.trace) if problem else ()
    return Outcome(seed, steps, "", problem, trace, world.invariants.seen)


def run_pair_seed(seed: int, steps: int = CALLS) -> Outcome:
    """Simulate a pair of namespaces and its senders until everything has come to rest."""
    world = PairWorld(seed)
    problem = _problem(world.run, steps)
    lines = (f"{at:.6f} {who} {what!r:.240}" for at, who, what in world.watch.trace)
    trace = (repr(world.rules), repr(world.habits), *lines) if problem else ()
    return Outcome(seed, steps, "--pair ", problem, trace, world.seen)


def run_home_seed(seed: int, steps: int = CALLS) -> Outcome:
    """Simulate a pair with its syphon until everything has come home."""
    world = HomeWorld(seed)
    problem = _problem(world.run, steps)
    lines = (f"{at:.6f} {who} {what!r:.240}" for at, who, what in world.watch.trace)
    trace = (repr(world.rules), repr(world.syphon.pump.options), *lines) if problem else ()
    return Outcome(seed, steps, "--syphon ", problem, trace, world.seen)


def run_spool_seed(seed: int, steps: int = CALLS) -> Outcome:
    """Simulate a pair whose sender has a spool, and is killed, until everything has come home."""
    world = SpoolWorld(seed)
    problem = _problem(world.run, steps)
    lines = (f"{at:.6f} {who} {what!r:.240}" for at, who, what in world.process.watch.trace)
    trace = (repr(world.rules), *lines) if problem else ()
    return Outcome(seed, steps, "--spool ", problem, trace, Counter(world.seen))


def run_proxy_seed(seed: int, steps: int = STEPS) -> Outcome:
    """Simulate a proxy between applications and a pair until everything has come to rest and is received."""
    world = ProxyWorld(seed)
    problem = _problem(world.run, steps)
    lines = (f"{at:.6f} {who} {what!r:.240}" for at, who, what in world.accounts.trace)
    trace = (repr(world.proxy.options), *lines) if problem else ()
    return Outcome(seed, steps, "--proxy ", problem, trace, world.seen)


def run_forward_seed(seed: int, steps: int = STEPS, parts: Parts | None = None) -> Outcome:
    """Simulate a namespace whose entities forward to each other until everything has come to rest."""
    world = ForwardWorld(seed, parts)
    problem = _problem(world.run, steps)
    lines = (f"{now_ms} {what!r:.240}" for now_ms, what in world.trace)
    trace = (world.kind.value, *map(repr, world.map.settings.items()), *lines) if problem else ()
    return Outcome(seed, steps, "--forward ", problem, trace, world.seen)


def run_kind_seed(seed: int, steps: int = STEPS, parts: Parts | None = None) -> Outcome:
    """Simulate schedules of topics, states of sessions, idle entities and partitions."""
    world = KindWorld(seed, parts)
    problem = _problem(world.run, steps)
    trace = tuple(f"{now_ms} {what!r:.240}" for now_ms, what in world.trace) if problem else ()
    return Outcome(seed, steps, "--kinds ", problem, trace, world.seen)


def run_transaction_seed(seed: int, steps: int = STEPS, parts: Parts | None = None) -> Outcome:
    """Simulate applications that do everything in transactions."""
    world = TransactionWorld(seed, parts)
    problem = _problem(world.run, steps)
    trace = tuple(f"{now_ms} {what!r:.240}" for now_ms, what in world.trace) if problem else ()
    return Outcome(seed, steps, "--transactions ", problem, trace, world.seen)


def _problem(run: Callable[[int], None], steps: int) -> str | None:
    try:
        run(steps)
    except Violation as violation:
        return str(violation)
    except TypeError as error:
        if "argument" in str(error):
            raise  # a planted bug that cannot be called as the code it replaces proves nothing
        return traceback.format_exc(limit=-4)
    except Exception:  # whatever else is raised is a finding too
        return traceback.format_exc(limit=-4)
    return None


def first_problem(seeds: Iterable[int], steps: int = STEPS, parts: Parts | None = None) -> Outcome | None:
    """The first simulation in which a promise is broken; None if there is none."""
    return next((outcome for seed in seeds if (outcome := run_seed(seed, steps, parts)).problem), None)


def first_pair_problem(seeds: Iterable[int], steps: int = CALLS) -> Outcome | None:
    """The same for simulated pairs."""
    return next((outcome for seed in seeds if (outcome := run_pair_seed(seed, steps)).problem), None)


def first_home_problem(seeds: Iterable[int], steps: int = CALLS) -> Outcome | None:
    """The same for pairs with a syphon."""
    return next((outcome for seed in seeds if (outcome := run_home_seed(seed, steps)).problem), None)


def first_spool_problem(seeds: Iterable[int], steps: int = CALLS) -> Outcome | None:
    """The same for senders with a spool."""
    return next((outcome for seed in seeds if (outcome := run_spool_seed(seed, steps)).problem), None)


def first_proxy_problem(seeds: Iterable[int], steps: int = STEPS) -> Outcome | None:
    """The same for proxies."""
    return next((outcome for seed in seeds if (outcome := run_proxy_seed(seed, steps)).problem), None)


def first_forward_problem(seeds: Iterable[int], steps: int = STEPS, parts: Parts | None = None) -> Outcome | None:
    """The same for simulated forwarding."""
    return next((outcome for seed in seeds if (outcome := run_forward_seed(seed, steps, parts)).problem), None)


def first_kind_problem(seeds: Iterable[int], steps: int = STEPS, parts: Parts | None = None) -> Outcome | None:
    """The same for the kinds of entities that have promises of their own."""
    return next((outcome for seed in seeds if (outcome := run_kind_seed(seed, steps, parts)).problem), None)


def first_transaction_problem(seeds: Iterable[int], steps: int = STEPS, parts: Parts | None = None) -> Outcome | None:
    """The same for simulated transactions."""
    return next((outcome for seed in seeds if (outcome := run_transaction_seed(seed, steps, parts)).problem), None)
