"""Whatever records, ships its ledger to an S3 server: clients, the proxy, namespaces, `send` and `syphon`."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from local_proxy import LocalProxy
from object_store import new_place
from paired import wait_until
from served import Served

from twinbus import PairedServiceBusClient
from twinbus.cli.main import run
from twinbus.errors import OptionsError
from twinbus.ledger import LedgerReader, verify
from twinbus.testing import LocalNamespace, NamespacePair

pytestmark = pytest.mark.usefixtures("s3")

TWO_QUEUES = ("--queues", "2")


@pytest.fixture
def place(tmp_path: Path) -> str:
    return new_place("s3", tmp_path)


@pytest.fixture
def pair(namespace_pair: NamespacePair, monkeypatch: pytest.MonkeyPatch) -> NamespacePair:
    """What commands find in the environment."""
    namespace_pair.primary.create_queue("orders")
    monkeypatch.setenv("TWINBUS_PRIMARY", namespace_pair.primary.connection_string)
    monkeypatch.setenv("TWINBUS_SECONDARY", namespace_pair.secondary.connection_string)
    return namespace_pair


def check_copy(place: str, ledger: Path, *programs: str) -> None:
    """The copy says of the whole ledger what the ledger says."""
    there, here = verify(place), verify(ledger)
    assert there.is_complete
    assert there.records == here.records > 0
    assert {each.program for each in there.processes} == set(programs)
    assert {each.ending for each in there.processes} == {"closed"}


def test_a_client_ships_its_ledgers_by_the_time_it_is_closed(pair: NamespacePair, tmp_path: Path, place: str) -> None:
    ledger, primary = tmp_path / "ledger", pair.primary
    client = PairedServiceBusClient.from_connection_strings(
        primary.connection_string,
        pair.secondary.connection_string,
        ledger=ledger,
        ledger_ship_to=place,
        spool=tmp_path / "spool",
        enable_syphon=True,
        backlog_queue_count=1,
        failover_interval=timedelta(0),
    )
    with client as bus, bus.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x"))
        primary.faults.add("no-send", entities=["orders"])
        assert sender.send_messages(ServiceBusMessage("y")).side.value == "backlog"
        primary.faults.clear()
    check_copy(place, ledger, *{each.program for each in verify(ledger).processes})
    assert "client" in {record.program for record in LedgerReader(place).records()}


def test_a_client_refuses_a_place_that_it_cannot_ship_to(pair: NamespacePair, tmp_path: Path) -> None:
    strings = pair.primary.connection_string, pair.secondary.connection_string
    with pytest.raises(OptionsError, match="ledger_ship_to needs ledger"):
        PairedServiceBusClient.from_connection_strings(*strings, ledger_ship_to="s3a://bucket/ledger")
    bus = PairedServiceBusClient.from_connection_strings(
        *strings, ledger=tmp_path / "ledger", ledger_ship_to="ftp://host/ledger"
    )
    with pytest.raises(OptionsError, match="ftp:// is not a place"):
        bus.pair()


def test_a_proxy_ships_its_ledger_by_the_time_it_has_stopped(pair: NamespacePair, tmp_path: Path, place: str) -> None:
    ledger = tmp_path / "ledger"
    strings = pair.primary.connection_string, pair.secondary.connection_string
    with (
        LocalProxy(*strings, ledger=ledger, ledger_ship_to=place, backlog_queue_count=1) as proxy,
        ServiceBusClient.from_connection_string(proxy.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
    check_copy(place, ledger, "client")


def test_a_namespace_ships_its_ledger_by_the_time_it_has_stopped(tmp_path: Path, place: str) -> None:
    ledger = tmp_path / "ledger"
    with (
        LocalNamespace("contoso", queues=["orders"], ledger=ledger, ledger_ship_to=place) as namespace,
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
    check_copy(place, ledger, "contoso")
    with pytest.raises(OptionsError, match="ledger_ship_to needs ledger"):
        LocalNamespace(ledger_ship_to=place).start()


def test_what_a_killed_namespace_recorded_is_shipped_when_it_runs_again(tmp_path: Path, place: str) -> None:
    ledger = tmp_path / "ledger"
    options = ("--ledger", str(ledger), "--ledger-ship-to", place, "--queue", "orders")
    with Served("contoso", tmp_path / "data", *options) as served:
        with (
            ServiceBusClient.from_connection_string(served.connection_string) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("x"))
        wait_until(lambda: any(file.stat().st_size for file in ledger.glob("*.jsonl")))  # else a kill leaves no trace
        served.kill()
        served.start()
        served.stop()
    assert {each.process for each in verify(place).processes} == {each.process for each in verify(ledger).processes}
    assert len(verify(place).processes) == 2


def test_send_and_syphon_ship_what_they_record(
    pair: NamespacePair, tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "ledger"
    options = ("--ledger", str(ledger), "--ledger-ship-to", place, *TWO_QUEUES)
    pair.primary.faults.add("no-send", entities=["orders"])
    assert run(["send", "orders", "x", *options]) == 0
    pair.primary.faults.clear()
    check_copy(place, ledger, "client")
    assert run(["syphon", "--until-empty", *options]) == 0
    check_copy(place, ledger, "client", "twinbus syphon")


@pytest.mark.usefixtures("pair")
def test_a_command_ends_although_the_name_of_its_place_is_never_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://objects.example:9000")
    program = """
import socket, sys, threading
resolve = socket.getaddrinfo
def hang(host, *arguments, **options):
    if host == "objects.example":
        print("asked", flush=True)
        threading.Event().wait()
    return resolve(host, *arguments, **options)
socket.getaddrinfo = hang
from twinbus.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
    options = ("--ledger", str(tmp_path / "ledger"), "--ledger-ship-to", "s3a://bucket/ledger", *TWO_QUEUES)
    command = [sys.executable, "-c", program, "send", "orders", "x", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "asked" in done.stdout
    [line] = done.stderr.splitlines()
    assert "the time was over" in line
    assert verify(tmp_path / "ledger").is_complete


@pytest.mark.usefixtures("pair")
def test_what_cannot_be_shipped_changes_no_exit_code_and_is_said(tmp_path: Path) -> None:
    options = ("--ledger", str(tmp_path / "ledger"), "--ledger-ship-to", "s3a://no-such-bucket/ledger", *TWO_QUEUES)
    command = [sys.executable, "-m", "twinbus", "send", "orders", "x", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "primary" in done.stdout
    (line,) = done.stderr.splitlines()
    assert "cannot be shipped to s3a://no-such-bucket/ledger" in line
