"""Whatever faults are given: the table keeps to their scopes, their lengths and its own announcements."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import examples

from twinbus.broker.faults.catalogue import KINDS, LATE_MS_MAX, read_fault
from twinbus.broker.faults.decisions import PROCEED, Drop, Ignore, Proceed, Refuse
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.throttle import Bucket
from twinbus.broker.operations import Operation

ENTITIES = ("orders", "orders/eu", "invoices", "shipments")
NOW = 1_000_000

lengths = st.one_of(st.none(), st.integers(1, 5_000))
scopes: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.lists(st.sampled_from(ENTITIES), min_size=1, max_size=2).map(lambda names: {"entities": names}),
    st.sampled_from(["orders*", "*s", "invoice?"]).map(lambda pattern: {"pattern": pattern}),
)
PARAMETERS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "unreachable": st.fixed_dictionaries({"how": st.sampled_from(["refuse", "drop", "silent"])}),
    "refuse": st.fixed_dictionaries(
        {"condition": st.sampled_from(["amqp:not-found", "com.microsoft:timeout"])},
        optional={
            "on": st.sampled_from(["sends", "receives", "both"]),
            "count": st.integers(1, 5),
            "probability": st.floats(0.1, 1),
        },
    ),
    "busy": st.fixed_dictionaries({"per_second": st.sampled_from([0, 0.5, 1, 20])}),
    "slow": st.fixed_dictionaries({"delay_ms": st.integers(1, 500), "jitter_ms": st.integers(0, 500)}),
    "late": st.fixed_dictionaries({"delay_ms": st.integers(1, LATE_MS_MAX)}),
    "unanswered": st.fixed_dictionaries({}, optional={"count": st.integers(1, 5), "probability": st.floats(0.1, 1)}),
    "restart": st.fixed_dictionaries({"slow_for_ms": st.integers(0, 3_000)}),
}


@st.composite
def faults(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    parameters = draw(PARAMETERS.get(kind, st.just({})))
    return {"fault": kind, "length_ms": draw(lengths), **draw(scopes), **parameters}


fault_lists = st.lists(faults(), max_size=6)
operations = st.sampled_from(list(Operation))
paths = st.sampled_from([None, *ENTITIES, "ORDERS/$deadletterqueue", "invoices/$management"])
questions = st.lists(st.tuples(operations, paths, st.integers(0, 800)), max_size=40)


def table_of(values: list[dict[str, Any]], chance: st.DataObject | None = None) -> FaultTable:
    table = FaultTable(lambda: 0.5 if chance is None else chance.draw(st.floats(0, 0.999)))
    for each in values:
        table.add(read_fault(each), NOW)
    return table


@given(faults())
def test_a_fault_survives_being_written_down(values: dict[str, Any]) -> None:
    fault = read_fault(values)
    assert read_fault(fault.to_values()) == fault


@given(fault_lists, questions, st.data())
def test_a_ruling_is_always_possible_and_inside_its_bounds(
    values: list[dict[str, Any]], asked: list[tuple[Operation, str | None, int]], data: st.DataObject
) -> None:
    table, now_ms = table_of(values, data), NOW
    for operation, path, wait_ms in asked:
        now_ms += wait_ms
        match table.decide(operation, path, now_ms):
            case Proceed(delay_ms=delay_ms, late_ms=late_ms, unanswered=unanswered):
                assert 0 <= delay_ms <= 6 * 1_000
                assert 0 <= late_ms <= LATE_MS_MAX
                assert operation is Operation.SEND or not (late_ms or unanswered)
            case Refuse(error=error, delay_ms=delay_ms):
                assert ":" in error.condition
                assert str(error)
                assert delay_ms >= 0
            case other:
                assert isinstance(other, Ignore | Drop)


@given(fault_lists, operations, paths)
def test_faults_elsewhere_change_nothing_here(
    values: list[dict[str, Any]], operation: Operation, path: str | None
) -> None:
    """Taking away every fault whose scope does not cover the entity leaves the decision as it was."""
    entity = None if path is None else path.lower().partition("/$")[0]
    here = [each for each in values if read_fault(each).scope.compile()(entity)]
    with_all, with_own = table_of(values).decide(operation, path, NOW), table_of(here).decide(operation, path, NOW)
    assert type(with_all) is type(with_own)
    if isinstance(with_all, Proceed) or not isinstance(with_own, Refuse):
        assert with_all == with_own
    else:
        assert isinstance(with_all, Refuse)
        assert (with_all.error.condition, with_all.delay_ms) == (with_own.error.condition, with_own.delay_ms)
    if not here:
        assert with_all is PROCEED


@given(fault_lists, st.integers(0, 20_000))
def test_nothing_changes_before_the_announced_time_and_something_does_then(
    values: list[dict[str, Any]], wait_ms: int
) -> None:
    table = table_of(values)
    version, due_ms = table.version, table.next_change_ms()
    moment = NOW + wait_ms if due_ms is None else min(NOW + wait_ms, due_ms - 1)
    table.advance(moment)
    assert (table.version, table.next_change_ms()) == (version, due_ms)
    if due_ms is not None:
        table.advance(due_ms)
        assert table.version > version


@given(fault_lists)
def test_in_the_end_only_the_faults_without_a_length_remain(values: list[dict[str, Any]]) -> None:
    table = table_of(values)
    endless = [each for each in values if each["length_ms"] is None and each["fault"] != "restart"]
    assert len(table.active(NOW + 10_000_000)) == len(endless)
    table.clear()
    assert table.is_quiet
    assert table.next_change_ms() is None
    assert {table.decide(operation, "orders", NOW + 10_000_000) for operation in Operation} == {PROCEED}


@given(
    st.integers(0, 500), st.integers(0, 500), st.lists(st.tuples(st.integers(0, 300), st.floats(0, 0.999)), max_size=50)
)
def test_slow_keeps_the_order_and_its_bounds(delay: int, jitter: int, asked: list[tuple[int, float]]) -> None:
    rolls = iter([roll for _, roll in asked])
    table = FaultTable(lambda: next(rolls))
    table.add(read_fault({"fault": "slow", "delay_ms": delay + 1, "jitter_ms": jitter}), NOW)
    now_ms, last_due_ms = NOW, 0
    for wait_ms, _ in asked:
        now_ms += wait_ms
        decision = table.decide(Operation.SEND, "orders", now_ms)
        assert isinstance(decision, Proceed)
        assert delay + 1 <= decision.delay_ms <= delay + 1 + jitter
        assert now_ms + decision.delay_ms >= last_due_ms
        last_due_ms = now_ms + decision.delay_ms


@settings(max_examples=examples(200))
@given(st.sampled_from([0.0, 0.3, 1.0, 2.5, 50.0, 1_000.0]), st.lists(st.integers(0, 2_000), min_size=1, max_size=80))
def test_no_span_of_time_lets_more_through_than_its_share(per_second: float, waits_ms: list[int]) -> None:
    bucket, now_ms, taken = Bucket(per_second, NOW), NOW, []
    for wait_ms in waits_ms:
        now_ms += wait_ms
        if bucket.has_room(now_ms):
            bucket.take()
            taken.append(now_ms)
    burst = max(1.0, per_second) if per_second else 0.0
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            span_s = (taken[last] - taken[first]) / 1000
            assert last - first + 1 <= burst + span_s * per_second + 1e-6
