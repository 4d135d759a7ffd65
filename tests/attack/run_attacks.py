"""All attacks, one after the other, and a table of what became of the namespace: `make attack`.

    python tests/attack/run_attacks.py [--seconds 4] [--only NAME ...] [--write docs/security.md]

Ends with 1 if an attack passed a bound. With `--write`, their rows in the table of that page are
replaced.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from attacks import ATTACKS
from catalogue import Attack
from target import Outcome, Target, served_for

SECONDS = 4.0
RUNS_MAX = 3
BEGIN, END = "<!-- attacks: written by make attack -->", "<!-- attacks: end -->"
HEADER = (
    "| attack | who | it sent | memory | after it | p99 of a neighbour | its longest wait | p99 without an attack"
    " | tries |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def run(attack: Attack, seconds: float) -> tuple[Outcome, int]:
    """One attack on a namespace of its own, and how often it was tried.

    If a neighbour waited too long it is tried again, at most twice, and the best run counts: the disk of a machine
    pauses now and then without any attack, and other programs take its processors.
    """
    runs: list[Outcome] = []
    while len(runs) < RUNS_MAX:
        with served_for(attack) as served:
            found = Target(served).under(seconds, attack)
        if found.problems() and not found.waits_are_the_only_problem:
            return found, len(runs) + 1
        runs.append(found)
        if not found.problems():
            break
    return min(runs, key=lambda run: (len(run.problems()), run.p99_s)), len(runs)


def row(attack: Attack, found: Outcome, tries: int) -> str:
    who = f"with `{attack.right}`" if attack.right else "stranger"
    connections = f"{found.connections:,} connection{'s' if found.connections != 1 else ''}"
    cells = (
        attack.does,
        who,
        f"{found.sent_bytes / 2**20:.1f} MiB on {connections}",
        f"{found.grown_bytes / 2**20:.0f} MiB",
        f"{found.left_bytes / 2**20:.0f} MiB",
        *(f"{1000 * seconds:.0f} ms" for seconds in (found.p99_s, found.longest_s, found.calm_p99_s)),
        str(tries),
    )
    return f"| {' | '.join(cells)} |"


def put_into(page: str, rows: dict[str, str]) -> str:
    """The page with these rows, by what each attack does; those of other attacks stay."""
    before, _, rest = page.partition(BEGIN)
    table, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"the page has no {BEGIN} and {END}")
    there = {line[2:].partition(" | ")[0]: line for line in table.splitlines() if line.startswith("| ")}
    all_rows = [rows.get(each.does) or there.get(each.does) for each in ATTACKS.values()]
    shown = "\n".join([HEADER, *[line for line in all_rows if line is not None]])
    return f"{before}{BEGIN}\n\n{shown}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each goes on, unless it needs more")
    parser.add_argument("--only", nargs="*", choices=ATTACKS, default=list(ATTACKS), help="some of them")
    parser.add_argument("--write", type=Path, help="the page whose rows are replaced")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left behind
    rows, over, began = {}, [], time.monotonic()
    for number, name in enumerate(asked.only, 1):
        found, tries = run(ATTACKS[name], asked.seconds)
        rows[ATTACKS[name].does] = row(ATTACKS[name], found, tries)
        say(f"{number}/{len(asked.only)} {time.monotonic() - began:.0f} s {name}: {describe(found)}, tries: {tries}")
        for problem in found.problems():
            over.append(name)
            say(f"  {name}: {problem}")
    if asked.write is not None:
        asked.write.write_text(put_into(asked.write.read_text(encoding="utf-8"), rows), encoding="utf-8")
    summary = f"a bound was passed by {', '.join(dict.fromkeys(over))}" if over else "all within bounds"
    say(f"{len(asked.only)} attacks, {summary}")
    sys.exit(1 if over else 0)


def describe(found: Outcome) -> str:
    """One line for the terminal."""
    return (
        f"{found.grown_bytes / 2**20:.0f} MiB, after it {found.left_bytes / 2**20:.0f} MiB; a neighbour waited"
        f" {1000 * found.p99_s:.0f} ms (p99), at most {1000 * found.longest_s:.0f} ms, {len(found.waits)} times"
    )


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
