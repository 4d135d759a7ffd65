"""`twinbus proxy` as people use it: a real process, its printed line, the official SDK, signals, probes, bad input."""

from __future__ import annotations

import json
import os
import signal
import socket
import socketserver
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient
from command_processes import WAIT_S, Process, Start, command_processes, end, next_line
from json_rules import broken_rules
from local_proxy import LocalProxy
from token_source import IdentityEndpoint, identity_endpoint, issuer, keyless

from twinbus.cli.main import run
from twinbus.control.local_register import RUN_VARIABLE
from twinbus.testing import LocalNamespace, NamespacePair

QUICK = ("--backlog-queue-count", "1", "--retry-attempts", "1", "--attempt-timeout", "2s")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespacePair]:
    with LocalNamespace("contoso", queues=["orders"]) as primary, LocalNamespace("backup") as secondary:
        yield NamespacePair(primary, secondary)


@pytest.fixture(autouse=True)
def nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(RUN_VARIABLE, str(tmp_path / "run"))
    for name in ("TWINBUS_PRIMARY", "TWINBUS_SECONDARY", "TWINBUS_CREDENTIAL", "TWINBUS_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `twinbus proxy` with these arguments in an empty folder; what still runs at the end is killed."""
    with command_processes(tmp_path) as start_command:

        def start_proxy(pair: NamespacePair, *arguments: str, **environment: str) -> Process:
            strings = {
                "TWINBUS_PRIMARY": pair.primary.connection_string,
                "TWINBUS_SECONDARY": pair.secondary.connection_string,
            }
            return start_command("proxy", "--listen", "0", *QUICK, *arguments, **(strings | environment))

        yield start_proxy


def send_and_receive(connection_string: str, text: str) -> str:
    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage(text))
        receiver = client.get_queue_receiver("orders")
        (message,) = receiver.receive_messages(max_wait_time=20)
        receiver.complete_message(message)
        return str(message)


def receive(connection_string: str, count: int) -> list[str]:
    """Receive and complete this many messages, or what comes until none does for a while."""
    found: list[str] = []
    with ServiceBusClient.from_connection_string(connection_string) as client:
        receiver = client.get_queue_receiver("orders")
        while len(found) < count and (messages := receiver.receive_messages(count, max_wait_time=20)):
            for message in messages:
                receiver.complete_message(message)
                found.append(str(message))
    return found


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_it_prints_strings_that_clients_can_use_and_stops_cleanly(pair: NamespacePair, start: Start) -> None:
    process = start(pair, "--rule", "app:Send+Listen")
    name, _, connection_string = next_line(process).strip().partition("  ")
    rule, _, limited = next_line(process).strip().partition("  ")
    assert (name, rule) == ("proxy", "proxy app")
    assert send_and_receive(connection_string, "42") == "42"
    assert send_and_receive(limited, "43") == "43"
    authority = connection_string.partition("TwinbusCA=")[2]
    with ServiceBusAdministrationClient.from_connection_string(connection_string, connection_verify=authority) as admin:
        assert admin.get_queue("orders").name == "orders"
    code, out, err = end(process)
    assert (code, out) == (0, "")
    assert "serving; Ctrl-C stops" in err
    assert "Traceback" not in err
    for secret in (pair.primary.connection_string, pair.secondary.connection_string):
        assert secret.partition("SharedAccessKey=")[2].partition(";")[0] not in connection_string + limited + err


def test_json_says_when_it_is_ready_and_when_it_has_stopped(pair: NamespacePair, start: Start, tmp_path: Path) -> None:
    process = start(pair, "--json", "--data", "bus", "--name", "mine", "--ledger", "ledger")
    ready = json.loads(next_line(process))
    assert (ready["event"], ready["proxy"], ready["primary"], ready["secondary"]) == (
        "ready",
        "mine",
        "contoso",
        "backup",
    )
    assert (ready["data"], ready["ledger"], ready["metrics"]) == (str(tmp_path / "bus"), "ledger", None)
    assert f":{ready['port']};" in ready["connection_string"]
    code, out, _ = end(process, signal.SIGINT)
    assert (code, json.loads(out)["event"]) == (0, "stopped")
    assert [*broken_rules(ready), *broken_rules(json.loads(out))] == []


