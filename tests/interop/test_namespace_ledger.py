"""Namespaces that keep a ledger, as people run them: `twinbus serve --ledger`, the official SDK, a kill -9."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError
from paired import wait_until
from served import Served

from twinbus.errors import OptionsError
from twinbus.ledger import Kind, LedgerReader, verify
from twinbus.ledger.schema import Record
from twinbus.testing import LocalNamespace


def records_of_kind(ledger: Path, kind: Kind) -> list[Record]:
    return [record for record in LedgerReader(ledger).records() if record.kind == kind]


def ids(ledger: Path, kind: Kind) -> list[str]:
    return sorted(each for record in records_of_kind(ledger, kind) for each in record.message_ids)


def take(receiver: ServiceBusReceiver, count: int) -> None:
    with receiver:
        while count > 0:
            for message in receiver.receive_messages(max_message_count=count, max_wait_time=10):
                receiver.complete_message(message)
                count -= 1


def test_what_is_sent_and_received_is_in_the_ledger_of_the_namespace(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    with (
        LocalNamespace("contoso", queues=["orders"], ledger=ledger) as namespace,
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
    ):
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("x", message_id=name) for name in ("a", "b", "c")])
        with client.get_queue_receiver("orders") as receiver:
            (first,) = receiver.receive_messages(max_message_count=1, max_wait_time=10)
            receiver.complete_message(first)
            (second,) = receiver.receive_messages(max_message_count=1, max_wait_time=10)
            receiver.dead_letter_message(second, reason="Unreadable")
    assert verify(ledger).is_complete
    assert ids(ledger, Kind.STORED) == ["a", "b", "c"]
    assert ids(ledger, Kind.DELIVERED) == ["a"]
    (buried,) = records_of_kind(ledger, Kind.DEAD_LETTERED)
    assert (buried.message_ids, buried.reason, buried.outcome) == (("b",), "Unreadable", "by-receiver")
    assert (buried.program, buried.namespace, buried.entity) == ("contoso", "contoso", "orders")


def test_throttled_senders_are_in_the_ledger(tmp_path: Path) -> None:
    with (
        LocalNamespace("contoso", queues=["orders"], ledger=tmp_path) as namespace,
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
        namespace.faults.add("busy", entities=["orders"], per_second=0)
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("x"))
    busy = records_of_kind(tmp_path, Kind.THROTTLED)
    assert {record.entity for record in busy} == {"orders"}
    assert all(record.reason for record in busy)


def test_a_killed_namespace_takes_stock_when_it_starts_again(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    served = Served("contoso", tmp_path / "data", "--ledger", str(ledger), "--queue", "orders")
    with served, ServiceBusClient.from_connection_string(served.connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("x", message_id=f"m{number}") for number in range(10)])
        wait_until(lambda: any(file.stat().st_size for file in ledger.glob("*.jsonl")))  # else a kill leaves no trace
        served.kill()
        served.start()
        take(client.get_queue_receiver("orders"), 10)
        served.stop()
    (stock,) = records_of_kind(ledger, Kind.INVENTORY)
    assert (stock.entity, stock.count, stock.program) == ("orders", 10, "contoso")
    assert ids(ledger, Kind.DELIVERED) == sorted(f"m{number}" for number in range(10))
    endings = Counter(process.ending for process in verify(ledger).processes)
    assert (endings["closed"], endings["killed"] + endings["stopped"]) == (1, 1)


def serve(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twinbus", "serve", "--namespace", "contoso:0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=30, check=False)


@pytest.mark.parametrize(("folder", "words"), [(".", "a folder of its own"), ("file", "ledger cannot be kept in")])
def test_a_folder_that_can_hold_no_ledger_is_one_line_and_leaves_nothing(
    tmp_path: Path, folder: str, words: str
) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = serve("--ledger", folder, "--data", "data", cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_namespace_that_cannot_start_leaves_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "contoso").write_text("not a folder")
    with pytest.raises(Exception, match="contoso"):
        LocalNamespace("contoso", data=tmp_path, ledger=tmp_path / "ledger").start()
    assert not (tmp_path / "ledger").exists()


def test_options_name_what_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OptionsError, match="cannot be kept"):
        LocalNamespace("contoso", ledger=tmp_path / "file").start()
