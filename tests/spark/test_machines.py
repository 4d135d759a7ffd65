"""Who shares a clock with whom, and by how much clocks were set: from what is known of each process, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_ledger import small_ledger

from twinbus.spark.compaction.clocks import find_clocks
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.compaction.manifest import ClockCheck, NumberRange, Process

HOUR_MS = 3_600_000


def process(boot: str, *offsets: int) -> Process:
    return Process(boot=boot, clock=ClockCheck(offsets=[*offsets]))


def test_processes_of_one_start_of_a_machine_share_its_clock() -> None:
    processes = {name: process(boot, 5, 5) for name, boot in zip("abcde", ("x", "x", "y", "", ""), strict=True)}
    found = {each.process: each for each in find_clocks(processes, ["a"], ["c"]).known}
    assert found["a"].machine == found["b"].machine
    assert len({each.machine for each in found.values()}) == 4, "where the system does not tell, each has its own"
    assert [name for name, each in found.items() if each.is_primarys] == ["a", "b"]
    assert [name for name, each in found.items() if each.is_secondarys] == ["c"]


def test_a_primary_that_moved_to_another_machine_has_nobodys_clock() -> None:
    processes = {"a": process("x", 5, 5), "b": process("y", 5, 5), "c": process("x", 5, 5)}
    assert not any(each.is_primarys for each in find_clocks(processes, ["a", "b"], []).known)


def test_by_how_much_a_clock_was_set_is_reported_for_all_who_share_it() -> None:
    processes = {"a": process("x", 5, 7), "b": process("x", HOUR_MS, HOUR_MS), "c": process("y", 3, 3)}
    found = find_clocks(processes, ["a"], ["c"])
    assert {each.process: each.set_ms for each in found.known} == {"a": HOUR_MS - 5, "b": HOUR_MS - 5, "c": 0}
    assert (found.primary_set_ms, found.secondary_set_ms) == (HOUR_MS - 5, 0)


def test_a_clock_at_which_nobody_looked_may_have_been_set_and_is_shared_with_nobody() -> None:
    found = find_clocks({"a": process("x"), "b": process("x", 3, 3), "c": process("x", 9, 9)}, ["a"], ["b"])
    known = {each.process: each for each in found.known}
    assert {name: each.set_ms for name, each in known.items()} == {"a": None, "b": 6, "c": 6}
    assert known["a"].machine != known["b"].machine == known["c"].machine
    assert (found.primary_set_ms, found.secondary_set_ms) == (None, 6)
    assert not known["b"].is_primarys


@pytest.mark.parametrize("is_first", [True, False])
def test_half_a_look_at_a_clock_is_none(is_first: bool) -> None:
    """As of a process that an older version read half of."""
    halves = [
        Process(ranges=[NumberRange(1, 5, 0, 0)]),
        Process(ranges=[NumberRange(6, 9, 0, 0)], clock=ClockCheck(offsets=[3, 3])),
    ]
    found = Process()
    for half in halves if is_first else reversed(halves):
        found.add(half)
    found.add(Process(ranges=[NumberRange(10, 12, 0, 0)], clock=ClockCheck(offsets=[3, 3])))
    assert found.clock.offsets == []


def test_a_record_that_is_not_understood_has_no_clock_to_look_at() -> None:
    found = Process()
    found.add(Process(not_understood=1, ranges=[NumberRange(1, 1, 0, 0)]))
    found.add(Process(ranges=[NumberRange(2, 5, 0, 0)], clock=ClockCheck(offsets=[3, 4])))
    found.add(Process(not_understood=1, ranges=[NumberRange(6, 6, 0, 0)]))
    assert found.clock.offsets == [3, 4]


def test_who_shares_a_clock_with_all_of_whom_records_are_missing() -> None:
    processes = {name: process(boot, 5, 5) for name, boot in zip("abc", "xxy", strict=True)}

    def sharing(*missing: str) -> list[str]:
        found = find_clocks(processes, ["c"], [], missing)
        return [each.process for each in found.known if each.is_missings]

    assert sharing("a") == ["a", "b"]
    assert sharing("a", "c") == sharing("a", "nobody") == []
    found = find_clocks(processes, ["c"], [], ["a", "c", "nobody"])
    assert [each.process for each in found.known if each.is_missing] == ["a"], "others are compared with the primary"
    assert found.missing == 2


def test_a_clock_that_is_set_while_its_process_runs_shows(tmp_path: Path) -> None:
    with small_ledger(tmp_path) as small:
        client = small.writer("client", machine="shop", set_at={30: -60.0})
        client.accepted(1, "orders", "a")
        client.accepted(40, "orders", "b")
        (found,) = compact_ledger(read_in_process, small.write()).manifest.processes.values()
    assert found.boot == "start of shop"
    assert found.clock.offsets[1] - found.clock.offsets[0] == HOUR_MS
