"""The table of faults: what each of them makes of an operation, and of which ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from twinbus.broker.faults.catalogue import read_fault
from twinbus.broker.faults.decisions import PROCEED, Drop, FaultDecision, Ignore, Proceed, Refuse
from twinbus.broker.faults.effects import OutageMode
from twinbus.broker.faults.fault_table import FAULTS_MAX, FaultTable
from twinbus.broker.faults.throttle import Throttle, ThrottleLimits
from twinbus.broker.operations import Operation
from twinbus.errors import TwinbusError

ATTACH_SENDER, ATTACH_RECEIVER = Operation.ATTACH_SENDER, Operation.ATTACH_RECEIVER
SEND, DELIVER, SETTLE = Operation.SEND, Operation.DELIVER, Operation.SETTLE
CONNECT, MANAGE, ADMIN = Operation.CONNECT, Operation.MANAGE, Operation.ADMIN
NOW = 1_000_000
INTERNAL, BUSY = "amqp:internal-error", "com.microsoft:server-busy"


def half() -> float:
    return 0.5


def table_with(
    *faults: dict[str, Any], chance: Callable[[], float] = half, throttle: Throttle | None = None
) -> FaultTable:
    table = FaultTable(chance, throttle)
    for values in faults:
        table.add(read_fault(values), NOW)
    return table


def fault(kind: str, *entities: str, **parameters: Any) -> dict[str, Any]:
    return {"fault": kind, "entities": list(entities), **parameters}


def refused(decision: FaultDecision) -> str:
    """The condition of a refusal."""
    assert isinstance(decision, Refuse), decision
    return decision.error.condition


def touched(table: FaultTable, path: str | None = "orders") -> set[Operation]:
    return {operation for operation in Operation if table.decide(operation, path, NOW) is not PROCEED}


# --- one fault ---


def test_without_faults_the_table_is_quiet_and_everything_proceeds() -> None:
    table = FaultTable(half)
    assert table.is_quiet
    assert touched(table) == set()
    assert table.next_change_ms() is None


@pytest.mark.parametrize(
    ("kind", "operations"),
    [
        ("no-send", {ATTACH_SENDER, SEND}),
        ("no-receive", {ATTACH_RECEIVER, DELIVER, SETTLE}),
        ("no-manage", {MANAGE, ADMIN}),
    ],
)
def test_each_ability_is_lost_on_its_own_with_an_internal_error(kind: str, operations: set[Operation]) -> None:
    table = table_with(fault(kind, "orders"))
    assert touched(table) == operations
    assert touched(table, "invoices") == touched(table, None) == set()
    for operation in operations:
        assert refused(table.decide(operation, "ORDERS", NOW)) == INTERNAL


def test_a_refusal_names_the_entity_and_the_fault() -> None:
    decision = table_with(fault("no-send", "orders")).decide(SEND, "Orders", NOW)
    assert isinstance(decision, Refuse)
    assert str(decision.error) == "'Orders' cannot be sent to (fault no-send-1)"


def test_no_manage_is_an_internal_error_over_http_and_at_the_management_node() -> None:
    table = table_with(fault("no-manage"))
    over_http, request = (
        table.decide(ADMIN, None, NOW),
        table.decide_request("peek-message", "orders", NOW),
    )
    assert refused(over_http) == refused(request) == INTERNAL


def test_dead_letters_share_the_fate_of_their_queue() -> None:
    table = table_with(fault("no-receive", "orders"))
    assert refused(table.decide(ATTACH_RECEIVER, "orders/$DeadLetterQueue", NOW)) == INTERNAL
    assert table.decide(ATTACH_RECEIVER, "orders/eu", NOW) is PROCEED


@pytest.mark.parametrize("kind", ["no-send", "no-receive", "no-manage"])
def test_a_management_link_is_attached_whatever_else_is_lost(kind: str) -> None:
    table = table_with(fault(kind))
    for operation in (ATTACH_SENDER, ATTACH_RECEIVER):
        assert table.decide(operation, "orders/$management", NOW) is PROCEED


@pytest.mark.parametrize(
    ("kind", "lost", "kept"),
    [
        ("no-send", ["schedule-message", "cancel-scheduled-message"], ["peek-message", "renew-lock"]),
        ("no-receive", ["peek-message", "receive-by-sequence-number", "update-disposition"], ["schedule-message"]),
        ("no-manage", ["peek-message", "schedule-message", "renew-lock", "add-rule"], []),
    ],
)
def test_a_request_needs_the_ability_it_stands_for(kind: str, lost: list[str], kept: list[str]) -> None:
    table = table_with(fault(kind, "orders"))
    for name in lost:
        assert refused(table.decide_request(name, "orders", NOW)) == INTERNAL
        assert table.decide_request(name, "invoices", NOW) is PROCEED
    for name in kept:
        assert table.decide_request(name, "orders", NOW) is PROCEED


@pytest.mark.parametrize(
    ("how", "decision", "reach"),
    [
        ("refuse", Drop(), OutageMode.REFUSE),
        ("drop", Drop(), OutageMode.DROP),
        ("silent", Ignore(), OutageMode.SILENT),
    ],
)
def test_a_namespace_that_cannot_be_reached_cannot_in_anything(
    how: str, decision: FaultDecision, reach: OutageMode
) -> None:
    table = table_with(fault("unreachable", how=how))
    assert table.outage() is reach
    for operation in Operation:
        assert table.decide(operation, None, NOW) == table.decide(operation, "orders", NOW) == decision


@pytest.mark.parametrize(("how", "decision"), [("drop", Drop()), ("silent", Ignore())])
def test_an_entity_that_cannot_be_reached_leaves_the_port_alone(how: str, decision: FaultDecision) -> None:
    table = table_with(fault("unreachable", "orders", how=how))
    assert table.outage() is None
    assert table.decide(CONNECT, None, NOW) is PROCEED
    assert touched(table, "invoices") == set()
    assert {table.decide(operation, "orders", NOW) for operation in Operation} == {decision}
    assert table.decide(ATTACH_SENDER, "orders/$management", NOW) == decision


def test_an_entity_that_refuses_contact_detaches_links_as_a_lost_connection_would() -> None:
    table = table_with(fault("unreachable", "orders", how="refuse"))
    for operation in Operation:
        assert refused(table.decide(operation, "orders", NOW)) == "amqp:link:detach-forced"


def test_any_condition_can_be_had_for_sends_for_receives_or_for_both() -> None:
    condition = "com.microsoft:entity-disabled"
    for on, operations in (
        ("sends", {ATTACH_SENDER, SEND}),
        ("receives", {ATTACH_RECEIVER, DELIVER, SETTLE}),
        ("both", {ATTACH_SENDER, SEND, ATTACH_RECEIVER, DELIVER, SETTLE}),
    ):
        table = table_with(fault("refuse", "orders", condition=condition, on=on, text="off for the night"))
        assert touched(table) == operations
        decision = table.decide(min(operations, key=str), "orders", NOW)
        assert isinstance(decision, Refuse)
        assert (decision.error.condition, str(decision.error)) == (condition, "off for the night")


def test_a_counted_refusal_is_for_messages_and_ends_when_it_is_used_up() -> None:
    table = table_with(fault("refuse", "orders", condition="amqp:not-found", on="sends", count=2))
    assert table.decide(ATTACH_SENDER, "orders", NOW) is PROCEED
    assert [refused(table.decide(SEND, "orders", NOW)) for _ in range(2)] == ["amqp:not-found"] * 2
    assert table.decide(SEND, "orders", NOW) is PROCEED
    assert table.is_quiet
    assert table.active(NOW) == []


def test_chance_decides_where_a_probability_is_given() -> None:
    rolls = iter([0.2, 0.3, 0.29, 0.9])
    table = table_with(fault("unanswered", probability=0.3), chance=lambda: next(rolls))
    assert [table.decide(SEND, "orders", NOW) != PROCEED for _ in range(4)] == [True, False, True, False]


def test_busy_lets_so_many_through_and_says_to_wait_ten_seconds() -> None:
    table = table_with(fault("busy", "orders", per_second=2))
    assert [table.decide(SEND, "orders", NOW) for _ in range(2)] == [PROCEED, PROCEED]
    decision = table.decide(SEND, "orders", NOW)
    assert refused(decision) == BUSY
    assert isinstance(decision, Refuse)
    assert "wait 10 seconds" in str(decision.error)
    assert table.decide(SEND, "invoices", NOW) is PROCEED
    assert table.decide(SEND, "orders", NOW + 500) is PROCEED
    assert refused(table.decide(SEND, "orders", NOW + 500)) == BUSY


def test_opening_a_link_uses_nothing_up_but_is_denied_to_who_comes_too_often() -> None:
    table = table_with(fault("busy", per_second=1))
    assert [table.decide(ATTACH_SENDER, "orders", NOW) for _ in range(3)] == [PROCEED] * 3
    assert table.decide(SEND, "orders", NOW) is PROCEED
    assert refused(table.decide(ATTACH_SENDER, "orders", NOW)) == BUSY


def test_busy_without_a_number_denies_every_request_but_no_delivery() -> None:
    table = table_with(fault("busy"))
    assert touched(table) == set(Operation) - {CONNECT, DELIVER}
    assert refused(table.decide_request("renew-lock", "orders", NOW)) == BUSY


def test_slow_delays_everything_but_connecting() -> None:
    table = table_with(fault("slow", "orders", delay_ms=250))
    assert touched(table) == set(Operation) - {CONNECT}
    assert table.decide(SEND, "orders", NOW) == Proceed(delay_ms=250)


def test_jitter_never_lets_a_later_answer_overtake() -> None:
    rolls = iter([0.999, 0.0, 0.5])
    table = table_with(fault("slow", delay_ms=100, jitter_ms=1_000), chance=lambda: next(rolls))
    due = []
    for moment in (NOW, NOW + 10, NOW + 2_000):
        decision = table.decide(SEND, "orders", moment)
        assert isinstance(decision, Proceed)
        due.append(moment + decision.delay_ms)
    assert due == [NOW + 1_099, NOW + 1_099, NOW + 2_600] == sorted(due)


def test_late_touches_sends_only() -> None:
    table = table_with(fault("late", "orders", delay_ms=900_000))
    assert touched(table) == {SEND}
    assert table.decide(SEND, "orders", NOW) == Proceed(late_ms=900_000)


def test_unanswered_goes_ahead_and_counts_what_it_swallowed() -> None:
    table = table_with(fault("unanswered", "orders", count=1))
    assert table.decide(SEND, "orders", NOW) == Proceed(unanswered=True)
    assert table.decide(SEND, "orders", NOW) is PROCEED


def test_a_restarting_group_is_unavailable_then_slow_then_well() -> None:
    table = table_with(fault("restart", "orders", length_ms=5_000, slow_for_ms=10_000, delay_ms=300))
    for operation in Operation:
        assert refused(table.decide(operation, "orders", NOW + 4_999)) == INTERNAL
        assert table.decide(operation, "invoices", NOW + 4_999) is PROCEED
    assert table.next_change_ms() == NOW + 5_000
    assert table.decide(SEND, "orders", NOW + 5_000) == Proceed(delay_ms=300)
    assert table.next_change_ms() == NOW + 15_000
    assert table.decide(SEND, "orders", NOW + 15_000) is PROCEED
    assert table.is_quiet


def test_a_restarting_namespace_has_its_port_closed() -> None:
    table = table_with(fault("restart", length_ms=5_000))
    assert table.outage() is OutageMode.REFUSE
    assert table.decide(SEND, "orders", NOW) == Drop()
    table.advance(NOW + 5_000)
    assert table.outage() is None


# --- several ---


def test_what_cannot_be_reached_comes_before_every_refusal() -> None:
    silent, drop = fault("unreachable", "orders", how="silent"), fault("unreachable", how="drop")
    assert table_with(fault("no-send"), silent).decide(SEND, "orders", NOW) == Ignore()
    assert table_with(fault("no-send"), silent, drop).decide(SEND, "orders", NOW) == Drop()


def test_the_oldest_refusal_gives_the_answer_and_busy_comes_last() -> None:
    disabled = fault("refuse", condition="com.microsoft:entity-disabled")
    assert refused(table_with(fault("busy"), disabled, fault("no-send")).decide(SEND, "orders", NOW)) == (
        "com.microsoft:entity-disabled"
    )


def test_delays_add_up_and_a_refusal_takes_as_long_as_an_acceptance() -> None:
    slows = fault("slow", delay_ms=200), fault("slow", "orders", delay_ms=50)
    assert table_with(*slows).decide(SEND, "orders", NOW) == Proceed(delay_ms=250)
    decision = table_with(*slows, fault("no-send")).decide(SEND, "orders", NOW)
    assert isinstance(decision, Refuse)
    assert decision.delay_ms == 250


def test_late_slow_and_unanswered_go_together() -> None:
    faults = fault("late", delay_ms=5), fault("late", delay_ms=7), fault("slow", delay_ms=3), fault("unanswered")
    assert table_with(*faults).decide(SEND, "orders", NOW) == Proceed(delay_ms=3, late_ms=7, unanswered=True)


def test_what_is_refused_uses_up_no_count() -> None:
    table = table_with(fault("unanswered", count=1), fault("no-send", length_ms=1_000))
    assert refused(table.decide(SEND, "orders", NOW)) == INTERNAL
    assert table.decide(SEND, "orders", NOW + 1_000) == Proceed(unanswered=True)


def test_a_request_that_busy_denies_is_not_counted_by_the_throttle() -> None:
    throttle = Throttle(ThrottleLimits(operations_per_second=1))
    table = table_with(fault("busy", length_ms=10), throttle=throttle)
    assert refused(table.decide(SEND, "orders", NOW)) == BUSY
    assert table.decide(SEND, "orders", NOW + 10) is PROCEED
    assert refused(table.decide(SEND, "orders", NOW + 10)) == BUSY


# --- in force ---


def test_a_fault_ends_after_its_length_and_not_before() -> None:
    table = table_with(fault("no-send", length_ms=500))
    assert table.next_change_ms() == NOW + 500
    assert refused(table.decide(SEND, "orders", NOW + 499)) == INTERNAL
    assert not table.is_quiet
    assert table.decide(SEND, "orders", NOW + 500) is PROCEED
    assert table.is_quiet


def test_one_or_all_are_cleared() -> None:
    table = table_with(fault("no-send"), fault("no-receive"), fault("slow"))
    assert [one.id for one in table.active(NOW)] == ["no-send-1", "no-receive-2", "slow-3"]
    assert table.clear("no-receive-2") == ["no-receive-2"]
    assert table.clear("no-receive-2") == []
    assert table.clear() == ["no-send-1", "slow-3"]
    assert table.is_quiet


def test_a_fault_in_force_describes_itself() -> None:
    (one,) = table_with(fault("restart", "orders", length_ms=5_000, slow_for_ms=10_000)).active(NOW)
    values = one.to_values(NOW + 1_000)
    assert (values["id"], values["left_ms"], values["since_ms"]) == ("restart-1", 14_000, NOW)
    assert values["text"] == "orders: restarting, 14 s left"


def test_faults_are_bounded_in_number() -> None:
    table = table_with(*[fault("slow", length_ms=10)] * FAULTS_MAX)
    with pytest.raises(TwinbusError, match="clear some first"):
        table.add(read_fault(fault("no-send")), NOW)
    table.add(read_fault(fault("no-send")), NOW + 10)


def test_a_throttle_keeps_the_table_from_being_quiet() -> None:
    assert not FaultTable(half, Throttle(ThrottleLimits(operations_per_second=1))).is_quiet
    assert FaultTable(half, Throttle(ThrottleLimits(connections=1))).is_quiet
