"""Clients on the board: what the fleet sees of them, with either client (X6)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from paired import Heard, PairHarness, wait_until

from twinbus import ShareFailover
from twinbus.board.fleet import Fleet, FleetVerdict, ProcessWord
from twinbus.board.queue import board_path
from twinbus.board.reader import read_board
from twinbus.ledger import LedgerReader


def fleet_of(harness: PairHarness) -> Fleet:
    return read_board(harness.secondary.namespace.dial(20.0), harness.name, attempt_s=20.0)


def wait_for_fleet(harness: PairHarness, is_so: Callable[[Fleet], bool]) -> Fleet:
    found: list[Fleet] = []

    def look() -> bool:
        found.append(fleet_of(harness))
        return is_so(found[-1])

    wait_until(look)
    return found[-1]


def test_a_failover_is_seen_on_the_board_and_so_is_the_recovery(both: PairHarness) -> None:
    interval = timedelta(minutes=20)
    with (
        both.bus(board=True, ping_primary_interval=interval) as bus,
        bus.get_queue_sender(both.orders) as sender,
    ):
        sender.send_messages(ServiceBusMessage("1"))
        fleet = wait_for_fleet(both, lambda fleet: bool(fleet.processes))
        assert fleet.verdict is FleetVerdict.HEALTHY
        bus.force_failover(both.orders, reason="drill")
        fleet = wait_for_fleet(both, lambda fleet: fleet.verdict is FleetVerdict.FAILED_OVER)
        (orders,) = fleet.entities()
        assert (orders.entity, orders.failed_over, orders.reason) == (both.orders, 1, "drill")
        assert orders.ping_in_s is not None
        assert 15 * 60 < orders.ping_in_s < 25 * 60
        bus.mark_healthy(both.orders)
        wait_for_fleet(both, lambda fleet: fleet.verdict is FleetVerdict.HEALTHY)
        board = bus.status().board
        assert board is not None
        assert (board.path, board.reason, board.posts >= 3) == (board_path(both.name), "", True)
        assert "twinbus_pair_board_usable" in bus.metrics_text()
    (process,) = wait_for_fleet(both, lambda fleet: fleet.processes[0].word is ProcessWord.ENDED).processes
    assert process.report.entities[0].entity == both.orders


def test_pairing_makes_the_board_with_its_settings(both: PairHarness) -> None:
    with both.bus(board=True):
        pass
    with both.secondary.namespace.admin_client() as admin:
        made = admin.get_queue(board_path(both.name))
    assert made.default_message_time_to_live == timedelta(minutes=5)
    assert (made.dead_lettering_on_message_expiration, made.requires_session) == (False, False)


def test_without_the_option_there_is_no_board(both: PairHarness) -> None:
    with both.bus() as bus:
        assert bus.status().board is None
    assert fleet_of(both).has_board is False


def test_a_board_that_cannot_be_used_is_a_warning_and_sends_go_on(both: PairHarness) -> None:
    with both.bus():
        pass  # makes the backlog queues
    with both.bus(board=True, create_backlog=False) as bus, bus.get_queue_sender(both.orders) as sender:
        heard = Heard(bus)
        assert sender.send_messages(ServiceBusMessage("1")).accepted == 1
        warnings = bus.status().secondary_status.warnings
        assert any("twinbus pair --board" in warning for warning in warnings)
        wait_until(lambda: "not found" in (bus.status().board or pytest.fail("no board")).reason)
        with both.secondary.namespace.admin_client() as admin:
            admin.create_queue(board_path(both.name))
        heard.wait_for("board_usable")
        wait_for_fleet(both, lambda fleet: len(fleet.processes) == 1)


def test_ledger_and_meter_count_the_same_reports(both: PairHarness, tmp_path: Path) -> None:
    with both.bus(board=True, ledger=tmp_path) as bus:
        wait_until(lambda: (bus.status().board or pytest.fail("no board")).posts)
        posts = (bus.status().board or pytest.fail("no board")).posts
    records = list(LedgerReader(tmp_path).records())
    posted = [each for each in records if each.kind == "board_posted"]
    assert len(posted) >= posts
    assert all(each.count == 1 and each.bytes > 100 for each in posted)
    metered = {one["kind"]: one for one in both.secondary.readings() if one["entity"] == board_path(both.name).lower()}
    assert sum(each.count for each in posted) == metered["send"]["operations"]
    assert sum(each.bytes for each in posted) == metered["send"]["bytes"]
    created = [each.queue for each in records if each.kind == "queue_created"]
    assert board_path(both.name) in created


def test_ledger_and_meter_count_the_same_looks_of_a_client_that_shares_findings(
    both: PairHarness, tmp_path: Path
) -> None:
    """C1."""
    share = ShareFailover(keys={host: f"a secret that only {host} has" for host in ("us", "a", "b")}, host="us")
    interval = timedelta(minutes=30)
    with (
        both.bus(board=True, ledger=tmp_path, share_failover=share, failover_interval=interval) as bus,
        bus.get_queue_sender(both.orders) as sender,
    ):
        sender.send_messages(ServiceBusMessage("healthy"))
        both.primary.break_("no-send", both.orders)
        with pytest.raises(Exception, match="twinbus"):
            sender.send_messages(ServiceBusMessage("fails"))
        wait_until(lambda: peeks(both) > 2)
        both.primary.clear()
    recorded = [each for each in LedgerReader(tmp_path).records() if each.kind == "board_peeked"]
    assert sum(each.count for each in recorded) == peeks(both)


def peeks(both: PairHarness) -> int:
    return both.secondary.operations(board_path(both.name)).get("peek", 0)
