"""Backlog queues that somebody else has made: used as they are, with a warning for what can cost something (P2, P4)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import EntityStatus
from paired import Heard, PairHarness

from twinbus import NamespaceSide
from twinbus.client.namespace import Namespace
from twinbus.pairing.backlog.backlog_queues import BACKLOG_SETTINGS

RISKY: dict[str, dict[str, Any]] = {
    "sessions are required": {"requires_session": True},
    "messages live for 1 h": {"default_message_time_to_live": timedelta(hours=1)},
    "the delivery count is limited to 10": {"max_delivery_count": 10},
    "the size is 1024 MB": {"max_size_in_megabytes": 1024},
    "is deleted after 1 h": {"auto_delete_on_idle": timedelta(hours=1)},
    "duplicate detection is on": {"requires_duplicate_detection": True},
    "receiving is disabled": {"status": EntityStatus.RECEIVE_DISABLED},
}


def make(harness: PairHarness, index: int, **settings: Any) -> None:
    harness.secondary.admin.create_queue(harness.backlog(index), **(dict(BACKLOG_SETTINGS) | settings))


def test_each_setting_that_can_cost_something_is_named_with_its_queue_and_what_is_right(both: PairHarness) -> None:
    for index, settings in enumerate(RISKY.values()):
        make(both, index, **settings)
    with both.bus(backlog_queue_count=len(RISKY) + 1) as bus:
        status = bus.status().secondary_status
        assert bus.backlog_queue_count == len(RISKY) + 1
        assert status.queue_settings == "risky"
        for index, what in enumerate(RISKY):
            (warning,) = [each for each in status.warnings if what in each]
            assert both.backlog(index) in warning
            assert ": " in warning.partition(what)[2], "it says what would be right"
        assert not [each for each in status.warnings if both.backlog(len(RISKY)) in each], "that one was made now"


def test_a_queue_that_forwards_is_warned_about(both: PairHarness) -> None:
    both.secondary.admin.create_queue(f"elsewhere-{both.name}")
    make(both, 0, forward_to=f"elsewhere-{both.name}")
    with both.bus() as bus:
        (warning,) = [each for each in bus.status().secondary_status.warnings if "forwards to" in each]
        assert both.backlog(0) in warning


def test_queues_that_this_pairing_made_are_as_they_should_be(both: PairHarness) -> None:
    for _ in range(2):  # the second time they are there already
        with both.bus() as bus:
            assert bus.status().secondary_status.queue_settings == "good"


def test_without_the_right_to_list_settings_are_unknown_and_status_says_so(both: PairHarness) -> None:
    for index in range(2):
        make(both, index, max_delivery_count=1)
    secondary = Namespace.from_connection_string(both.secondary.rule_strings["sender"])
    with both.client_of(both.primary.namespace, secondary, create_backlog=False) as bus:
        assert bus.status().secondary_status.queue_settings == "unknown"
        assert "backlog: queue settings unknown" in str(bus.status())


def test_a_queue_that_does_not_allow_messages_leaves_the_rotation_and_the_send_goes_on(both: PairHarness) -> None:
    make(both, 0, requires_session=True)
    with both.bus() as bus:
        heard = Heard(bus)
        senders = [bus.get_queue_sender(both.orders) for _ in range(12)]
        bus.force_failover(both.orders, stay=True)
        receipts = [sender.send_messages(ServiceBusMessage("1")) for sender in senders]
        assert {receipt.places for receipt in receipts} == {(both.backlog(1),)}
        assert all(receipt.side is NamespaceSide.BACKLOG for receipt in receipts)
        lost = heard.wait_for("backlog_queue_lost")
        assert (lost.details["queue"], lost.details["kind"]) == (0, "not allowed")
        assert len(heard.named("backlog_queue_lost")) == 1, "everybody learns of it at once"
        assert not bus.status().backlog_queues[0].in_rotation
