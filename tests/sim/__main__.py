"""`python -m sim --seeds 1000 --first 0`: simulate, and say which seed breaks a promise.

With `--pair` it is a pair of namespaces and its senders that are simulated, with `--syphon` a pair whose backlog comes
home too, with `--spool` one whose sender has a spool and is killed, with `--proxy` a proxy between applications and a
pair, with `--forward` one namespace whose entities forward to each other, with `--transactions` one whose applications
use transactions, without any of these one namespace.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from sim.runner import (
    CALLS,
    STEPS,
    Outcome,
    run_forward_seed,
    run_home_seed,
    run_kind_seed,
    run_pair_seed,
    run_proxy_seed,
    run_seed,
    run_spool_seed,
    run_transaction_seed,
)


def main(arguments: list[str] | None = None) -> int:
    """0 if every promise was kept, 1 with the failing seeds printed otherwise."""
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    for name, run, steps, about in (
        ("--pair", run_pair_seed, CALLS, "simulate two namespaces, paired, and senders"),
        ("--syphon", run_home_seed, CALLS, "simulate a pair, senders, and the way home"),
        ("--spool", run_spool_seed, CALLS, "simulate a pair whose sender has a spool and is killed"),
        ("--proxy", run_proxy_seed, STEPS, "simulate a proxy between applications and a pair"),
        ("--forward", run_forward_seed, STEPS, "simulate entities that forward to each other"),
        ("--transactions", run_transaction_seed, STEPS, "simulate applications that use transactions"),
        ("--kinds", run_kind_seed, STEPS, "simulate schedules of topics, states, idleness, partitions"),
    ):
        what.add_argument(name, dest="simulation", action="store_const", const=(run, steps), help=about)
    parser.set_defaults(simulation=(run_seed, STEPS))
    parser.add_argument("--seeds", type=int, default=100, help="how many simulations")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, help=f"how much happens in each ({STEPS}; sends of a pair: {CALLS})")
    parser.add_argument("--trace", action="store_true", help="show what happened before a problem")
    options = parser.parse_args(arguments)
    run, usual_steps = options.simulation
    seen: Counter[str] = Counter()
    failed = 0
    for seed in range(options.first, options.first + options.seeds):
        outcome: Outcome = run(seed, options.steps or usual_steps)
        seen += outcome.seen
        if outcome.problem:
            failed += 1
            _show(outcome, with_trace=options.trace)
    sys.stdout.write(f"{options.seeds} simulations, {failed} with a problem\n")
    sys.stdout.writelines(f"  {number:>9} {what}\n" for what, number in sorted(seen.items()))
    return 1 if failed else 0


def _show(outcome: Outcome, *, with_trace: bool) -> None:
    if with_trace:
        sys.stdout.writelines(f"{line}\n" for line in outcome.trace)
    sys.stdout.write(f"seed {outcome.seed}: {outcome.problem}\n  again: {outcome.replay}\n")


if __name__ == "__main__":
    sys.exit(main())
