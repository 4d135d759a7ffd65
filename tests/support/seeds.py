"""How many simulations and examples a run of the tests tries: some usually, all with `make test-all`."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sim.runner import Outcome

FOUND_AT = Path(__file__).parent.parent / "sim" / "found_at.json"
"""By planted bug, the first seed that finds it; `make seeds` writes it."""
_MODE = os.environ.get("TWINBUS_SEEDS", "some")


def seed_count(usually: int, thoroughly: int) -> int:
    return thoroughly if _MODE == "all" else usually


def examples(thoroughly: int, usually: int | None = None) -> int:
    """How many examples a test of a property tries: usually, if nothing else is said, a third of them."""
    if os.environ.get("TWINBUS_EXAMPLES", "steady") != "steady":
        return thoroughly
    return thoroughly // 3 if usually is None else usually


def found(bug: str, search: Callable[[Iterable[int]], Outcome | None], most: int) -> Outcome | None:
    """What the simulations find with a planted bug: first the one that is known to find it, then those below `most`.

    Code that draws in another order makes a known seed useless, and nothing worse: the search takes longer then.
    `make test-all` fails, so that somebody writes the seeds down anew.
    """
    known = json.loads(FOUND_AT.read_text(encoding="utf-8")).get(bug)
    if known is not None and (outcome := search([known])) is not None:
        return outcome
    outcome = search(range(most))
    if outcome is not None and _MODE == "learn":
        _note(bug, outcome.seed)
    elif outcome is not None and _MODE == "all":
        pytest.fail(f"{bug}: found by seed {outcome.seed} and not by {known}, as {FOUND_AT.name} says: run make seeds")
    return outcome


def _note(bug: str, seed: int) -> None:
    """Other workers do the same, and read meanwhile: the file is replaced as a whole, by one at a time."""
    folder = os.open(FOUND_AT.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        noted = json.loads(FOUND_AT.read_text(encoding="utf-8")) | {bug: seed}
        draft = FOUND_AT.with_suffix(".new")
        draft.write_text(json.dumps(noted, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        draft.replace(FOUND_AT)
    finally:
        os.close(folder)
