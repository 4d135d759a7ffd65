"""From reports to a fleet: who reports, what is over, what is unknown."""

from __future__ import annotations

from typing import Any

import pytest
from board_scene import THERE_S, BoardInMemory, failed_over, report

from twinbus.board.fleet import NO_BOARD, PROCESSES_MAX, Fleet, FleetMemory, FleetVerdict, ProcessWord
from twinbus.board.queue import LIFE_S
from twinbus.board.report import EntityFinding, ProcessPhase, ReportedState, SyphonFinding

HERE = 5_000.0
"""What the reader's monotonic clock shows when a test begins."""


class Watcher:
    """A reader whose clock may differ from the secondary's."""

    def __init__(self, board: BoardInMemory, skew_s: float = 0.0) -> None:
        self.board, self.skew_s = board, skew_s
        self.memory = FleetMemory()

    def fleet(self, at: float, *, looks: bool = True) -> Fleet:
        if looks:
            self.memory.add(self.board.look(self.memory.next_sequence), HERE + at)
        return self.memory.fleet(HERE + at, THERE_S + at + self.skew_s)


def words(fleet: Fleet) -> dict[str, ProcessWord]:
    return {each.report.instance: each.word for each in fleet.processes}


def test_a_process_that_has_failed_over_makes_the_fleet_fail_over() -> None:
    board = BoardInMemory()
    board.post(report("a"), 0)
    board.post(report("b", entities=(failed_over(),)), 1)
    fleet = Watcher(board).fleet(2)
    assert fleet.verdict is FleetVerdict.FAILED_OVER
    assert [each.report.instance for each in fleet.processes] == ["b", "a"]  # trouble first
    (orders,) = fleet.entities()
    assert (orders.entity, orders.failed_over, orders.healthy, orders.reason) == ("orders", 1, 0, "down")


def test_the_latest_report_of_an_instance_holds_and_an_old_one_posted_again_changes_nothing() -> None:
    board = BoardInMemory()
    board.post(report("a", 2), 0)
    board.post(report("a", 1, entities=(failed_over(),)), 1)
    assert Watcher(board).fleet(2).verdict is FleetVerdict.HEALTHY


@pytest.mark.parametrize("skew_s", [-7200.0, 0.0, 7200.0])
def test_a_report_is_over_when_the_secondary_clock_proves_it_whatever_the_reader_clock_says(skew_s: float) -> None:
    board = BoardInMemory()
    board.post(report("a", entities=(failed_over(),)), 0)
    watcher = Watcher(board, skew_s)
    assert watcher.fleet(0).verdict is FleetVerdict.FAILED_OVER
    assert len(watcher.fleet(LIFE_S - 1).processes) == 1
    assert watcher.fleet(LIFE_S + 1).processes == ()


def test_what_is_over_when_a_reader_begins_is_skipped_because_newer_reports_prove_it() -> None:
    board = BoardInMemory()
    board.post(report("old", entities=(failed_over(),)), 0)
    board.post(report("new"), LIFE_S + 5)
    fleet = Watcher(board, skew_s=-3600).fleet(LIFE_S + 6)
    assert (list(words(fleet)), fleet.verdict) == (["new"], FleetVerdict.HEALTHY)


def test_a_board_on_which_all_is_old_by_the_clock_of_the_reader_is_unknown_and_not_healthy() -> None:
    board = BoardInMemory()
    board.post(report("a"), 0)
    fleet = Watcher(board, skew_s=3600).fleet(1)
    assert fleet.verdict is FleetVerdict.UNKNOWN
    assert "by this machine's clock" in fleet.problem


def test_an_empty_board_is_unknown_and_a_missing_one_says_nothing() -> None:
    assert Watcher(BoardInMemory()).fleet(0).verdict is FleetVerdict.UNKNOWN
    assert NO_BOARD.verdict is FleetVerdict.HEALTHY


def test_a_process_that_falls_silent_is_unknown_and_one_that_said_goodbye_is_not() -> None:
    board = BoardInMemory()
    board.post(report("killed"), 0)
    board.post(report("closed", phase=ProcessPhase.CLOSED), 0)
    board.post(report("alive"), 140)
    fleet = Watcher(board).fleet(141)
    assert words(fleet) == {
        "killed": ProcessWord.SILENT,
        "closed": ProcessWord.ENDED,
        "alive": ProcessWord.REPORTING,
    }
    assert fleet.verdict is FleetVerdict.UNKNOWN


