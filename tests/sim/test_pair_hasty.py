"""Simulated pairs whose callers never have a second, with a backlog queue that is silent alone now and then (P6)."""

from __future__ import annotations

from collections import Counter

import pytest
from seeds import found

from sim.pair_call import Call
from sim.pair_loop import Signal
from sim.pair_network import Road
from sim.pair_senders import Applications
from sim.pair_shell import SimulatedShell
from sim.runner import first_pair_problem
from twinbus.client.flows.io_requests import Answer, Failed
from twinbus.pairing.backlog.rotation import Silence
from twinbus.pairing.secondary import Secondary
from twinbus.pairing.sending.failure import Failure, FailureKind

SEEDS = range(30)
TIMEOUT_S = 0.4
SILENT_S, PERIOD_S = 200.0, 400.0
SILENCE = Failure(FailureKind.NO_ANSWER, "no acknowledgement", in_doubt=True)
PREPARE, SEND, HAS_PROOF = Applications.prepare, SimulatedShell._send, Secondary.has_proof


def hurry(self: Applications, path: str, timeout_s: float | None = None) -> Call:
    return PREPARE(self, path, TIMEOUT_S if timeout_s is None else min(timeout_s, TIMEOUT_S))


async def lose_what_goes_to_the_first_queue(
    self: SimulatedShell, road: Road, path: str, encoded: list[bytes] | tuple[bytes, ...], timeout_s: float
) -> Answer:
    if not (path.endswith("/0") and self.loop.now % PERIOD_S < SILENT_S):
        return await SEND(self, road, path, encoded, timeout_s)
    await self._wait(Signal(), timeout_s)
    return Failed(self.loop.now, 0.5, SILENCE)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Applications, "prepare", hurry)
    monkeypatch.setattr(SimulatedShell, "_send", lose_what_goes_to_the_first_queue)


def test_pairs_with_hasty_callers_keep_every_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[bool] = Counter()

    def watch(self: Secondary, silence: Silence) -> bool:
        is_proof = HAS_PROOF(self, silence)
        seen[is_proof] += 1
        return is_proof

    monkeypatch.setattr(Secondary, "has_proof", watch)
    assert first_pair_problem(SEEDS) is None
    assert seen[True], "a queue that is silent again and again leaves the rotation"
    assert seen[False]


@pytest.mark.parametrize("answer", [False, True], ids=["believe nobody", "believe everybody"])
def test_a_pair_that_judges_silence_otherwise_is_found(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    monkeypatch.setattr(Secondary, "has_proof", lambda self, silence: answer)
    bug = f"hasty pair: believe {'everybody' if answer else 'nobody'}"
    assert found(bug, first_pair_problem, len(SEEDS)) is not None
