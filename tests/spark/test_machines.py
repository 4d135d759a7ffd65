"""Who shares a clock with whom, and by how much clocks were set: from what is known of each process, without Spark."""

from __future__ import annotations

from pathlib import Path

from told_ledger import told_ledger

from twinbus.spark.compaction.compaction import compact_ledger, one_by_one
from twinbus.spark.compaction.machines import clocks_of
from twinbus.spark.compaction.manifest import Clock, Process

HOUR_MS = 3_600_000


def process(boot: str, *offsets: int) -> Process:
    return Process(boot=boot, clock=Clock(offsets=[*offsets]))


def test_processes_of_one_start_of_a_machine_share_its_clock() -> None:
    processes = {"a": process("x"), "b": process("x"), "c": process("y"), "d": process(""), "e": process("")}
    found = {each.process: each for each in clocks_of(processes, ["a"], ["c"]).known}
    assert found["a"].machine == found["b"].machine
    assert len({each.machine for each in found.values()}) == 4, "where the system does not tell, each has its own"
    assert [name for name, each in found.items() if each.is_primarys] == ["a", "b"]
    assert [name for name, each in found.items() if each.is_secondarys] == ["c"]


def test_a_primary_that_moved_to_another_machine_has_nobodys_clock() -> None:
    processes = {"a": process("x"), "b": process("y"), "c": process("x")}
    assert not any(each.is_primarys for each in clocks_of(processes, ["a", "b"], []).known)


def test_by_how_much_a_clock_was_set_is_told_for_all_who_share_it() -> None:
    processes = {
        "a": process("x", 5, 7),
        "b": process("x", HOUR_MS, HOUR_MS),
        "c": process("y", 3, 3),
        "d": process(""),
    }
    found = clocks_of(processes, ["a"], ["c"])
    assert {each.process: each.set_ms for each in found.known} == {"a": HOUR_MS - 5, "b": HOUR_MS - 5, "c": 0, "d": 0}
    assert (found.primary_set_ms, found.secondary_set_ms) == (HOUR_MS - 5, 0)


def test_a_clock_that_is_set_while_its_process_runs_shows(tmp_path: Path) -> None:
    with told_ledger(tmp_path) as told:
        client = told.writer("client", machine="shop", set_at={30: -60.0})
        client.accepted(1, "orders", "a")
        client.accepted(40, "orders", "b")
        (found,) = compact_ledger(one_by_one, told.write()).manifest.processes.values()
    assert found.boot == "start of shop"
    assert found.clock.offsets[1] - found.clock.offsets[0] == HOUR_MS
