"""What simulated senders put into their spools comes home, however often they are killed; or the simulator notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from seeds import found, seed_count

from sim.__main__ import main
from sim.runner import first_spool_problem, run_spool_seed
from twinbus.client.flows.send_flow import SendFlow
from twinbus.client.flows.send_record import SendRecord
from twinbus.pairing.sending.failure import Failure
from twinbus.spool.contents import SpoolContents
from twinbus.syphon.pump.backlog_message import HeldMessage
from twinbus.syphon.pump.batch_sender import BatchSender
from twinbus.syphon.pump.spool_pump import SpoolPump

SEEDS, CHUNK = seed_count(20, 1_000), 20
SEEDS_TO_FIND_A_BUG = 600


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_everything_that_a_spool_took_comes_home_through_kills_and_outages(first: int) -> None:
    outcome = first_spool_problem(range(first, first + CHUNK))
    assert outcome is None, f"{outcome.problem}\nagain: {outcome.replay}"


def test_a_seed_of_a_spool_always_gives_the_same_trace() -> None:
    assert run_spool_seed(7) == run_spool_seed(7)


@pytest.mark.long
def test_simulated_spools_meet_what_they_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(200):
        seen += run_spool_seed(seed).seen
    for what in (
        "accepted by spool",
        "kills with messages in the spool",
        "taken over",
        "refused by a full spool",
        "expired on the way",
        "event: spooling",
        "event: recovered",
        "syphon: links lost",
    ):
        assert seen[what] > 10, what


def test_the_command_simulates_spools(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--spool", "--seeds", "2"]) == 0
    assert "2 simulations, 0 with a problem" in capsys.readouterr().out


# --- planted bugs: each of these must be found ---

PUT, PARK = SpoolContents.put, BatchSender._park


def accept_before_it_is_written(
    self: SpoolContents, entity: str, encoded: Sequence[bytes], on_done: Callable[[Failure | None], None]
) -> None:
    PUT(self, entity, encoded, lambda _: None)
    on_done(None)


def take_whatever_comes(self: SpoolContents, more: int) -> None:
    return


def forget_what_was_there_before(self: SpoolContents) -> None:
    return


def give_all_of_its_time_again(self: HeldMessage, now_ms: int) -> int | None:
    return None


def open_it_on_the_detour(self: SpoolPump, held: HeldMessage, now_ms: int) -> bytes:
    return held.encode_for_primary(now_ms)


def complete_what_is_in_doubt(self: SpoolPump, messages: Sequence[HeldMessage], now_ms: int) -> None:
    for held in messages:
        if not held.lock_batch.is_lost:
            held.lock_batch.messages.pop(held.number, None)
            held.lock_batch.queue.stored.append(held.number)


def refuse_what_can_wait(self: SpoolPump, held: HeldMessage, now_ms: int) -> None:
    self._refuse(held, "TwinbusRefused", "it cannot go on now", now_ms)


def leave_the_spool_alone(self: SendFlow, secondary_reason: str, spool_reason: str | None = None) -> Any:
    SendRecord._raise_both(self, secondary_reason, spool_reason)


def put_it_under_another_name(
    self: SpoolContents, entity: str, encoded: Sequence[bytes], on_done: Callable[[Failure | None], None]
) -> None:
    PUT(self, entity, [message.replace(b"orders", b"audits") for message in encoded], on_done)


BUGS: list[tuple[object, str, Callable[..., object]]] = [
    (SpoolContents, "put", accept_before_it_is_written),
    (SpoolContents, "put", put_it_under_another_name),
    (SpoolContents, "_check_room", take_whatever_comes),
    (SpoolContents, "read_queues", forget_what_was_there_before),
    (HeldMessage, "_ttl_left_ms", give_all_of_its_time_again),
    (SpoolPump, "_payload", open_it_on_the_detour),
    (SpoolPump, "_park_doubted", complete_what_is_in_doubt),
    (SpoolPump, "_park", refuse_what_can_wait),
    (SendFlow, "_raise_both", leave_the_spool_alone),
]


@pytest.mark.parametrize(("owner", "name", "bug"), BUGS, ids=lambda each: getattr(each, "__name__", str(each)))
def test_a_spool_that_breaks_a_promise_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, bug: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert found(f"spool: {bug.__name__}", first_spool_problem, SEEDS_TO_FIND_A_BUG) is not None