def test_keys_and_certificate_are_kept_with_the_data(pair: NamespacePair, tmp_path: Path) -> None:
    kept, strings = [], (pair.primary.connection_string, pair.secondary.connection_string)
    for _ in range(2):
        with LocalProxy(*strings, key=None, data=tmp_path, backlog_queue_count=1) as proxy:
            assert proxy.server.ca_file is not None
            kept.append((proxy.connection_string.partition(";")[2], proxy.server.ca_file.read_bytes()))
    assert kept[0] == kept[1]


def test_probes_and_prometheus_have_a_port_of_their_own(start: Start) -> None:
    with (
        LocalNamespace("contoso", queues=["orders"]) as primary,
        LocalNamespace("backup") as secondary,
    ):
        process = start(NamespacePair(primary, secondary), "--json", "--metrics", "0", "--failover-interval", "0s")
        ready = json.loads(next_line(process))
        address = ready["metrics"]
        assert get(address, "/healthz") == (200, '{"is_live": true, "is_ready": true, "reason": ""}')
        assert get(address, "/healthz/ready")[0] == 200
        assert send_and_receive(ready["connection_string"], "42") == "42"
        text = get(address, "/metrics")[1]
        assert 'twinbus_pair_messages_total{client="1",entity="orders",primary="contoso",secondary="backup"' in text
        assert 'twinbus_operations_total{namespace="proxy",entity="orders",kind="send"} 1' in text
        assert "twinbus_proxy_ready 1" in text
        for namespace in (primary, secondary):
            namespace.faults.add("unreachable", how="refuse")
        with (
            pytest.raises(Exception, match=r".+"),
            ServiceBusClient.from_connection_string(ready["connection_string"], retry_total=0) as client,
        ):
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("43"), timeout=10)
        status, reason = get(address, "/healthz/ready")
        assert (status, "orders is failed over" in reason, "the secondary cannot be reached" in reason) == (
            503,
            True,
            True,
        ), reason
        assert get(address, "/healthz/live")[0] == 200
        assert end(process)[0] == 0


def test_a_proxy_starts_while_the_primary_is_down(start: Start) -> None:
    with LocalNamespace("contoso", queues=["orders"]) as primary, LocalNamespace("backup") as secondary:
        primary.faults.add("unreachable", how="refuse")
        process = start(NamespacePair(primary, secondary), "--failover-interval", "0s", "--entities", "orders")
        text = next_line(process).strip().partition("  ")[2]
        with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("42"))
        code, _, err = end(process)
        assert (code, "the primary contoso does not answer yet: unreachable: " in err) == (0, True)


def test_what_a_killed_proxy_had_in_its_spool_is_brought_home_by_the_next_one(start: Start) -> None:
    with LocalNamespace("contoso", queues=["orders"]) as primary, LocalNamespace("backup") as secondary:
        pair = NamespacePair(primary, secondary)
        options = ("--json", "--spool", "spool", "--failover-interval", "0s", "--ping-primary-interval", "1s")
        killed = start(pair, *options)
        text = json.loads(next_line(killed))["connection_string"]
        with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            sender = client.get_queue_sender("orders")
            sender.send_messages(ServiceBusMessage("before"))
            for namespace in (primary, secondary):
                namespace.faults.add("unreachable", how="refuse")
            sender.send_messages([ServiceBusMessage(f"batch {number}") for number in range(100)])
            for number in range(20):
                sender.send_messages(ServiceBusMessage(f"{number}"))
            killed.kill()
            killed.wait()
        successor = start(pair, *options)
        text = json.loads(next_line(successor))["connection_string"]
        primary.faults.clear()
        accepted = ["before", *(f"batch {number}" for number in range(100)), *(f"{number}" for number in range(20))]
        assert sorted(receive(text, len(accepted))) == sorted(accepted)
        assert end(successor)[0] == 0


