"""`twinbus backup`: a copy of a running namespace can be served, with everything that was acknowledged."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.cli.main import run
from twinbus.testing import LocalNamespace


def send(namespace: LocalNamespace, *bodies: str) -> None:
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages([ServiceBusMessage(body) for body in bodies])


def bodies(connection_string: str, count: int) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        return [str(message) for message in receiver.peek_messages(count + 10)]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_copy_of_a_running_namespace_is_served_with_the_same_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalNamespace("contoso", data=Path("bus"), queues=["orders"]) as running:
        send(running, "one", "two")
        assert run(["backup", "monday", "--data", "bus", "--json"]) == 0
        send(running, "three")
        key = running.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    said = json.loads(capsys.readouterr().out)
    (copied,) = said["namespaces"]
    assert (copied["namespace"], copied["entities"], copied["messages"]) == ("contoso", 1, 2)
    with LocalNamespace("contoso", data=Path("monday")) as restored:
        assert f"SharedAccessKey={key};" in restored.connection_string
        assert bodies(restored.connection_string, 2) == ["one", "two"]


def test_a_copy_is_private_and_has_nothing_that_belongs_to_a_process(capsys: pytest.CaptureFixture[str]) -> None:
    with LocalNamespace("contoso", data=Path("bus"), queues=["orders"]):
        assert run(["backup", "monday", "--data", "bus"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["namespace", "entities", "messages", "size"]
    assert row.split()[:3] == ["contoso", "1", "0"]
    files = {each.name: stat.S_IMODE(each.stat().st_mode) for each in Path("monday/contoso").iterdir()}
    assert files == dict.fromkeys(("ca-key.pem", "ca.pem", "created", "key", "store.sqlite"), 0o600)
    assert stat.S_IMODE(Path("monday").stat().st_mode) == 0o700


def test_a_namespace_that_is_stopped_is_copied_too_and_others_only_if_asked_for() -> None:
    for name in ("contoso", "backup"):
        with LocalNamespace(name, data=Path("bus"), queues=["orders"]) as running:
            send(running, name)
    assert run(["backup", "all", "--data", "bus"]) == 0
    assert run(["backup", "one", "--data", "bus", "--namespace", "Contoso"]) == 0
    assert sorted(each.name for each in Path("all").iterdir()) == ["backup", "contoso"]
    assert [each.name for each in Path("one").iterdir()] == ["contoso"]


def test_a_backup_that_has_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    with LocalNamespace("contoso", data=Path("bus"), queues=["orders"]) as running:
        send(running, *("x" * 1000 for _ in range(100)))
        done = subprocess.run(
            [sys.executable, "-m", "twinbus", "backup", "monday", "--data", "bus"],
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)),
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert bodies(running.connection_string, 100)[:1] == ["x" * 1000]
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "the backup monday cannot be made: " in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["bus"]
