"""A pair and its entities: what is known, counted and ordered."""

from __future__ import annotations

from itertools import count

import pytest

from twinbus.pairing.effects import Effect, ForgetWake, PingPrimary, ReportEvent, StopPings, WakeMe, WakeWaiter
from twinbus.pairing.entity import Entity, name_of
from twinbus.pairing.events import FailoverForced, MarkedHealthy, PingFailed, PingSucceeded, SendSucceeded
from twinbus.pairing.failover import FailedOver, Healthy, Suspect
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.error_class import ErrorClass
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide

REFUSED = Failure(FailureKind.UNREACHABLE, "connection refused")
FULL = Failure(FailureKind.FULL, "5 GB are used")


def pair(**rules: float) -> Pair:
    made = Pair(Rules(**rules), entities=["orders"], name="contoso")  # type: ignore[arg-type]
    made.use_queues(range(3), {}, 0.0)
    return made


def effects_of(pair: Pair) -> list[Effect]:
    return [effect for _, effect in pair.take_orders()]


def reported(pair: Pair) -> list[str]:
    return [effect.name for effect in effects_of(pair) if isinstance(effect, ReportEvent)]


# --- entities ---


def test_names_that_differ_by_case_alone_are_one_entity() -> None:
    core = pair()
    assert core.entity("Orders") is core.entity("ORDERS")
    assert [entity.path for entity in core.entities] == ["orders"]


def test_one_entity_failing_says_nothing_of_another() -> None:
    core = pair(failover_interval_s=0)
    core.send_failed(core.entity("orders"), 1, 0, REFUSED, 0.5)
    assert core.entity("orders").side is NamespaceSide.BACKLOG
    assert core.entity("invoices").side is NamespaceSide.PRIMARY


def test_sends_may_go_straight_only_while_nothing_is_to_be_decided() -> None:
    core = pair(failover_interval_s=60)
    orders = core.entity("orders")
    assert orders.is_plain
    core.send_failed(orders, 1, 0, REFUSED, 0.5)
    assert not orders.is_plain
    ticket = orders.line.join(10)
    core.sent(orders, 2, 0, 1, 0.5)
    assert not orders.is_plain, "somebody waits: nobody may overtake"
    orders.leave_line(ticket)
    assert orders.is_plain


def test_every_send_is_looked_at_where_the_error_rate_counts() -> None:
    orders = Entity("orders", Rules(error_rate=0.5), count(1))
    orders.refresh()
    assert not orders.is_plain


def test_an_entity_says_why_it_is_not_healthy() -> None:
    core = pair(failover_interval_s=60)
    orders = core.entity("orders")
    assert orders.reason == ""
    core.send_failed(orders, 1, 0, REFUSED, 0.5)
    assert orders.reason == "unreachable: connection refused"


@pytest.mark.parametrize(
    ("state", "name"),
    [(Healthy(), "healthy"), (Suspect(0, 0, ""), "suspect"), (FailedOver(1, 0, ""), "failed over")],
)
def test_states_have_names_that_people_use(state: Healthy | Suspect | FailedOver, name: str) -> None:
    assert name_of(state) == name


def test_the_next_ping_is_known_while_there_is_one() -> None:
    core = pair(failover_interval_s=0, ping_interval_s=30)
    orders = core.entity("orders")
    core.send_failed(orders, 10, 0, REFUSED, 0.5)
    assert orders.next_ping_at == 40
    core.feed(orders, PingFailed(41, 1, "still down"))
    assert orders.next_ping_at == 71
    core.feed(orders, PingSucceeded(72, 1))
    assert orders.next_ping_at is None


def test_pings_failovers_and_recoveries_are_counted() -> None:
    core = pair(failover_interval_s=0)
    orders = core.entity("orders")
    core.send_failed(orders, 1, 0, REFUSED, 0.5)
    core.feed(orders, PingFailed(2, 1, "still down"))
    assert orders.last_ping_failure == "still down"
    core.feed(orders, PingSucceeded(3, 1))
    core.feed(orders, PingSucceeded(4, 1))  # late: it is of an epoch that is over
    tally = orders.tally
    assert (tally.failovers, tally.recoveries, tally.pings, tally.pings_failed) == (1, 1, 2, 1)
    assert orders.last_ping_failure is None


def test_trusting_a_suspect_again_is_no_recovery() -> None:
    core = pair(failover_interval_s=60)
    orders = core.entity("orders")
    core.send_failed(orders, 1, 0, REFUSED, 0.5)
    core.feed(orders, MarkedHealthy(2, 0))
    core.feed(orders, FailoverForced(3, 1, "drill"))
    assert (orders.tally.recoveries, orders.tally.failovers, orders.rate.flaps) == (0, 1, 0)


@pytest.mark.parametrize("good", [SendSucceeded(2, 0), MarkedHealthy(2, 0), FailoverForced(2, 0, "drill")])
def test_the_first_in_line_is_roused_as_soon_as_a_suspicion_ends(
    good: SendSucceeded | MarkedHealthy | FailoverForced,
) -> None:
    core = pair(failover_interval_s=60)
    orders = core.entity("orders")
    core.send_failed(orders, 1, 0, REFUSED, 0.5)
    first, _ = orders.line.join(10), orders.line.join(10)
    core.take_orders()
    core.feed(orders, good)
    assert [effect for effect in effects_of(core) if isinstance(effect, WakeWaiter)] == [WakeWaiter(first)]


