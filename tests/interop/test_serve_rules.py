"""`twinbus serve --rule`: more keys, printed and kept."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthorizationError

WAIT_S = 30
ARGUMENTS = ("--namespace", "local:0", "--queue", "orders", "--rule", "reader:Listen", "--rule", "app:Send:my-key")


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "twinbus", "serve", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=WAIT_S)


def strings_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    strings: dict[str, Any] = said["rule_connection_strings"]
    return strings


def key_in(connection_string: str) -> str:
    return connection_string.partition("SharedAccessKey=")[2].partition(";")[0]


def test_a_rules_connection_string_allows_what_the_rule_does(tmp_path: Path) -> None:
    with serving(tmp_path, *ARGUMENTS, "--json") as process:
        strings = strings_of(process)
        with ServiceBusClient.from_connection_string(strings["app"], retry_total=0) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("42"))
            with pytest.raises(ServiceBusAuthorizationError), client.get_queue_receiver("orders") as receiver:
                receiver.receive_messages(1, max_wait_time=5)


def test_a_rules_key_is_kept(tmp_path: Path) -> None:
    with serving(tmp_path, *ARGUMENTS, "--json") as process:
        first = strings_of(process)
    with serving(tmp_path, *ARGUMENTS, "--json") as process:
        second = strings_of(process)
    assert set(first) == {"reader", "app"}
    assert key_in(first["reader"]) == key_in(second["reader"]) != ""
    assert key_in(second["app"]) == "my-key"
    kept = tmp_path / ".twinbus" / "local" / "rule-keys.json"
    assert json.loads(kept.read_text()) == {"reader": key_in(first["reader"])}
    assert kept.stat().st_mode & 0o777 == 0o600


def test_people_see_a_line_per_rule(tmp_path: Path) -> None:
    with serving(tmp_path, *ARGUMENTS, "--memory") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().split("  ") for _ in range(3)]
    assert [line[0] for line in lines] == ["local", "local reader", "local app"]
    assert all("Endpoint=sb://127.0.0.1:" in line[1] for line in lines)
    assert "SharedAccessKeyName=reader;" in lines[1][1]
