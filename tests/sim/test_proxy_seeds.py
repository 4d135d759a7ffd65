"""Applications behind a simulated proxy get what they were promised, whatever fails; or the simulator notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from seeds import found, seed_count

from sim.__main__ import main
from sim.proxy_world import ProxyWorld
from sim.runner import STEPS, first_proxy_problem, run_proxy_seed
from twinbus.amqp.codec.outcomes import ACCEPTED
from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.broker.links.backend import ReadTransfer
from twinbus.broker.links.request_messages import Request
from twinbus.broker.operations import ReceiverDrained, Refused, Settled, SettlementOutcome
from twinbus.pairing.sending.failure import Failure
from twinbus.proxy.relay.relay import Relay, RelayedReceiver
from twinbus.proxy.relay.upstream import UpstreamConnections
from twinbus.proxy.sending.pair_client import ProxySends
from twinbus.proxy.sending.routing import DONE, DirectSend, EntitySends, OnReplies, Reply, SplitBatch
from twinbus.spool.contents import SpoolContents
from twinbus.transport.links.link_handler import LinkHandler

SEEDS, CHUNK = seed_count(5, 600), 5
SEEDS_TO_FIND_A_BUG = 200


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_applications_behind_a_proxy_get_what_they_were_promised(first: int) -> None:
    outcome = first_proxy_problem(range(first, first + CHUNK))
    assert outcome is None, f"{outcome.problem}\nagain: {outcome.replay}"


def test_a_seed_of_a_proxy_always_gives_the_same_trace() -> None:
    first, second = ProxyWorld(11), ProxyWorld(11)
    first.run(STEPS)
    second.run(STEPS)
    assert first.accounts.trace == second.accounts.trace
    assert first.seen == second.seen


@pytest.mark.long
def test_simulated_proxies_meet_what_they_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100):
        seen += run_proxy_seed(seed).seen
    for what in (
        "applications vanished",
        "confirmed: Abandon",
        "confirmed: Complete",
        "confirmed: DeadLetter",
        "confirmed: Defer",
        "connections lost",
        "deferred messages received",
        "deliveries repeated",
        "detached: amqp:link:detach-forced",
        "drained",
        "event: failed_over",
        "event: in_doubt",
        "event: recovered",
        "messages accepted by the backlog",
        "messages accepted by the spool",
        "messages brought home",
        "messages in a spool that is taken over",
        "primary: died",
        "primary: disk failed",
        "primary: silent",
        "proxy: died",
        "received and deleted",
        "receivers at rest",
        "refused: com.microsoft:message-lock-lost",
        "response: renew-lock 200",
        "response: schedule-message 200",
        "secondary: died",
        "senders in order",
        "sessions accepted",
    ):
        assert seen[what] > 5, what


def test_the_command_simulates_proxies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--proxy", "--seeds", "2", "--steps", "50"]) == 0
    assert "2 simulations, 0 with a problem" in capsys.readouterr().out


# --- planted bugs: each of these must be found ---

TAKE_EACH, FAILED = EntitySends.take_each, EntitySends.failed
SETTLE, GRANT = RelayedReceiver.settle, RelayedReceiver.grant
TRANSFERS, DISPOSITION = RelayedReceiver.on_transfers, RelayedReceiver.on_disposition
SPOOL_PUT = SpoolContents.put


def accept_before_it_is_stored(
    self: EntitySends, transfers: Sequence[ReadTransfer], at: float, on_replies: OnReplies
) -> None:
    TAKE_EACH(self, transfers, at, lambda _tickets, _reply: None)
    on_replies(transfers, DONE)


def drop_what_a_lost_link_did_not_answer(self: EntitySends, send: DirectSend, failure: Failure, at: float) -> None:
    if not failure.is_connection:
        FAILED(self, send, failure, at)


def accept_what_failed(self: EntitySends, send: DirectSend, failure: Failure, at: float) -> None:
    self._end(send, DONE, len(send.arrivals))


def answer_with_the_first_part(self: SplitBatch, reply: Reply, accepted: int) -> None:
    self._left -= 1
    if self._left == len(self.parts) - 1:
        self.whole.answer(reply, accepted)


def confirm_before_the_primary_does(
    self: RelayedReceiver,
    tokens: tuple[bytes, ...],
    outcome: SettlementOutcome,
    on_reply: Callable[[Settled | Refused], None] | None,
) -> None:
    SETTLE(self, tokens, outcome, None if on_reply is None else lambda _reply: None)
    if on_reply is not None:
        on_reply(Settled({}))


def settle_the_one_before(self: RelayedReceiver, transfers: list[TransferArrived]) -> None:
    TRANSFERS(self, transfers)
    held = list(self._deliveries)
    if len(held) > 1:
        mine, other = self._deliveries[held[-1]], self._deliveries[held[-2]]
        self._deliveries[held[-1]], self._deliveries[held[-2]] = other, mine


def pass_messages_on_in_another_order(self: RelayedReceiver, transfers: list[TransferArrived]) -> None:
    TRANSFERS(self, transfers[::-1])


def lose_a_refusal(self: RelayedReceiver, event: DispositionArrived) -> None:
    DISPOSITION(self, replace(event, outcome=ACCEPTED))


def pass_a_little_less_credit_on(self: RelayedReceiver, credit_limit: int, drain: bool) -> None:
    GRANT(self, credit_limit - 1, drain)


def lose_the_credit_of_a_drain(self: RelayedReceiver, credit_limit: int, drain: bool) -> None:
    GRANT(self, self._credit_limit if drain else credit_limit, drain)


def say_drained_and_keep_the_credit(self: RelayedReceiver) -> None:
    LinkHandler.on_drained(self)
    self._drained_limit, self._wants_drain = None, False
    self._notify(ReceiverDrained(self._number))


def keep_lost_receivers(self: Relay, receiver: int) -> None:
    return


def never_read_again(self: UpstreamConnections, connection: int) -> None:
    return


def leave_the_link_open(self: UpstreamConnections, connection: int, link: object) -> None:
    return


def keep_the_connection(self: UpstreamConnections, connection: int) -> None:
    return


def ask_the_primary_for_what_is_in_the_backlog(self: ProxySends, request: Request) -> bytes | None:
    return None


def accept_before_it_is_in_the_spool(
    self: SpoolContents, entity: str, encoded: Sequence[bytes], on_done: Callable[[Failure | None], None]
) -> None:
    SPOOL_PUT(self, entity, encoded, lambda _: None)
    on_done(None)


def forget_what_was_in_the_spool(self: SpoolContents) -> None:
    return


BUGS: list[tuple[object, str, Callable[..., object]]] = [
    (EntitySends, "take_each", accept_before_it_is_stored),
    (EntitySends, "failed", drop_what_a_lost_link_did_not_answer),
    (EntitySends, "failed", accept_what_failed),
    (SplitBatch, "answered", answer_with_the_first_part),
    (RelayedReceiver, "settle", confirm_before_the_primary_does),
    (RelayedReceiver, "on_transfers", settle_the_one_before),
    (RelayedReceiver, "on_transfers", pass_messages_on_in_another_order),
    (RelayedReceiver, "on_disposition", lose_a_refusal),
    (RelayedReceiver, "grant", pass_a_little_less_credit_on),
    (RelayedReceiver, "grant", lose_the_credit_of_a_drain),
    (RelayedReceiver, "on_drained", say_drained_and_keep_the_credit),
    (Relay, "_forget", keep_lost_receivers),
    (UpstreamConnections, "resume", never_read_again),
    (UpstreamConnections, "close_link", leave_the_link_open),
    (UpstreamConnections, "close", keep_the_connection),
    (ProxySends, "cancel_refusal", ask_the_primary_for_what_is_in_the_backlog),
    (SpoolContents, "put", accept_before_it_is_in_the_spool),
    (SpoolContents, "read_queues", forget_what_was_in_the_spool),
]


@pytest.mark.parametrize(("owner", "name", "bug"), BUGS, ids=lambda each: getattr(each, "__name__", str(each)))
def test_a_proxy_that_breaks_a_promise_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, bug: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert found(f"proxy: {bug.__name__}", first_proxy_problem, SEEDS_TO_FIND_A_BUG) is not None