def test_what_a_silent_process_had_said_is_not_taken_for_true() -> None:
    board = BoardInMemory()
    board.post(report("killed", entities=(failed_over(),)), 0)
    board.post(report("alive"), 140)
    assert Watcher(board).fleet(141).verdict is FleetVerdict.UNKNOWN


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({"entities": (EntityFinding(entity="o", state=ReportedState.SUSPECT),)}, FleetVerdict.FAILING),
        ({"entities": (EntityFinding(entity="o", cannot=("receive",)),)}, FleetVerdict.FAILING),
        ({"secondary_down_for_s": 3.0}, FleetVerdict.FAILING),
        ({"phase": ProcessPhase.FAULTED}, FleetVerdict.FAILING),
        ({"left_out": {ReportedState.FAILED_OVER: 1}}, FleetVerdict.FAILED_OVER),
        ({"held": 1}, FleetVerdict.WAITING),
        ({"spooled": 1}, FleetVerdict.WAITING),
        ({"sent_to_backlog": 1}, FleetVerdict.HEALTHY),
        ({"syphon": SyphonFinding(left=3)}, FleetVerdict.WAITING),
        ({"spooled": 0, "syphon": SyphonFinding(left=0)}, FleetVerdict.HEALTHY),
    ],
)
def test_each_trouble_has_its_verdict(facts: dict[str, Any], verdict: FleetVerdict) -> None:
    board = BoardInMemory()
    board.post(report("a", **facts), 0)
    assert Watcher(board).fleet(1).verdict is verdict


def test_messages_that_are_no_reports_are_counted_and_passed_over() -> None:
    board = BoardInMemory()
    for body in (b"", b"{", b'{"format":1}', b"[" * 30_000, b"x" * 100_000, b'{"format":2,"instance":"a"}'):
        board.post(body, 0)
    board.post(report("a"), 0)
    fleet = Watcher(board).fleet(1)
    assert (fleet.unreadable, list(words(fleet))) == (6, ["a"])


def test_while_a_message_cannot_be_read_the_fleet_is_unknown_because_a_later_version_may_say_anything() -> None:
    board = BoardInMemory()
    board.post(b'{"format":2,"instance":"b"}', 0)
    watcher = Watcher(board)
    watcher.fleet(0)
    board.post(report("a"), LIFE_S - 2)
    assert watcher.fleet(LIFE_S - 1).verdict is FleetVerdict.UNKNOWN
    board.post(report("a", 2), LIFE_S + 1)
    assert watcher.fleet(LIFE_S + 2).verdict is FleetVerdict.HEALTHY


def test_a_flood_of_instances_is_bounded_and_makes_the_fleet_unknown_but_keeps_who_was_known() -> None:
    board = BoardInMemory()
    board.post(report("real", entities=(failed_over(),)), 0)
    watcher = Watcher(board)
    watcher.fleet(1)
    for number in range(PROCESSES_MAX + 500):
        board.post(report(f"liar-{number}"), 2)
    fleet = watcher.fleet(3)
    assert len(fleet.processes) == PROCESSES_MAX
    assert fleet.left_out == 501
    assert not fleet.is_complete
    assert fleet.processes[0].report.instance == "real"
    board.post(report("real", 2), 4)
    assert watcher.fleet(5).verdict is FleetVerdict.UNKNOWN  # nothing is known to be wrong, and not all are known


def test_lengths_of_time_go_on_with_the_age_of_the_report() -> None:
    board = BoardInMemory()
    board.post(report("a", entities=(failed_over(for_s=30.0),)), 0)
    watcher = Watcher(board)
    watcher.fleet(0)
    fleet = watcher.fleet(10, looks=False)
    assert fleet.entities()[0].longest_s == pytest.approx(40.0)
    assert fleet.as_dict()["processes"][0]["entities"][0]["for_s"] == pytest.approx(40.0)


def test_a_ping_comes_nearer_and_once_it_was_due_nobody_knows_when_the_next_one_is() -> None:
    board = BoardInMemory()
    board.post(report("a", entities=(failed_over(ping_in_s=30.0),)), 0)
    board.post(report("b", entities=(failed_over(ping_in_s=12.0),)), 0)
    watcher = Watcher(board)
    fleets = [watcher.fleet(0), watcher.fleet(10, looks=False), watcher.fleet(20, looks=False), watcher.fleet(31)]
    assert [fleet.entities()[0].ping_in_s for fleet in fleets] == pytest.approx([12, 2, 10, None])
    shown = fleets[1].as_dict()["processes"]
    assert [each["entities"][0]["ping_in_s"] for each in shown] == pytest.approx([20, 2])


def test_a_reader_that_sees_reports_arrive_does_not_doubt_them_for_its_own_clock() -> None:
    board = BoardInMemory()
    board.post(report("a"), 0)
    watcher = Watcher(board, skew_s=7200)
    assert watcher.fleet(1).verdict is FleetVerdict.UNKNOWN
    board.post(report("a", 2), 10)
    assert watcher.fleet(11).verdict is FleetVerdict.HEALTHY
    assert watcher.fleet(80).verdict is FleetVerdict.HEALTHY
    assert watcher.fleet(220).verdict is FleetVerdict.UNKNOWN


def test_a_made_up_number_hides_a_process_until_that_report_is_over_and_no_longer() -> None:
    board = BoardInMemory()
    watcher = Watcher(board)
    board.post(report("a", 10**9), 0)
    board.post(report("a", 7, entities=(failed_over(),)), 1)
    assert watcher.fleet(2).verdict is FleetVerdict.HEALTHY
    board.post(report("a", 8, entities=(failed_over(),)), LIFE_S + 1)
    assert watcher.fleet(LIFE_S + 2).verdict is FleetVerdict.FAILED_OVER
