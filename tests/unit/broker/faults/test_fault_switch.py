"""The fault switch: what a server is asked to do, and when."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.broker.faults.decisions import DelayedActions
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.switch import FaultSwitch
from twinbus.errors import AddressInUse, OptionsError, TwinbusError

NOW = 1_000_000


class RecordingServer:
    """A server that only records what it is asked to do."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.port_is_taken = False

    def pause_listening(self) -> None:
        self.calls.append("pause listening")

    def resume_listening(self) -> None:
        if self.port_is_taken:
            raise AddressInUse("taken")
        self.calls.append("resume listening")

    def drop_connections(self) -> None:
        self.calls.append("drop connections")

    def go_silent(self) -> None:
        self.calls.append("go silent")

    def speak_again(self) -> None:
        self.calls.append("speak again")

    def faults_changed(self) -> None:
        self.calls.append("changed")

    def write_dump(self, reason: str) -> None:
        self.calls.append(f"dump: {reason}")

    def take(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def server() -> RecordingServer:
    return RecordingServer()


@pytest.fixture
def switch(server: RecordingServer) -> FaultSwitch:
    table = FaultTable(lambda: 0.5)
    return FaultSwitch(table, server, write_dump=server.write_dump, entity_names=lambda: ["Orders"])


def add(switch: FaultSwitch, kind: str, now_ms: int = NOW, **values: Any) -> str:
    return str(switch.add({"fault": kind, **values}, now_ms)["id"])


@pytest.mark.parametrize(
    ("how", "begins", "ends"),
    [
        ("refuse", ["pause listening", "drop connections"], ["resume listening"]),
        ("drop", ["drop connections"], []),
        ("silent", ["go silent"], ["speak again"]),
    ],
)
def test_the_port_is_closed_and_opened_at_the_right_times(
    switch: FaultSwitch, server: RecordingServer, how: str, begins: list[str], ends: list[str]
) -> None:
    add(switch, "unreachable", how=how, length_ms=500)
    assert server.take() == [*begins, "changed"]
    assert switch.next_change_ms() == NOW + 500
    switch.apply(NOW + 499)
    assert server.take() == []
    switch.apply(NOW + 500)
    assert server.take() == [*ends, "changed"]
    assert switch.next_change_ms() is None


def test_clearing_opens_the_port_too(switch: FaultSwitch, server: RecordingServer) -> None:
    fault_id = add(switch, "unreachable")
    server.take()
    assert switch.clear(fault_id, NOW) == [fault_id]
    assert server.take() == ["resume listening", "changed"]


def test_a_port_that_cannot_be_had_back_is_tried_again(switch: FaultSwitch, server: RecordingServer) -> None:
    add(switch, "unreachable")
    server.take()
    server.port_is_taken = True
    with pytest.raises(AddressInUse):
        switch.clear(None, NOW)
    server.port_is_taken = False
    switch.apply(NOW)
    assert server.take() == ["resume listening", "changed"]


def test_a_second_reason_keeps_the_port_closed(switch: FaultSwitch, server: RecordingServer) -> None:
    add(switch, "unreachable", length_ms=500)
    add(switch, "unreachable", length_ms=900)
    assert server.take() == ["pause listening", "drop connections", "changed", "changed"]
    switch.apply(NOW + 500)
    assert server.take() == ["changed"]
    switch.apply(NOW + 900)
    assert server.take() == ["resume listening", "changed"]


def test_from_silence_to_a_closed_port_and_back(switch: FaultSwitch, server: RecordingServer) -> None:
    add(switch, "unreachable", how="silent")
    add(switch, "unreachable", how="refuse", length_ms=10)
    switch.apply(NOW + 10)
    assert server.take() == [
        *("go silent", "changed"),
        *("speak again", "pause listening", "drop connections", "changed"),
        *("resume listening", "go silent", "changed"),
    ]


def test_a_dump_is_written_before_anything_of_a_restart_is_felt(switch: FaultSwitch, server: RecordingServer) -> None:
    add(switch, "restart", length_ms=100, slow_for_ms=50)
    assert server.take() == ["dump: restart", "pause listening", "drop connections", "changed"]
    switch.apply(NOW + 100)
    assert server.take() == ["resume listening", "changed"]
    assert switch.next_change_ms() == NOW + 150


def test_an_entity_that_cannot_be_reached_leaves_the_port_alone(switch: FaultSwitch, server: RecordingServer) -> None:
    add(switch, "unreachable", entities=["orders"], how="drop")
    add(switch, "restart", entities=["orders"])
    assert server.take() == ["changed", "dump: restart", "changed"]


def test_nothing_is_done_for_a_fault_that_makes_no_sense(switch: FaultSwitch, server: RecordingServer) -> None:
    with pytest.raises(OptionsError):
        add(switch, "restart", length_ms=-1)
    assert server.take() == []


def test_an_entity_that_is_not_there_is_noticed(switch: FaultSwitch) -> None:
    added = switch.add({"fault": "no-send", "entities": ["orders", "oders"]}, NOW)
    assert added["notes"] == ["there is no entity oders yet"]


def test_the_faults_in_force_are_listed_and_those_that_are_over_are_not(switch: FaultSwitch) -> None:
    add(switch, "no-send", length_ms=10)
    add(switch, "slow")
    assert [one["id"] for one in switch.in_force(NOW + 9)] == ["no-send-1", "slow-2"]
    assert [one["id"] for one in switch.in_force(NOW + 10)] == ["slow-2"]


def test_clearing_what_is_not_there_says_what_is(switch: FaultSwitch) -> None:
    with pytest.raises(TwinbusError, match="there are no faults"):
        switch.clear("no-send-1", NOW)
    add(switch, "slow")
    with pytest.raises(TwinbusError, match="in force are slow-1"):
        switch.clear("no-send-1", NOW)
    assert switch.clear(None, NOW) == ["slow-1"]
    assert switch.clear(None, NOW) == []


def test_what_is_postponed_happens_in_the_order_of_its_time() -> None:
    done: list[str] = []
    postponed = DelayedActions(waiting_max=3)
    for at_ms, name in ((20, "c"), (10, "a"), (10, "b")):
        assert postponed.put(at_ms, lambda name=name: done.append(name))  # type: ignore[misc]
    assert not postponed.put(5, lambda: None)
    assert postponed.next_ms() == 10
    postponed.run_due(19)
    assert done == ["a", "b"]
    postponed.run_due(20)
    assert done == ["a", "b", "c"]
    assert postponed.next_ms() is None
    assert len(postponed) == 0
