"""`twinbus pair` and `twinbus status` with real namespaces, as people and programs see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.cli.main import run
from twinbus.testing import LocalNamespace, NamespacePair

KEY = "key-that-nobody-may-see"


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    """Two namespaces that are in the environment of the commands."""
    rules = [f"sender:Send:{KEY}"]
    monkeypatch.chdir(tmp_path)
    with (
        LocalNamespace("contoso", queues=["orders"], rules=rules) as primary,
        LocalNamespace("backup", rules=rules) as secondary,
    ):
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)
        yield NamespacePair(primary, secondary)


def test_pair_makes_the_queues_once_and_says_so(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pair", "--count", "3"]) == 0
    out, err = capsys.readouterr()
    assert f"primary    contoso (127.0.0.1:{spaces.primary.port})" in out
    assert f"secondary  backup (127.0.0.1:{spaces.secondary.port})" in out
    assert "3 of 3 queues can be used, 3 of them new: contoso/x-servicebus-transfer/0..2" in out
    assert err.startswith("twinbus: warning: primary and secondary are on the same host")
    assert run(["pair", "--count", "3"]) == 0
    assert "0 of them new" in capsys.readouterr().out


def test_pair_shows_programs_the_same(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pair", "--count", "2", "--syphon", "--entity", "orders", "--json"]) == 0
    out, err = capsys.readouterr()
    said = json.loads(out)
    paths = ["contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1"]
    assert (said["usable"], said["created"], said["lost"], said["backlog_queue_count"]) == (paths, paths, {}, 2)
    assert said["duplicate_detection"] == {"orders": "off"}
    assert len(said["warnings"]) == 2
    assert err == ""


def test_a_key_without_manage_is_one_line_and_no_key(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINBUS_SECONDARY", spaces.secondary.connection_string_for("sender"))
    assert run(["pair"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "twinbus pair --emit" in err
    assert KEY not in err
    spaces.secondary.create_queue("contoso/x-servicebus-transfer/0")
    assert run(["pair", "--no-create", "--count", "1"]) == 0


@pytest.mark.parametrize("command", ["pair", "status"])
def test_the_same_namespace_twice_is_one_line(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run([command, "--secondary", spaces.primary.connection_string]) == 2
    assert "TWINBUS_PRIMARY and --secondary are the same namespace" in capsys.readouterr().err


def test_a_namespace_without_a_name_asks_for_one(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    nameless = spaces.primary.connection_string.replace("TwinbusNamespace=contoso;", "")
    assert run(["pair", "--primary", nameless]) == 1
    assert "--primary-name" in capsys.readouterr().err
    assert run(["pair", "--primary", nameless, "--primary-name", "contoso", "--count", "1"]) == 0


def test_status_shows_what_lies_in_the_backlog(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    run(["pair", "--count", "2"])
    capsys.readouterr()
    with (
        ServiceBusClient.from_connection_string(spaces.secondary.connection_string) as client,
        client.get_queue_sender("contoso/x-servicebus-transfer/1") as sender,
    ):
        sender.send_messages([ServiceBusMessage("x") for _ in range(5)])
    assert run(["status", "--count", "2", "--all"]) == 12
    out, err = capsys.readouterr()
    assert "contoso (127.0.0.1" in out
    assert out.count("  open\n") == 2
    assert "waiting    5 messages" in out
    assert "syphon     unknown" in out
    assert "is 1024, not 5120" not in out, "as pairing has made them"
    assert err == ""
    assert run(["status", "--count", "2", "--again-after", "200ms", "--json"]) == 12
    said = json.loads(capsys.readouterr().out)
    assert (said["waiting_messages"], said["verdict"], said["is_filling"]) == (5, "waiting", False)
    assert [queue["differs"] for queue in said["queues"]] == [[], []]


def test_status_says_in_its_first_line_what_is_wrong(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--count", "2"]) == 10
    out, err = capsys.readouterr()
    assert out.startswith("failing: 2 of 2 backlog queues cannot be used (not found")
    assert out.count("not found\n") == 2
    assert err == ""
    spaces.primary.faults.add("unreachable")
    run(["pair", "--count", "2"])
    capsys.readouterr()
    assert run(["status", "--count", "2"]) == 10
    assert capsys.readouterr().out.startswith("failing: contoso does not answer (")


def test_status_says_what_a_lesser_key_may_not_know(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces.secondary.create_queue("contoso/x-servicebus-transfer/0")
    monkeypatch.setenv("TWINBUS_SECONDARY", spaces.secondary.connection_string_for("sender"))
    assert run(["status", "--count", "1"]) == 3
    out, _ = capsys.readouterr()
    assert out.startswith("unknown: what waits in the backlog (contoso/x-servicebus-transfer/0 cannot be read)")
    assert "waiting    ? messages" in out
    assert "settings and sizes are unknown: unauthorised" in out
    assert KEY not in out
