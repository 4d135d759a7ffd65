"""Throttling: facets, their thresholds, and virtual time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twinbus.broker.faults.throttle import ENTITIES_REMEMBERED, Throttle, ThrottleLimits
from twinbus.broker.operations import Operation
from twinbus.broker.ops.process_memory import LOOK_EVERY_S, ResidentMemory
from twinbus.errors import OptionsError

SEND = Operation.SEND
NOW = 1_000_000


def admitted(throttle: Throttle, path: str | None, times: int, now_ms: int = NOW) -> int:
    return sum(throttle.refusal(SEND, path, now_ms) is None for _ in range(times))


def test_operations_of_all_entities_share_the_threshold_of_the_namespace() -> None:
    throttle = Throttle(ThrottleLimits(operations_per_second=10))
    assert admitted(throttle, "orders", 6) + admitted(throttle, "invoices", 6) == 10
    assert admitted(throttle, None, 10, NOW + 500) == 5
    assert admitted(throttle, None, 100, NOW + 60_000) == 10


def test_each_entity_has_a_threshold_of_its_own() -> None:
    throttle = Throttle(ThrottleLimits(entity_operations_per_second=5))
    assert admitted(throttle, "orders", 8) == 5
    assert admitted(throttle, "Orders/$deadletterqueue", 8) == 0
    assert admitted(throttle, "invoices", 8) == 5
    assert admitted(throttle, None, 8) == 8


def test_a_partitioned_entity_has_a_higher_threshold() -> None:
    limits = ThrottleLimits(entity_operations_per_second=5, partitioned_factor=3)
    throttle = Throttle(limits, is_partitioned=lambda path: path == "orders")
    assert admitted(throttle, "ORDERS", 20) == 15
    assert admitted(throttle, "invoices", 20) == 5


def test_what_one_threshold_denies_uses_up_nothing_of_the_other() -> None:
    throttle = Throttle(ThrottleLimits(operations_per_second=10, entity_operations_per_second=2))
    assert admitted(throttle, "orders", 100) == 2
    assert sum(admitted(throttle, f"queue{number}", 2) for number in range(10)) == 8


def test_the_answer_says_what_is_busy_and_to_wait_ten_seconds() -> None:
    throttle = Throttle(ThrottleLimits(operations_per_second=2, entity_operations_per_second=1))
    admitted(throttle, "orders", 1)
    assert str(throttle.refusal(SEND, "orders", NOW)) == (
        "'orders' is busy: more than 1 operations a second; wait 10 seconds and try again"
    )
    admitted(throttle, "invoices", 1)
    error = throttle.refusal(SEND, "shipments", NOW)
    assert error is not None
    assert error.condition == "com.microsoft:server-busy"
    assert str(error).startswith("the namespace is busy")


def test_deliveries_and_connections_are_not_counted_as_operations() -> None:
    throttle = Throttle(ThrottleLimits(operations_per_second=1))
    for operation in (Operation.DELIVER, Operation.CONNECT, Operation.ATTACH_SENDER):
        assert [throttle.refusal(operation, "orders", NOW) for _ in range(5)] == [None] * 5
    assert admitted(throttle, "orders", 5) == 1


def test_less_than_one_operation_a_second_is_one_every_so_often() -> None:
    throttle = Throttle(ThrottleLimits(operations_per_second=0.5))
    assert [admitted(throttle, None, 3, NOW + at_ms) for at_ms in (0, 1_000, 2_000, 3_999, 4_000)] == [1, 0, 1, 0, 1]


def test_time_that_stands_still_or_steps_back_gives_nothing() -> None:
    throttle = Throttle(ThrottleLimits(operations_per_second=1))
    assert admitted(throttle, None, 1) == 1
    assert admitted(throttle, None, 1, NOW - 60_000) == 0
    assert admitted(throttle, None, 1) == 0


def test_connections_and_unwritten_bytes_have_thresholds() -> None:
    throttle = Throttle(ThrottleLimits(connections=2, unwritten_bytes=100))
    assert throttle.connection_refusal(1) is None
    assert "2 connections" in str(throttle.connection_refusal(2))
    assert throttle.bytes_refusal(100) is None
    assert "wait 10 seconds" in str(throttle.bytes_refusal(101))


def test_memory_has_a_threshold() -> None:
    throttle = Throttle(ThrottleLimits(memory_bytes=100))
    assert throttle.memory_refusal(lambda: 100) is None
    assert "100 bytes of memory; wait 10 seconds" in str(throttle.memory_refusal(lambda: 101))


def test_without_a_threshold_nobody_looks_at_memory() -> None:
    def look() -> int:
        raise AssertionError("looked")

    assert Throttle(ThrottleLimits()).memory_refusal(look) is None


def test_memory_is_looked_up_at_most_ten_times_a_second(tmp_path: Path) -> None:
    now_s, statistics = [5.0], tmp_path / "statm"
    statistics.write_text("900 3 1 1 0 1 0")
    memory = ResidentMemory(statistics, lambda: now_s[0])
    three = memory()
    assert three == 3 * os.sysconf("SC_PAGE_SIZE")
    statistics.write_text("900 6 1 1 0 1 0")
    now_s[0] += LOOK_EVERY_S / 2
    assert memory() == three
    now_s[0] += LOOK_EVERY_S
    assert memory() == 2 * three


def test_where_memory_cannot_be_measured_its_threshold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="busy_memory_bytes needs"):
        ResidentMemory(tmp_path / "missing").check()


def test_without_thresholds_nothing_is_denied() -> None:
    throttle = Throttle(ThrottleLimits())
    assert admitted(throttle, "orders", 10_000) == 10_000
    assert throttle.connection_refusal(10**9) is throttle.bytes_refusal(10**12) is None


def test_names_that_unauthenticated_peers_make_up_do_not_fill_the_memory() -> None:
    throttle = Throttle(ThrottleLimits(entity_operations_per_second=1))
    for number in range(2 * ENTITIES_REMEMBERED):
        throttle.refusal(SEND, f"queue{number}", NOW)
    assert len(throttle._entities) <= ENTITIES_REMEMBERED


def test_every_wrong_threshold_is_in_one_message() -> None:
    with pytest.raises(OptionsError) as refused:
        ThrottleLimits(operations_per_second=0, connections=-1, unwritten_bytes=0, partitioned_factor=0.5)
    assert str(refused.value).count(";") == 3
    assert "partitioned_factor must be 1 or more, got 0.5" in str(refused.value)
