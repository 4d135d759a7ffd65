"""Simulated pairs keep their promises through every kind of trouble, and the simulator notices when one does not."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from seeds import found, seed_count

from sim.__main__ import main
from sim.pair_conditions import Trouble
from sim.runner import first_pair_problem, run_pair_seed
from twinbus.client.flows import send_flow
from twinbus.client.flows.io_requests import Answer, Flow
from twinbus.client.flows.send_flow import SendFlow
from twinbus.pairing import entity as entity_module
from twinbus.pairing import failover
from twinbus.pairing.backlog import envelope
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.backlog.envelope import Aliases, address
from twinbus.pairing.backlog.rotation import Rotation, Search
from twinbus.pairing.effects import Effect, PingPrimary
from twinbus.pairing.entity import Entity, Line
from twinbus.pairing.events import (
    Event,
    LinkOpened,
    MarkedHealthy,
    PingSucceeded,
    SendFailed,
    SendSucceeded,
    TrialProvedNothing,
)
from twinbus.pairing.failover import FailedOver, Healthy, State, Suspect, step
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.pairing.secondary import Secondary
from twinbus.pairing.sending import encoded_messages
from twinbus.pairing.sending.error_class import ErrorClass
from twinbus.pairing.sending.failure import Failure
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt
from twinbus.pairing.sending.retry import Tries

SEEDS, CHUNK = seed_count(60, 1_000), 20
SEEDS_TO_FIND_A_BUG = 400


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_of_a_pair_is_kept_through_all_kinds_of_trouble(first: int) -> None:
    outcome = first_pair_problem(range(first, first + CHUNK))
    assert outcome is None, f"{outcome.problem}\nagain: {outcome.replay}"


def test_a_seed_of_a_pair_always_gives_the_same_trace() -> None:
    assert run_pair_seed(7) == run_pair_seed(7)
    assert run_pair_seed(7).seen != run_pair_seed(8).seen


EXPECTED = {
    "failovers", "returns", "failed over by error rate", "forced", "marked healthy", "queues checked again",
    "crashes", "jumps", "closed", "closed with sends held", "sent straight", "pings: failed", "pings: succeeded",
    "trials: stored", "trials: down", "trials: nothing",
    "late failures", "late successes", "secondary: away", "secondary: back", "secondary: trials",
    "calls: accepted by primary", "calls: accepted by backlog", "calls: accepted, with copies in doubt",
    "calls: accepted in part", "calls: raised, in doubt", "calls: cancelled", "calls: NotSent", "calls: SimulatedError",
    "calls: BothNamespacesUnavailable", "calls: TooLargeForDetour", "calls: ReservedProperty",
    *(f"trouble: {trouble.name}" for trouble in Trouble),
    *(f"primary: {kind}" for kind in (
        "busy", "deleted", "disabled", "internal error", "no answer in time", "not found", "quota exceeded",
        "rejected", "too large", "unauthorised", "unreachable")),
    *(f"secondary: {kind}" for kind in (
        "busy", "disabled", "internal error", "no answer in time", "not found", "quota exceeded", "unauthorised",
        "unreachable")),
    *(f"event: {name}" for name in (
        "suspect", "trusted_again", "failed_over", "recovered", "held", "released", "in_doubt", "busy", "flapping",
        "ping_sent", "ping_failed", "backlog_queue_lost", "backlog_queue_back", "secondary_unreachable",
        "secondary_back")),
}  # fmt: skip


@pytest.mark.long
def test_the_simulated_pairs_meet_everything_they_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1_000, 1_400):
        seen += run_pair_seed(seed).seen
        if set(seen) >= EXPECTED:
            break
    assert EXPECTED - set(seen) == set()


# --- planted bugs: each of these must be found ---


def count_whatever_comes(state: State, event: Event, rules: Rules) -> failover.Answer:
    """What was begun before the sides changed counts like everything else."""
    return step(state, replace(event, epoch=state.epoch), rules)


def trust_a_late_success(state: State, event: Event, rules: Rules) -> failover.Answer:
    if isinstance(state, FailedOver) and isinstance(event, SendSucceeded):
        return step(state, MarkedHealthy(event.at, state.epoch), rules)
    return step(state, event, rules)


def never_trust_again(state: State, event: Event, rules: Rules) -> failover.Answer:
    if isinstance(state, Suspect) and isinstance(event, SendSucceeded):
        return state, ()
    return step(state, event, rules)


def return_at_the_first_ping(state: State, event: Event, rules: Rules) -> failover.Answer:
    if isinstance(state, FailedOver) and isinstance(event, PingSucceeded):
        state = replace(state, pings_needed=1)
    return step(state, event, rules)


def return_with_a_link(state: State, event: Event, rules: Rules) -> failover.Answer:
    if isinstance(event, LinkOpened):
        return step(state, PingSucceeded(event.at, event.epoch), rules)
    return step(state, event, rules)


def forget_that_a_trial_failed(state: State, event: Event, rules: Rules) -> failover.Answer:
    if isinstance(state, FailedOver) and isinstance(event, SendFailed) and event.epoch == state.epoch:
        return replace(state, is_tried=False), ()
    return step(state, event, rules)


def never_end_a_trial(state: State, event: Event, rules: Rules) -> failover.Answer:
    return (state, ()) if isinstance(event, TrialProvedNothing) else step(state, event, rules)


def let_everybody_try(state: State, at: float) -> bool:
    return isinstance(state, FailedOver) and state.is_ready


def forget_the_time(state: Healthy, event: Any, rules: Rules) -> failover.Answer:
    return Suspect(state.epoch, event.at, event.reason), ()


def go_on_pinging(state: FailedOver, event: Any, why: str) -> failover.Answer:
    return Healthy(state.epoch + 1), (PingPrimary(event.at + 1.0),)


def ping_no_more(*_: object) -> tuple[Effect, ...]:
    return ()


def use_lost_queues(self: Rotation, queue: int, at: float) -> bool:
    return queue in self._queues


def use_queues_that_are_gone(self: Rotation, queue: int, at: float) -> bool:
    lost = self._lost.get(queue)
    return lost is None or at >= lost.back_at


def doubt_nothing(self: Tries, failure: Failure, messages: int = 1) -> None:
    self.attempted()
    self.failures = [failure]


def try_for_ever(self: Tries, at: float) -> float:
    return self.rules.backoff_min_s


def try_again_at_once_when_busy(self: Tries, at: float) -> float | None:
    return 0.1 if self.in_round < self.rules.attempts else None


def serve_the_last_first(self: Line) -> int | None:
    return next(reversed(self._waiting), None)


def hold_everything(self: Line, size_bytes: int) -> bool:
    return True


def leave_without_a_word(self: Entity, ticket: int) -> tuple[Effect, ...]:
    self.line.leave(ticket)
    self.refresh()
    return ()


def stay_on_the_primary(self: Entity) -> NamespaceSide:
    return NamespaceSide.PRIMARY


def fail_over_when_busy(self: Pair, entity: Entity, failure: Failure) -> ErrorClass:
    opinion = JUDGE(self, entity, failure)
    return ErrorClass.DOWN if opinion is ErrorClass.BUSY else opinion


def raise_nothing(self: Pair, entity: Entity, failure: Failure) -> ErrorClass:
    opinion = JUDGE(self, entity, failure)
    return ErrorClass.DOWN if opinion is ErrorClass.RAISE else opinion


JUDGE = Pair.classify


def lose_nothing(self: Pair, queue: int, at: float, failure: Failure, generation: int | None = None) -> bool:
    return False


def blame_the_queue(failure: Failure) -> bool:
    return False


def let_them_sleep(self: Secondary) -> tuple[Effect, ...]:
    return ()


def try_without_a_pause(self: Secondary, chance: float) -> float:
    return 0.0


def knock_for_everybody(self: Secondary, at: float, *, can_try: bool) -> float | None:
    self.trial_at = None
    return 1.0 if can_try else None


def believe_the_hasty(self: Secondary, failure: Failure, had_s: float) -> bool:
    return False


def forgive_nothing(self: Rotation, since: float) -> list[int]:
    return []


def wait_for_nobody(self: SendFlow, queue: int | None) -> bool:
    return False


def wait_for_ever(self: SendFlow) -> float:
    return END_OF_WAIT(self) + 60


def wait_from_the_first_attempt_on(self: SendFlow) -> None:
    BEGIN_BATCH(self)
    self._secondary_until = self._end_of_wait()


BEGIN_BATCH, END_OF_WAIT = SendFlow._begin_batch, SendFlow._end_of_wait


def send_home_to_another(message: bytes, path: str) -> bytes:
    return address(message, "elsewhere")


def leave_the_session_where_it_is(message: bytes, layout: Any, path: str) -> Aliases:
    return MOVING(message, layout, path)._replace(session_id=None)


def leave_the_time_to_live_where_it_is(message: bytes, layout: Any, path: str) -> Aliases:
    return MOVING(message, layout, path)._replace(ttl_ms=None)


MOVING = envelope._moving


def name_the_next_queue(primary_name: str, index: int) -> str:
    return backlog_path(primary_name, index + 1)


RUN = SendFlow.run


def forget_what_was_tried(self: SendFlow, first: tuple[Answer, int] | None = None) -> Flow[SendReceipt]:
    return RUN(self, None)


def never_leave_the_line(self: SendFlow, first: tuple[Answer, int] | None = None) -> Flow[SendReceipt]:
    return self._send(first)


def hurry(self: SendFlow, search: Search) -> Flow[None]:
    search.busy = None
    return
    yield


def try_one_queue_only(self: SendFlow, search: Search) -> int | None:
    return None if search.failed else PICK(self, search)


PICK = SendFlow._pick


def overtake(self: SendFlow, *, pause_s: float) -> Flow[None]:
    if self.ticket is None:
        self._join_line()
    yield from self._pause(pause_s)


BUGS: list[tuple[object, str, object]] = [
    (entity_module, "step", count_whatever_comes),
    (entity_module, "step", trust_a_late_success),
    (entity_module, "step", never_trust_again),
    (entity_module, "step", return_at_the_first_ping),
    (entity_module, "step", return_with_a_link),
    (entity_module, "step", forget_that_a_trial_failed),
    (entity_module, "step", never_end_a_trial),
    (entity_module, "may_try", let_everybody_try),
    (failover, "_suspect", forget_the_time),
    (failover, "_recover", go_on_pinging),
    (failover, "_next_ping", ping_no_more),
    (Rotation, "is_available", use_lost_queues),
    (Rotation, "is_available", use_queues_that_are_gone),
    (Tries, "note", doubt_nothing),
    (Tries, "pause_before_next", try_for_ever),
    (Tries, "pause_when_busy", try_again_at_once_when_busy),
    (Line, "head", property(serve_the_last_first)),
    (Line, "has_room_for", hold_everything),
    (Entity, "leave_line", leave_without_a_word),
    (Entity, "side", property(stay_on_the_primary)),
    (Pair, "classify", fail_over_when_busy),
    (Pair, "classify", raise_nothing),
    (Pair, "queue_failed", lose_nothing),
    (send_flow, "is_about_the_secondary", blame_the_queue),
    (Secondary, "_rouse_all", let_them_sleep),
    (Secondary, "_next_pause_s", try_without_a_pause),
    (Secondary, "begin_trial", knock_for_everybody),
    (Secondary, "proves_nothing", believe_the_hasty),
    (Rotation, "forgive_silence", forgive_nothing),
    (SendFlow, "_must_wait_for_secondary", wait_for_nobody),
    (SendFlow, "_end_of_wait", wait_for_ever),
    (SendFlow, "_begin_batch", wait_from_the_first_attempt_on),
    (encoded_messages, "address", send_home_to_another),
    (envelope, "_moving", leave_the_session_where_it_is),
    (envelope, "_moving", leave_the_time_to_live_where_it_is),
    (send_flow, "backlog_path", name_the_next_queue),
    (SendFlow, "run", forget_what_was_tried),
    (SendFlow, "run", never_leave_the_line),
    (SendFlow, "_wait_while_busy", hurry),
    (SendFlow, "_pick", try_one_queue_only),
    (SendFlow, "_hold", overtake),
]


def name_of_bug(value: object) -> str:
    bug = value.fget if isinstance(value, property) else value
    return str(getattr(bug, "__name__", bug))


@pytest.mark.parametrize(("owner", "name", "bug"), BUGS, ids=name_of_bug)
def test_a_pair_that_breaks_a_promise_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, bug: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert found(f"pair: {name_of_bug(bug)}", first_pair_problem, SEEDS_TO_FIND_A_BUG) is not None


# --- the command ---


def test_the_command_prints_the_failing_pair_and_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Tries, "note", doubt_nothing)
    assert main(["--pair", "--seeds", "10", "--trace"]) == 1
    printed = capsys.readouterr().out
    assert "python -m sim --pair --first" in printed
    assert "ToPrimary(" in printed


def test_the_command_is_content_when_every_promise_of_a_pair_is_kept() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sim", "--pair", "--seeds", "2", "--first", "5"],
        cwd="tests",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "2 simulations, 0 with a problem" in done.stdout
