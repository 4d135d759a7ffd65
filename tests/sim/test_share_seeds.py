"""Nobody is moved by lies, old reports, copies or one host, and everybody by a quorum; or it is found (X6)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from seeds import found, seed_count

from sim.share_world import first_share_problem, run_share_seed
from twinbus.board import quorum
from twinbus.board.quorum import SharedFindings

SEEDS = seed_count(2, 100)
SEEDS_TO_FIND_A_BUG = 40


@pytest.fixture(autouse=True)
def remember_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a crowd is soon a crowd."""
    monkeypatch.setattr(quorum, "INSTANCES_MAX", 30)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_processes_that_share_findings_act_on_what_is_so_and_on_nothing_else(seed: int) -> None:
    assert run_share_seed(seed).problem is None


@pytest.mark.long
def test_simulated_sharing_meets_what_it_is_about_and_a_seed_gives_the_same_trace() -> None:
    seen: Counter[str] = Counter()
    for seed in range(6):
        seen += run_share_seed(seed).seen
    for what in ("killed", "lie", "secondary", "primary", "confirmed", "moved by others"):
        assert seen[what], what
    assert run_share_seed(3).trace == run_share_seed(3).trace


# --- planted bugs: each of these must be found ---

BEGIN, ADD = SharedFindings.__init__, SharedFindings.add


def believes_every_signature(*_: object) -> bool:
    return True


def believes_one_host(self: SharedFindings, *rest: Any) -> None:
    BEGIN(self, *rest)
    self._quorum = 1


def believes_itself(self: SharedFindings, path: str, keys: Any, host: str, quorum: int) -> None:
    BEGIN(self, path, keys, host, quorum)
    self._latest[host] = {}


def learns_no_time(self: SharedFindings, posts: Any) -> bool:
    return False


def forgets_whoever_came_first(self: SharedFindings, *rest: Any) -> None:
    ADD(self, *rest)
    while sum(map(len, self._latest.values())) > self._share_max:
        latest = max(
            (each for each in self._latest.values() if each), key=lambda each: -min(map(_stored, each.values()))
        )
        del latest[next(iter(latest))]


def _stored(signed: Any) -> float:
    return float(signed.enqueued_s)


BUGS: tuple[tuple[object, str, Any], ...] = (
    (quorum, "is_signed", believes_every_signature),
    (quorum, "REPLAY_S", 1e9),
    (quorum, "FRESH_S", 1e9),
    (SharedFindings, "__init__", believes_one_host),
    (SharedFindings, "__init__", believes_itself),
    (SharedFindings, "_see_own", learns_no_time),
    (SharedFindings, "add", forgets_whoever_came_first),
)


def named(name: str, bug: Any) -> str:
    return str(getattr(bug, "__name__", name))


@pytest.mark.long
@pytest.mark.parametrize(("owner", "name", "bug"), BUGS, ids=[named(name, bug) for _, name, bug in BUGS])
def test_sharing_that_can_be_deceived_is_found(
    owner: object, name: str, bug: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert found(f"sharing: {named(name, bug)}", first_share_problem, SEEDS_TO_FIND_A_BUG) is not None
