"""All attacks, one after the other, and a table of what became of the namespace: `make attack`.

    python tests/attack/run_attacks.py [--seconds 10] [--only NAME ...] [--write docs/security.md]

Ends with 1 if an attack passed a bound. With `--write`, the table replaces the one in that page.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from attacks import ATTACKS, QUEUE, Attack
from served import Served
from target import NEIGHBOURS_QUEUE, Outcome, Target

SECONDS = 10.0
BEGIN, END = "<!-- attacks: written by make attack -->", "<!-- attacks: end -->"
HEADER = (
    "| attack | who | memory | after it | p99 of a neighbour | its longest wait | p99 without an attack |\n"
    "|---|---|---|---|---|---|---|"
)


def run(attack: Attack, seconds: float) -> Outcome:
    """One attack on a namespace of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Served("attacked", Path(folder), "--queue", QUEUE, "--queue", NEIGHBOURS_QUEUE) as served,
    ):
        return Target(served).under(attack.name, seconds)


def row(attack: Attack, found: Outcome) -> str:
    who = "with a key" if attack.has_key else "stranger"
    cells = (
        attack.does,
        who,
        f"{found.grown_bytes / 2**20:.0f} MiB",
        f"{found.left_bytes / 2**20:.0f} MiB",
        *(f"{1000 * seconds:.0f} ms" for seconds in (found.p99_s, found.longest_s, found.calm_p99_s)),
    )
    return f"| {' | '.join(cells)} |"


def put_into(page: str, table: str) -> str:
    """The page with this table instead of the one it has."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"the page has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each attack goes on")
    parser.add_argument("--only", nargs="*", choices=ATTACKS, default=list(ATTACKS), help="some of them")
    parser.add_argument("--write", type=Path, help="the page whose table is replaced")
    asked = parser.parse_args()
    rows, is_over = [HEADER], False
    say(HEADER)
    for name in asked.only:
        found = run(ATTACKS[name], asked.seconds)
        rows.append(row(ATTACKS[name], found))
        say(rows[-1])
        for problem in found.problems():
            is_over = True
            say(f"{name}: {problem}")
    if asked.write is not None:
        asked.write.write_text(put_into(asked.write.read_text(encoding="utf-8"), "\n".join(rows)), encoding="utf-8")
    sys.exit(1 if is_over else 0)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
