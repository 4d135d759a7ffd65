"""A secondary that cannot be connected to, in virtual time: sends wait for trials, and no queue is charged (P6)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from scripted_bus import NOBODY_THERE, OK, REFUSED, SILENT, Reply, ScriptedBus, fails

from twinbus.client.core.probes import try_secondary
from twinbus.client.flows.io_requests import OpenBacklog, ToBacklog
from twinbus.client.flows.send_flow import DOUBTS_MAX
from twinbus.errors import BothNamespacesUnavailable, NotSent
from twinbus.pairing.backlog.rotation import QueueChoice
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide

Kind = FailureKind
RULES = Rules(failover_interval_s=0, ping_interval_s=1_000, probation_s=60)
HASTY = replace(RULES, attempts=1, attempt_s=4)
LOST = fails(Kind.UNREACHABLE, "connection lost", in_doubt=True)


def failed_over(queues: int = 3, rules: Rules = RULES) -> ScriptedBus:
    """The primary is down, and everybody knows."""
    bus = ScriptedBus(rules, queues=queues)
    bus.primary.always = bus.probe.always = REFUSED
    bus.force_failover()
    return bus


@pytest.mark.parametrize("how", [REFUSED, NOBODY_THERE], ids=["refused", "silent"])
def test_a_secondary_away_for_a_second_is_used_within_two_seconds_of_its_return(how: object) -> None:
    bus = failed_over(10)
    bus.sent("before")
    bus.unplug_secondary(how)  # type: ignore[arg-type]
    began = bus.at
    bus.later(began + 1, bus.plug_in_secondary)
    calls = []
    for number in range(100):
        bus.later(began + number / 100, lambda: calls.append(bus.send("a")))
    bus.run_until(began + 1)
    bus.run()
    ends = [call.ended_at for call in calls if call.ended_at is not None]
    assert all(call.receipt.side is NamespaceSide.BACKLOG for call in calls)
    silent_s = RULES.attempt_s if how is NOBODY_THERE else 0  # so long the first ones do not know
    assert max(ends) <= began + max(1, silent_s) + 2
    assert not bus.events_named("backlog_queue_lost")


def test_every_queue_can_be_chosen_when_it_is_back() -> None:
    bus = failed_over(10)
    bus.unplug_secondary()
    bus.later(1, bus.plug_in_secondary)
    choices = [QueueChoice() for _ in range(30)]
    bus.chances = iter([number / 30 for number in range(30)] * 50)
    for choice in choices:
        bus.send("a", choice=choice)
    bus.run()
    assert bus.pair.rotation.lost == {}
    assert len({where for where, _ in bus.stored}) > 3


def test_trials_open_a_link_and_send_nothing_one_at_a_time() -> None:
    bus = failed_over(10)
    bus.unplug_secondary(NOBODY_THERE)
    bus.pair.secondary_failed(0, 0, bus.backlog[0].always.failure, 0.0)  # type: ignore[arg-type]
    for _ in range(20):
        bus.send("a", timeout_s=8)
    bus.run()
    asked = bus.asks(OpenBacklog)
    assert {asked.ask.timeout_s for asked in asked if isinstance(asked.ask, OpenBacklog)} == {1.0}
    assert all(later.at - earlier.at >= 1.0 for earlier, later in pairwise(asked))
    assert bus.asks(ToBacklog) == []


def test_whoever_waits_goes_on_at_the_moment_a_trial_connects() -> None:
    bus = failed_over()
    bus.unplug_secondary()
    calls = [bus.send("a") for _ in range(5)]
    bus.later(0.5, bus.plug_in_secondary)
    bus.run()
    (back,) = bus.events_named("secondary_back")
    assert [call.ended_at for call in calls] == [back.at] * 5
    assert back.at < 0.7


def test_a_send_waits_as_long_as_its_caller_and_says_both_reasons() -> None:
    bus = failed_over()
    bus.unplug_secondary()
    call = bus.sent("a", timeout_s=8)
    assert isinstance(call.error, BothNamespacesUnavailable)
    assert call.ended_at == 8
    assert call.error.primary_reason == "forced"
    assert call.error.secondary_reason == "unreachable: connection refused"
    assert call.error.receipt is not None
    assert (call.error.receipt.accepted, call.error.receipt.in_doubt) == (0, False)


def test_without_a_timeout_it_waits_as_long_as_the_attempts_of_the_schedule() -> None:
    bus = failed_over(rules=Rules(failover_interval_s=0, ping_interval_s=1_000, attempts=2, attempt_s=4))
    bus.unplug_secondary()
    call = bus.sent("a")
    assert isinstance(call.error, BothNamespacesUnavailable)
    assert call.ended_at == 2 * 4


@pytest.mark.parametrize("is_link_open", [False, True], ids=["no-link-yet", "link-was-open"])
def test_the_wait_is_counted_from_its_beginning_and_not_from_that_of_the_send(is_link_open: bool) -> None:
    """A first attempt that nobody answers takes all its time; that is not time in which trials were waited for."""
    bus = failed_over(1, HASTY)
    bus.unplug_secondary(NOBODY_THERE)
    if is_link_open:
        bus.backlog[0].always = SILENT
    call = bus.send("a")
    bus.later(HASTY.attempt_s + 0.5, bus.plug_in_secondary)
    bus.run()
    assert call.receipt.side is NamespaceSide.BACKLOG
    assert bus.asks(OpenBacklog)


def test_a_wait_that_began_after_a_silent_attempt_ends_after_its_own_time() -> None:
    bus = failed_over(1, HASTY)
    bus.unplug_secondary(NOBODY_THERE)
    call = bus.sent("a")
    assert isinstance(call.error, BothNamespacesUnavailable)
    assert call.ended_at == 2 * HASTY.attempt_s, "one attempt, and one attempt's time of waiting"


def test_the_timeout_of_the_caller_counts_from_the_beginning_of_the_send() -> None:
    bus = failed_over(1, HASTY)
    bus.unplug_secondary(NOBODY_THERE)
    call = bus.sent("a", timeout_s=6)
    assert isinstance(call.error, BothNamespacesUnavailable)
    assert call.ended_at == 6


def test_a_queue_that_may_be_used_again_by_the_end_of_the_wait_is_tried() -> None:
    """It was lost to somebody else, and the trial that is waited for is not over yet."""
    bus = failed_over(2, replace(HASTY, attempt_s=0.5, probation_s=0.7))
    for place in (bus.backlog[0], *bus.links):
        place.always = SILENT
    call = bus.send("a", choice=_choice(0))
    bus.later(0.2, lambda: bus.pair.queue_failed(1, 0.2, Failure(Kind.FULL, "5 GB")))
    bus.run()
    assert call.receipt.places == ("contoso/x-servicebus-transfer/1",)
    assert call.ended_at == 1.0


def test_a_send_that_comes_later_waits_too_and_needs_no_second_outage() -> None:
    bus = failed_over()
    bus.unplug_secondary()
    assert bus.sent("a", timeout_s=3).error is not None
    bus.run_until(600)
    bus.plug_in_secondary()
    call = bus.sent("b")
    assert call.receipt.side is NamespaceSide.BACKLOG
    assert call.ended_at == 600


def test_if_the_primary_is_back_first_the_message_goes_there_at_once() -> None:
    bus = failed_over()
    bus.unplug_secondary()
    call = bus.send("a")
    bus.primary.always = OK
    bus.later(1.234, bus.mark_healthy)
    bus.run()
    assert call.receipt.side is NamespaceSide.PRIMARY
    assert call.ended_at == 1.234


def test_of_a_call_in_parts_the_rest_waits_for_the_secondary() -> None:
    bus = failed_over()
    bus.backlog[1].says(OK, REFUSED)
    call = bus.send("a", "b", "c", per_batch=1)
    bus.run()
    assert call.receipt.accepted == 3
    assert not bus.events_named("backlog_queue_lost")


def test_a_connection_that_is_lost_in_the_middle_again_and_again_makes_few_copies() -> None:
    bus = failed_over()
    for queue in bus.backlog:
        queue.always = LOST
    call = bus.sent("a")
    assert isinstance(call.error, BothNamespacesUnavailable)
    assert call.error.receipt is not None
    assert call.error.receipt.copies_in_doubt == DOUBTS_MAX


def test_a_closed_client_does_not_wait() -> None:
    bus = failed_over()
    bus.unplug_secondary()
    call = bus.send("a")
    bus.later(0.1, bus.close)
    bus.run()
    assert isinstance(call.error, NotSent)
    assert str(call.error).startswith("not sent: the client was closed; the secondary's reason: unreachable")
    assert call.ended_at == 0.1
    assert not bus.pair.secondary.waiting


def test_silence_of_every_queue_is_the_secondarys_and_a_send_waits_it_out() -> None:
    """Links that were open when it fell silent give no answer; only a new connection shows whose silence it is."""
    bus = failed_over(2, Rules(failover_interval_s=0, ping_interval_s=1_000, probation_s=60, attempt_s=5, attempts=3))
    for queue in bus.backlog:
        queue.always = SILENT
    for link in bus.links:
        link.always = NOBODY_THERE
    calls = [bus.send("a", choice=_choice(queue)) for queue in (0, 1)]
    bus.later(8, bus.plug_in_secondary)
    bus.run()
    assert [call.receipt.side for call in calls] == [NamespaceSide.BACKLOG] * 2
    assert bus.pair.rotation.lost == {}
    assert bus.at < 11


def _choice(queue: int) -> QueueChoice:
    choice = QueueChoice()
    choice.queue = queue
    return choice


def test_a_queue_whose_silence_was_the_secondarys_is_tried_again_even_if_it_was_lost_for_something_else() -> None:
    bus = failed_over(1, replace(RULES, probation_s=1, attempt_s=5))
    bus.backlog[0].says(SILENT)
    call = bus.send("a")
    bus.later(1, lambda: bus.pair.secondary_failed(1, 0, Failure(Kind.UNREACHABLE, "refused"), 0.5))
    bus.later(2, lambda: bus.pair.trial_connected(2))
    bus.later(3, lambda: bus.pair.queue_failed(0, 3, Failure(Kind.DISABLED, "switched off for a moment")))
    bus.run()
    assert call.receipt.side is NamespaceSide.BACKLOG
    assert call.ended_at == 5


def test_a_single_queue_that_is_silent_alone_is_lost_after_one_trial() -> None:
    bus = failed_over(1)
    bus.backlog[0].always = SILENT
    call = bus.sent("a")
    assert isinstance(call.error, BothNamespacesUnavailable)
    assert call.ended_at == RULES.attempt_s
    assert bus.queues_asked() == [0]
    assert len(bus.asks(OpenBacklog)) == 1


def test_a_trial_that_is_refused_by_a_queue_shows_that_somebody_is_there() -> None:
    bus = failed_over(2)
    bus.unplug_secondary()
    call = bus.send("a", choice=_choice(1))
    bus.plug_in_secondary()
    bus.links[1].always = bus.backlog[1].always = fails(Kind.DISABLED, "switched off")
    bus.run()
    assert call.receipt.places == ("contoso/x-servicebus-transfer/0",)
    assert [heard.details["queue"] for heard in bus.events_named("backlog_queue_lost")] == [1]


@pytest.mark.parametrize("how", [NOBODY_THERE, SILENT], ids=["no-link-yet", "link-was-open"])
def test_an_attempt_with_hardly_any_time_left_is_no_proof_against_secondary_or_queue(how: Reply) -> None:
    """Who waited for a trial may have too little time left for a connection; a trial has a second."""
    bus = failed_over(2)
    bus.backlog[0].says(how)
    late, choice = bus.send("a", choice=_choice(0), timeout_s=0.3), _choice(0)
    bus.run()
    assert isinstance(late.error, BothNamespacesUnavailable)
    assert "nobody answered" in late.error.secondary_reason
    assert (late.ended_at, bus.events_named("secondary_unreachable", "backlog_queue_lost")) == (0.3, [])
    assert bus.sent("b", choice=choice).receipt.side is NamespaceSide.BACKLOG
    assert [asked.at for asked in bus.asks(OpenBacklog)] == [0.3], "a trial shows whether anybody is there"


def test_if_a_trial_finds_nobody_either_the_secondary_is_away() -> None:
    bus = failed_over(2)
    bus.unplug_secondary(NOBODY_THERE)
    bus.sent("a", timeout_s=0.3)
    bus.run_until(2.0)
    assert bus.events_named("secondary_unreachable")[0].at == 1.3
    assert bus.pair.rotation.lost == {}


def test_a_sender_that_has_little_time_goes_to_another_queue_after_one_that_was_silent() -> None:
    bus = failed_over(2)
    bus.backlog[0].always = SILENT
    choice = _choice(0)
    assert bus.sent("a", choice=choice, timeout_s=0.3).error is not None
    assert bus.sent("b", choice=choice, timeout_s=0.3).receipt.places == ("contoso/x-servicebus-transfer/1",)


@pytest.mark.parametrize("timeout_s", [0.4, 0.9, 0.999])
def test_a_queue_that_is_silent_again_and_again_leaves_the_rotation_however_little_time_callers_have(
    timeout_s: float,
) -> None:
    bus = failed_over(10)
    bus.backlog[0].always = SILENT
    calls = [bus.sent(f"m{number}", choice=_choice(0), timeout_s=timeout_s) for number in range(50)]
    assert [call.error is None for call in calls] == [False] * 3 + [True] * 47
    [lost] = bus.events_named("backlog_queue_lost")
    assert (lost.details["queue"], lost.details["kind"]) == (0, "no answer in time")
    assert bus.events_named("secondary_unreachable") == []


def test_the_only_queue_that_is_silent_again_and_again_is_reported() -> None:
    bus = failed_over(1)
    bus.backlog[0].always = SILENT
    calls = [bus.sent(f"m{number}", timeout_s=0.9) for number in range(20)]
    assert all(isinstance(call.error, BothNamespacesUnavailable) for call in calls)
    assert len(bus.events_named("backlog_queue_lost")) == 1
    assert bus.queues_asked() == [0] * 3, "then nobody waits for it in vain"


def test_many_callers_whose_little_time_ends_together_are_one_attempt_and_no_proof() -> None:
    """So it is when the secondary is back: all of them connect at once."""
    bus = failed_over(2)
    bus.backlog[0].always = SILENT
    for number in range(50):
        bus.send(f"m{number}", choice=_choice(0), timeout_s=0.9 - number / 100)
    bus.run()
    bus.backlog[0].always = OK
    assert (bus.events_named("backlog_queue_lost", "secondary_unreachable"), bus.pair.rotation.lost) == ([], {})
    assert bus.sent("b", choice=_choice(0)).receipt.places == ("contoso/x-servicebus-transfer/0",)


def test_a_queue_that_takes_something_in_between_is_not_silent() -> None:
    bus = failed_over(2)
    for _ in range(10):
        bus.backlog[0].says(SILENT, SILENT, OK)
    for number in range(30):
        bus.sent(f"m{number}", choice=_choice(0), timeout_s=0.9)
    assert bus.events_named("backlog_queue_lost") == []
    assert len(bus.stored) == 10


def test_if_the_secondary_as_a_whole_is_silent_callers_with_little_time_charge_no_queue() -> None:
    bus = failed_over(2)
    bus.unplug_secondary(NOBODY_THERE)
    for queue in bus.backlog:
        queue.always = SILENT
    for number in range(20):
        bus.sent(f"m{number}", choice=_choice(0), timeout_s=0.3)
    assert bus.events_named("backlog_queue_lost") == []
    assert len(bus.events_named("secondary_unreachable")) == 1


def test_held_sends_wait_for_the_secondary_in_their_order() -> None:
    bus = ScriptedBus(Rules(failover_interval_s=3, ping_interval_s=1_000, attempts=1, hold_sends=True), queues=3)
    bus.primary.always = bus.probe.always = REFUSED
    bus.unplug_secondary()
    calls = [bus.send(name) for name in "abc"]
    bus.later(5, bus.plug_in_secondary)
    bus.run()
    assert [call.receipt.side for call in calls] == [NamespaceSide.BACKLOG] * 3
    assert [each for _, each in bus.stored] == ["a", "b", "c"]


def test_a_trial_that_is_cut_short_does_not_keep_others_from_trying() -> None:
    bus = failed_over()
    bus.unplug_secondary()
    bus.send("a")
    bus.run_until(0.1)  # it was refused, and waits
    trial = try_secondary(bus.pair, 0.5)
    next(trial)
    trial.close()
    assert bus.pair.begin_trial(0.5)[0] is not None