def test_the_next_in_line_is_roused_when_the_first_leaves() -> None:
    orders = Entity("orders", Rules(), count(1))
    first, second, third = (orders.line.join(10) for _ in range(3))
    assert orders.leave_line(second) == ()
    assert orders.leave_line(first) == (WakeWaiter(third),)
    assert orders.leave_line(third) == ()


# --- sends ---


def test_failures_and_successes_become_orders_for_the_shell() -> None:
    core = pair(failover_interval_s=60, ping_interval_s=30)
    orders = core.entity("orders")
    core.send_failed(orders, 1, 0, REFUSED, 0.5)
    assert core.has_orders
    assert effects_of(core)[0] == WakeMe(61)
    core.sent(orders, 2, 0, 7, 0.5)
    assert effects_of(core)[0] == ForgetWake()
    assert orders.tally.to_primary == 7
    core.feed(orders, FailoverForced(3, 0, "drill"))
    assert PingPrimary(33) in effects_of(core)
    core.feed(orders, MarkedHealthy(4, 1))
    assert StopPings() in effects_of(core)
    assert not core.has_orders


def test_copies_in_doubt_are_counted_and_reported_with_their_ids() -> None:
    core = pair()
    core.doubted(core.entity("orders"), Failure(FailureKind.NO_ANSWER, "silence", in_doubt=True), ["a", "b"], "primary")
    ((entity, effect),) = core.take_orders()
    assert entity is core.entity("orders")
    assert isinstance(effect, ReportEvent)
    assert (effect.name, effect.details["message_ids"], effect.details["side"]) == ("in_doubt", ("a", "b"), "primary")
    assert core.entity("orders").tally.in_doubt == 2


def test_a_warning_is_given_once_for_each_entity() -> None:
    core = pair()
    for path in ("orders", "orders", "invoices"):
        core.warn_once(core.entity(path), "too_large_for_detour", "it is")
    assert reported(core) == ["too_large_for_detour"] * 2


# --- the error rate ---


def brown_out(core: Pair, at: float, sends: int = 20) -> None:
    orders = core.entity("orders")
    for number in range(sends):
        if number % 4:
            core.send_failed(orders, at + number / 100, orders.epoch, REFUSED, 0.5)
        else:
            core.sent(orders, at + number / 100, orders.epoch, 1, 0.5)


def test_an_entity_that_fails_most_sends_is_failed_over_though_no_suspicion_lasts() -> None:
    core = pair(failover_interval_s=60, error_rate=0.6, error_sends_min=10)
    brown_out(core, 0, 8)
    assert core.entity("orders").side is NamespaceSide.PRIMARY
    brown_out(core, 1)
    assert core.entity("orders").side is NamespaceSide.BACKLOG
    assert core.entity("orders").reason == "70% of the last sends failed"


def test_without_that_option_it_is_not() -> None:
    core = pair(failover_interval_s=60)
    brown_out(core, 0, 200)
    assert core.entity("orders").side is NamespaceSide.PRIMARY


def test_flaps_are_counted_reported_and_damped() -> None:
    core = pair(failover_interval_s=60, error_rate=0.6, error_sends_min=10, ping_interval_s=30)
    orders, needed = core.entity("orders"), []
    for at in (0, 100, 200):
        brown_out(core, at)
        state = orders.state
        assert isinstance(state, FailedOver)
        needed.append(state.pings_needed)
        for number in range(state.pings_needed):
            core.feed(orders, PingSucceeded(at + 50 + number, state.epoch))
        assert orders.side is NamespaceSide.PRIMARY
    assert needed == [1, 2, 4]
    assert orders.rate.flaps == 2
    assert reported(core).count("flapping") == 2


# --- backlog queues ---


def test_losing_a_queue_and_having_it_back_is_reported() -> None:
    core = pair()
    core.queue_failed(1, 5, FULL)
    core.queue_failed(1, 6, FULL)
    assert reported(core) == ["backlog_queue_lost"]
    core.queue_took(core.entity("orders"), 1, 3, 61.0)
    assert reported(core) == ["backlog_queue_back"]
    assert core.entity("orders").tally.to_backlog == 3


def test_queues_that_cannot_be_used_when_pairing_begin_outside_the_rotation() -> None:
    core = pair()
    core.use_queues([0, 1], {1: FULL}, 5)
    assert core.rotation.available(6) == [0]
    core.use_queues([0, 1], {}, 10)
    assert core.rotation.available(11) == [0, 1]


# --- a classifier of the application ---


@pytest.mark.parametrize("answer", [True, "down", 0])
def test_a_classifier_that_returns_no_error_class_is_passed_over_and_reported_once(answer: object) -> None:
    core = Pair(Rules(), entities=["orders"], classifier=lambda _: answer)  # type: ignore[arg-type, return-value]
    orders = core.entity("orders")
    assert [core.classify(orders, REFUSED) for _ in range(2)] == [ErrorClass.DOWN, ErrorClass.DOWN]
    assert reported(core) == ["pairing_warning"]


def test_a_classifier_that_raises_does_not_hide_why_the_send_failed() -> None:
    def broken(failure: Failure) -> ErrorClass:
        raise KeyError(failure.kind)

    core = Pair(Rules(), entities=["orders"], classifier=broken)
    assert core.classify(core.entity("orders"), REFUSED) is ErrorClass.DOWN
    assert reported(core) == ["pairing_warning"]