def test_a_signal_while_it_starts_ends_it(pair: NamespacePair, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = f"Endpoint=sb://127.0.0.1:{silent.getsockname()[1]};SharedAccessKeyName=a;SharedAccessKey=b"
        process = start(
            pair,
            *("--attempt-timeout", "2m", "--json"),
            TWINBUS_PRIMARY=f"{text};TwinbusNamespace=contoso;UseDevelopmentEmulator=true",
        )
        silent.settimeout(WAIT_S)
        peer, _ = silent.accept()
        assert end(process)[:2] == (0, "")
        peer.close()


# --- status ---


def test_status_shows_the_proxies_of_this_machine(
    pair: NamespacePair, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = start(pair, "--name", "first"), start(pair, "--name", "second", "--memory")
    for process in (first, second):
        assert next_line(process)
    assert run(["status", "--proxies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["proxy", "first", "second"]
    assert lines[1].split()[3:6] == ["ready", "contoso", "backup"]
    second.kill()
    second.wait()
    assert run(["status", "--proxies", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["proxies"]
    assert [*broken_rules(found)] == []
    assert (found["proxy"], found["pid"], found["is_ready"]) == ("first", first.pid, True)
    assert found["pair"]["primary"] == "contoso"
    sides = [
        *("--primary", pair.primary.connection_string, "--secondary", pair.secondary.connection_string),
        *("--queues", "1"),
    ]
    run(["status", *sides])
    assert f"first  {first.pid}" in capsys.readouterr().out
    run(["status", *sides, "--json"])
    assert [each["proxy"] for each in json.loads(capsys.readouterr().out)["proxies"]] == ["first"]
    os.kill(first.pid, signal.SIGSTOP)
    assert run(["status", "--proxies"]) == 3
    assert "does not answer" in capsys.readouterr().out
    os.kill(first.pid, signal.SIGCONT)
    assert end(first)[0] == 0
    assert run(["status", "--proxies"]) == 0
    assert capsys.readouterr().out == "no proxy runs on this machine\n"


def test_two_proxies_do_not_share_a_folder(
    pair: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalProxy(
        pair.primary.connection_string, pair.secondary.connection_string, data=tmp_path, backlog_queue_count=1
    ):
        code = run(["proxy", "--listen", "0", "--data", str(tmp_path), *QUICK, *sides(pair)])
    out, err = capsys.readouterr()
    assert (code, out, len(err.splitlines())) == (1, "", 1), err
    assert "in use" in err


# --- bad input ---


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code and the only line of a proxy that does not start."""
    code = run(["proxy", "--listen", "0", "--memory", *QUICK, *arguments])
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if "event=pairing_warning" not in line]
    assert (out, len(lines)) == ("", 1), err
    return code, lines[0]


def sides(pair: NamespacePair, **others: str) -> list[str]:
    known = {"primary": pair.primary.connection_string, "secondary": pair.secondary.connection_string} | others
    return [word for side, text in known.items() for word in (f"--{side}", text)]


def test_namespaces_that_nobody_named_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, line = failure(capsys)
    assert (code, "which namespaces? give --primary" in line) == (1, True)


def test_a_namespace_is_not_paired_with_itself(pair: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    code, line = failure(capsys, *sides(pair, secondary=pair.primary.connection_string))
    assert (code, "are the same namespace" in line) == (1, True)


@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_a_wrong_key_is_said_with_the_namespace(
    pair: NamespacePair, side: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = getattr(pair, side).connection_string.replace("SharedAccessKey=", "SharedAccessKey=wrong")
    code, line = failure(capsys, *sides(pair, **{side: text}))
    name = getattr(pair, side).name
    assert (code, name in line) == (1, True), line
    assert "key is wrong" in line or "refuses" in line or "unauthorised" in line, line


def test_a_string_without_a_key_needs_a_credential(pair: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    code, line = failure(capsys, *sides(pair, primary=keyless(pair.primary)))
    assert (code, "name a credential" in line) == (1, True)


class Mail(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"220 mail.example.com ESMTP\r\n")
        self.request.recv(1)


class Web(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(10_000)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


class OlderAmqp(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(8)
        self.request.sendall(b"AMQP\x00\x00\x09\x01")


@contextmanager
def serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("side", ["primary", "secondary"])
@pytest.mark.parametrize("handler", [Mail, Web, OlderAmqp])
@pytest.mark.parametrize("ending", ["UseDevelopmentEmulator=true", ""])
def test_what_is_no_service_bus_is_said_at_once(
    pair: NamespacePair,
    side: str,
    handler: type[socketserver.BaseRequestHandler],
    ending: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(handler) as port:
        text = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=a;SharedAccessKey=b;TwinbusNamespace=other;{ending}"
        code, line = failure(capsys, *sides(pair, **{side: text}))
    assert (code, "other" in line) == (1, True), line
    assert f"the {side} other" in line
    assert "does not answer as a Service Bus namespace does" in line


def test_a_certificate_that_is_not_trusted_is_said(pair: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    text = pair.primary.connection_string.replace("UseDevelopmentEmulator=true;", "").partition("TwinbusCA")[0]
    code, line = failure(capsys, *sides(pair, primary=text))
    assert (code, "has a certificate that is not trusted" in line) == (1, True)


def test_ports_that_are_taken_are_said(pair: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, line = failure(capsys, *sides(pair), "--listen", port)
        assert (code, port in line) == (1, True)
        code, line = failure(capsys, *sides(pair), "--metrics", port)
        assert (code, f"--metrics: cannot listen on 127.0.0.1:{port}" in line) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--listen", "here"], "--listen takes a port, e.g. 5672 (0 picks a free one)"),
        (["--listen", "1:70000"], "--listen takes a port"),
        (["--metrics", "x"], "--metrics takes a port"),
        (["--name", "-"], "a namespace name has"),
        (["--rule", "x"], "--rule: "),
        (["--limit", "busy_operations_per_second=5"], "no limit is called busy_operations_per_second"),
        (["--limit", "x"], "--limit takes NAME=NUMBER"),
        (["--failover-interval", "1"], "--failover-interval: a duration needs a number and a unit"),
        (["--order", "session"], "--order session needs --syphon"),
        (["--cert", "x"], "--cert and --key-file need each other"),
        (["--data", "x"], "--memory and --data exclude each other"),
        (["--ledger", "."], "--ledger takes a folder of its own"),
    ],
)
def test_wrong_arguments_are_one_line_and_code_2(
    pair: NamespacePair, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = failure(capsys, *sides(pair), *arguments)
    assert (code, text in line) == (2, True), line


# --- Entra ID ---


def test_entra_id_takes_the_place_of_keys(start: Start) -> None:
    with (
        identity_endpoint() as machine,
        LocalNamespace("contoso", queues=["orders"], jwt_issuers=[issuer()]) as primary,
        LocalNamespace("backup", jwt_issuers=[issuer()]) as secondary,
    ):
        assert isinstance(machine, IdentityEndpoint)
        process = start(
            NamespacePair(primary, secondary),
            "--json",
            TWINBUS_PRIMARY=keyless(primary),
            TWINBUS_SECONDARY=keyless(secondary),
            TWINBUS_CREDENTIAL="managed-identity",
            **machine.environment,
        )
        text = json.loads(next_line(process))["connection_string"]
        assert send_and_receive(text, "42") == "42"
        authority = text.partition("TwinbusCA=")[2]
        with ServiceBusAdministrationClient.from_connection_string(text, connection_verify=authority) as admin:
            assert admin.get_queue("orders").name == "orders"
        assert end(process)[0] == 0


def test_the_default_port_is_the_one_that_clients_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["proxy", "--help"]) == 0
    assert "[default: 127.0.0.1:5672]" in " ".join(capsys.readouterr().out.split())
