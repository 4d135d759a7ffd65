"""A namespace on a real disk that is full, as its clients see it."""

from __future__ import annotations

import logging
import time
from itertools import count
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusQuotaExceededError
from served import Served
from small_disk import small_disk

DISK_MIB = 16
BODY = bytes(200_000)
WAIT_S = 60


def test_a_full_disk_refuses_sends_is_drained_survives_a_restart_and_takes_messages_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    with (
        small_disk(tmp_path / "disk", DISK_MIB) as disk,
        Served("contoso", disk.folder / "data", "--queue", "orders") as served,
    ):
        acknowledged = fill(served)
        assert len(acknowledged) > 20
        disk.fill()  # others take what is left
        with pytest.raises(ServiceBusQuotaExceededError, match="disk of the namespace is full"):
            send(served, "one more")
        with pytest.raises(HttpResponseError, match="disk of the namespace is full"):
            served.admin.create_queue("another")
        served.change_queue("orders", max_delivery_count=20)
        assert served.full_disk
        served.stop()
        assert capfd.readouterr().err.count("new messages are refused") == 1
        disk.fill()
        served.start()
        with pytest.raises(ServiceBusQuotaExceededError, match="disk of the namespace is full"):
            send(served, "one more")
        assert drain(served) == acknowledged
        disk.make_room()
        send_when_there_is_room(served)  # without a restart, and by itself
        served.admin.create_queue("another")
        assert served.full_disk is None


def send(served: Served, name: str) -> None:
    with (
        ServiceBusClient.from_connection_string(served.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage(BODY, message_id=name))


def send_when_there_is_room(served: Served) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while True:
        try:
            send(served, "again")
            return
        except ServiceBusQuotaExceededError:
            assert time.monotonic() < give_up_at
            time.sleep(0.1)


def fill(served: Served) -> list[str]:
    """Send until there is no room; what was acknowledged."""
    acknowledged: list[str] = []
    with (
        ServiceBusClient.from_connection_string(served.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        for name in map(str, count()):
            try:
                sender.send_messages(ServiceBusMessage(BODY, message_id=name))
            except ServiceBusQuotaExceededError:
                return acknowledged
            acknowledged.append(name)
    raise AssertionError("unreachable")


def drain(served: Served) -> list[str]:
    """Receive and complete all; their names."""
    names: list[str] = []
    with (
        ServiceBusClient.from_connection_string(served.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        while messages := receiver.receive_messages(50, max_wait_time=2):
            for message in messages:
                receiver.complete_message(message)
                names.append(str(message.message_id))
    return names
