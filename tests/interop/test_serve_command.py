"""`twinbus serve` as people use it: a real process, its printed line, the official SDK, signals."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from command_processes import WAIT_S, Process, Start, command_processes, end, next_line
from engine_client import EngineClient
from free_ports import free_port


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `twinbus serve` with these arguments in an empty folder; what still runs at the end is killed."""
    with command_processes(tmp_path) as start_command:
        yield partial(start_command, "serve")


def next_json(process: Process) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(next_line(process))
    return said


def send(connection_string: str, queue: str, *texts: str) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages([ServiceBusMessage(text) for text in texts])


def receive(connection_string: str, queue: str, count: int) -> list[str]:
    """Receive and complete so many messages, in as many calls as it takes."""
    found: list[str] = []
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        while len(found) < count and (got := receiver.receive_messages(count - len(found), max_wait_time=30)):
            for message in got:
                receiver.complete_message(message)
                found.append(str(message))
    return found


def test_the_printed_line_is_the_name_and_a_string_that_the_official_sdk_takes(start: Start) -> None:
    port = free_port()
    process = start("--namespace", f"contoso:{port}", "--queue", "orders", "--queue", "invoices")
    name, connection_string = next_line(process).split()
    assert name == "contoso"
    assert f"Endpoint=sb://127.0.0.1:{port};" in connection_string
    for queue in ("orders", "invoices"):
        send(connection_string, queue, f"to {queue}")
        assert receive(connection_string, queue, 1) == [f"to {queue}"]


def test_without_any_flag_there_is_a_namespace_with_a_queue(start: Start, tmp_path: Path) -> None:
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 5672))
        except OSError:
            pytest.skip("port 5672 of this machine is taken")
    process = start()
    name, connection_string = next_line(process).split()
    assert name == "local"
    assert "127.0.0.1:5672;" in connection_string
    send(connection_string, "orders", "42")
    code, _, err = end(process)
    assert code == 0
    assert "orders" in err
    assert (tmp_path / ".twinbus" / "local" / "store.sqlite").exists()


def test_json_says_for_each_namespace_when_it_is_ready_and_when_it_stopped(start: Start, tmp_path: Path) -> None:
    process = start("--namespace", "contoso:0", "--namespace", "backup:0", "--queue", "orders", "--data", "d", "--json")
    ready = [next_json(process), next_json(process)]
    assert [one["namespace"] for one in ready] == ["contoso", "backup"]
    assert all(one["event"] == "ready" and one["queues"] == ["orders"] for one in ready)
    assert ready[0]["port"] != ready[1]["port"]
    assert ready[0]["host"] == "127.0.0.1"
    assert ready[0]["data"] == str(tmp_path / "d")
    send(ready[1]["connection_string"], "orders", "x")
    code, out, err = end(process)
    assert code == 0
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["stopped", "stopped"]
    assert err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly_while_a_client_is_connected(start: Start, number: int) -> None:
    process = start("--namespace", "contoso:0", "--queue", "orders", "--memory")
    connection_string = next_line(process).split()[1]
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("42"))
        code, out, err = end(process, number)
        assert (code, out) == (0, "")
        assert "Traceback" not in err
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("too late"))


def test_a_second_signal_stops_it_at_once(start: Start) -> None:
    process = start("--namespace", "contoso:0", "--memory", "--key", "my-key")
    port = int(next_line(process).split(":")[2].split(";")[0])
    with EngineClient(
        port, "RootManageSharedAccessKey", "my-key"
    ) as lazy_client:  # does not answer the goodbye, so that the first stop waits for it
        assert lazy_client.wait_open()
        deadline = time.monotonic() + WAIT_S
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)  # two signals at once would count as one
        assert process.wait(WAIT_S) == 128 + signal.SIGTERM


def test_messages_and_the_key_are_there_again_after_a_restart(start: Start) -> None:
    process = start("--namespace", "contoso:0", "--queue", "orders")
    first = next_line(process).split()[1]
    send(first, "orders", "kept", "too")
    assert end(process)[0] == 0
    second = next_line(start("--namespace", "contoso:0")).split()[1]
    assert second.split(";")[1:] == first.split(";")[1:]
    assert sorted(receive(second, "orders", 2)) == ["kept", "too"]


def test_a_key_of_ones_own_comes_from_the_flag_or_the_environment(start: Start) -> None:
    flag = next_line(start("--namespace", "contoso:0", "--memory", "--queue", "orders", "--key", "my-key")).split()[1]
    assert ";SharedAccessKey=my-key;" in flag
    send(flag, "orders", "x")
    with pytest.raises(ServiceBusError):
        send(flag.replace("my-key", "other"), "orders", "x")
    from_environment = next_line(start("--namespace", "contoso:0", "--memory", TWINBUS_KEY="env-key"))
    assert ";SharedAccessKey=env-key;" in from_environment


def test_a_data_directory_in_use_is_one_line(start: Start) -> None:
    next_line(start("--namespace", "contoso:0"))
    second = start("--namespace", "contoso:0")
    out, err = second.communicate(timeout=WAIT_S)
    assert (second.returncode, out) == (1, "")
    assert err.count("\n") == 1
    assert "in use" in err


def test_if_one_namespace_cannot_start_none_does(start: Start) -> None:
    running = start("--namespace", "backup:0")
    next_line(running)
    port = free_port()
    process = start("--namespace", f"contoso:{port}", "--namespace", "backup:0")
    out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (1, "")
    assert err.count("\n") == 1
    assert "namespace backup" in err
    next_line(start("--namespace", f"contoso:{port}"))  # neither its port nor its data is held


def test_a_namespace_without_queues_says_how_to_get_one(start: Start) -> None:
    process = start("--namespace", "contoso:0", "--memory")
    next_line(process)
    assert "--queue NAME" in end(process)[2]


def test_with_tls_only_it_says_what_clients_need_beside_the_string(start: Start) -> None:
    process = start("--namespace", "contoso:0", "--memory", "--tls-only", "--queue", "orders")
    string = next_line(process).split()[1]
    _, _, err = end(process)
    assert "UseDevelopmentEmulator" not in string
    assert f"official clients need to trust {string.partition('TwinbusCA=')[2]} and" in err
    assert "(except those of Node and Java) to be told the port, because they go to 5671" in err
    assert "other machines" not in err


def test_on_every_address_it_says_what_other_machines_have_to_write(start: Start) -> None:
    process = start("--namespace", "contoso:0", "--memory", "--host", "0.0.0.0", "--queue", "orders")
    assert "//127.0.0.1:" in next_line(process), "that is the one that works here"
    assert f"on other machines, write {socket.gethostname()} in place of 127.0.0.1" in end(process)[2]


def test_a_reader_that_goes_away_is_no_traceback(start: Start) -> None:
    process = start("--namespace", "contoso:0", "--memory")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "Traceback" not in err
