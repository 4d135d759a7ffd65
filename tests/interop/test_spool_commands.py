"""`twinbus syphon --spool`, `twinbus status --spool` and the quarantine of a spool (X4)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from json_rules import broken_rules
from paired import wait_until
from syphon_program import ids_at

from twinbus import PairedServiceBusClient, Retry
from twinbus.cli.main import run
from twinbus.spool.folder import SpoolDirectory
from twinbus.testing import LocalNamespace, NamespacePair


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    monkeypatch.chdir(tmp_path)
    with (
        LocalNamespace("contoso", queues=["orders", "invoices"]) as primary,
        LocalNamespace("backup", queues=[f"contoso/x-servicebus-transfer/{index}" for index in range(2)]) as secondary,
    ):
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)
        yield NamespacePair(primary, secondary)


def take_down(spaces: NamespacePair) -> None:
    for space in (spaces.primary, spaces.secondary):
        space.faults.add("unreachable", how="refuse")


def client(spaces: NamespacePair, folder: Path, **wishes: Any) -> PairedServiceBusClient:
    return PairedServiceBusClient.from_connection_strings(
        spaces.primary.connection_string,
        spaces.secondary.connection_string,
        failover_interval=timedelta(0),
        attempt_timeout=timedelta(seconds=2),
        retry=Retry(attempts=1),
        backlog_queue_count=2,
        spool=folder,
        **wishes,
    )


def leave_behind(spaces: NamespacePair, folder: Path, count: int = 3, **parts: Any) -> None:
    """A process had a spool, put messages into it and ended."""
    take_down(spaces)
    with client(spaces, folder) as bus, bus.get_queue_sender("orders") as sender:
        for number in range(count):
            sender.send_messages(ServiceBusMessage(f"{number}", message_id=f"m{number}", **parts))


def finished(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    assert found["event"] == "finished"
    return found


def test_a_spool_that_was_left_behind_is_emptied(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_behind(spaces, tmp_path / "spool")
    spaces.primary.faults.clear()
    assert run(["syphon", "--spool", str(tmp_path / "spool"), "--until-empty"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 messages are home (")
    assert out.endswith("from 1 folders): no folder with messages is left behind\n")
    assert ids_at(spaces.primary, "orders") == ["m0", "m1", "m2"]
    assert [each.name for each in (tmp_path / "spool").iterdir() if each.is_dir()] == []


def test_what_cannot_go_home_goes_to_the_backlog(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_behind(spaces, tmp_path / "spool")
    spaces.secondary.faults.clear()
    arguments = ["syphon", "--spool", str(tmp_path / "spool"), "--until-empty", "--queues", "2", "--json"]
    assert run([*arguments, "--timeout", "2s", "--ledger", str(tmp_path / "ledger")]) == 0
    found = finished(capsys.readouterr().out)
    assert (found["moved"], found["to_backlog"], found["folders"], found["ending"]) == (3, 3, 1, "empty")
    assert list(broken_rules(found)) == []
    spaces.primary.faults.clear()
    assert run(["syphon", "--until-empty", "--queues", "2"]) == 0
    assert ids_at(spaces.primary, "orders") == ["m0", "m1", "m2"]
    kinds = [json.loads(line)["kind"] for file in (tmp_path / "ledger").glob("*.jsonl") for line in file.open()]
    assert {"moved_to_backlog", "left_spool"} <= {*kinds}


def test_a_folder_in_use_is_left_to_its_process(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    take_down(spaces)
    with client(spaces, tmp_path / "spool") as bus, bus.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("1"))
        assert run(["syphon", "--spool", str(tmp_path / "spool"), "--until-empty"]) == 3
        out = capsys.readouterr().out
        assert f"1 messages are in {tmp_path / 'spool' / '1'}, which process {os.getpid()} uses" in out
        assert run(["syphon", "quarantine", "list", "--spool-folder", str(tmp_path / "spool" / "1")]) == 1
        assert f"is in use by process {os.getpid()}" in capsys.readouterr().err


def test_a_damaged_folder_is_one_line_and_exit_code_1_and_the_others_are_emptied(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_behind(spaces, tmp_path / "spool")
    (tmp_path / "spool" / "1").rename(tmp_path / "spool" / "2")
    (tmp_path / "spool" / "1").mkdir(mode=0o700)
    store = tmp_path / "spool" / "1" / "store.sqlite"
    store.write_bytes(b"not a database" * 100)
    spaces.primary.faults.clear()
    spaces.secondary.faults.clear()
    assert run(["syphon", "--spool", str(tmp_path / "spool"), "--until-empty"]) == 1
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert f"the store {store} is damaged" in err
    assert ids_at(spaces.primary, "orders") == ["m0", "m1", "m2"]
    assert store.read_bytes() == b"not a database" * 100


def test_a_spool_of_another_pair_and_a_folder_that_is_no_spool_are_one_line_each(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SpoolDirectory(tmp_path / "spool", "fabrikam").open()
    for command in (["syphon", "--until-empty"], ["status"]):
        assert run([*command, "--spool", str(tmp_path / "spool")]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "is of another pair: its primary is fabrikam, not contoso" in line
        assert run([*command, "--spool", str(tmp_path)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith(f"{tmp_path} is not a spool: give the folder that the clients have as spool")
    assert not (tmp_path / "pair").exists()


@pytest.mark.parametrize("option", [["--order", "session"], ["--dry-run"], ["--metrics", "9464"]])
def test_what_does_not_go_with_a_spool_is_said(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    assert run(["syphon", "--spool", str(tmp_path), *option]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_status_shows_the_folders_and_waits_with_them(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_behind(spaces, tmp_path / "spool", count=2)
    spaces.primary.faults.clear()
    spaces.secondary.faults.clear()
    arguments = ["status", "--queues", "2", "--spool", str(tmp_path / "spool")]
    assert run(arguments) == 12
    out = capsys.readouterr().out
    assert out.startswith("waiting: 2 messages wait in the spool\n")
    assert re.search(rf"{tmp_path / 'spool' / '1'} +left behind +2", out)
    assert "orders 2" in out
    assert run([*arguments, "--json"]) == 12
    found = json.loads(capsys.readouterr().out)
    (folder,) = found["spool"]
    assert (folder["messages"], folder["process"], folder["entities"]) == (2, None, {"orders": 2})
    assert found["verdict"] == "waiting"
    assert list(broken_rules(found)) == []
    assert run(["syphon", "--spool", str(tmp_path / "spool"), "--until-empty"]) == 0
    capsys.readouterr()
    assert run(arguments) == 0
    assert "no process uses it, and nothing is in it" in capsys.readouterr().out


def test_status_finds_a_spool_that_a_process_of_this_machine_left_behind(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_behind(spaces, tmp_path / "spool", count=2)
    spaces.primary.faults.clear()
    spaces.secondary.faults.clear()
    assert run(["status", "--queues", "2"]) == 12
    out = capsys.readouterr().out
    assert out.startswith("waiting: 2 messages wait in the spool\n")
    assert re.search(rf"{tmp_path / 'spool' / '1'} +left behind +2", out)
    (tmp_path / "spool" / "pair").write_text("fabrikam\n")
    assert run(["status", "--queues", "2", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "unknown"
    assert "is of another pair" in found["spool"][0]["problem"]
    (tmp_path / "spool").rename(tmp_path / "elsewhere")
    (tmp_path / "spool").symlink_to(tmp_path / "spool")  # the system refuses to look at it
    assert run(["status", "--queues", "2", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["spool"][0]["problem"]


def test_status_reads_a_spool_that_is_in_use(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    take_down(spaces)
    with client(spaces, tmp_path / "spool") as bus, bus.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("1"))
        run(["status", "--queues", "2", "--spool", str(tmp_path / "spool"), "--json", "--timeout", "1s"])
        (folder,) = json.loads(capsys.readouterr().out)["spool"]
        assert (folder["messages"], folder["process"]) == (1, os.getpid())


def test_what_was_put_aside_in_a_spool_is_listed_and_sent_home_after_all(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_behind(spaces, tmp_path / "spool", count=1, time_to_live=timedelta(seconds=1))
    time.sleep(1.1)
    spaces.primary.faults.clear()
    spool = tmp_path / "spool"
    assert run(["syphon", "--spool", str(spool), "--until-empty"]) == 3
    out = capsys.readouterr().out
    assert f"1 messages are in quarantine: see twinbus syphon quarantine list --spool-folder {spool / '1'}" in out
    assert run(["syphon", "quarantine", "list", "--spool-folder", str(spool / "1"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["message_id"], found["reason"]) == ("m0", "TwinbusExpired")
    assert run(["syphon", "quarantine", "redrive", "--all", "--spool-folder", str(spool / "1")]) == 0
    assert ids_at(spaces.primary, "orders") == ["m0"]
    assert not (spool / "1").exists(), "nothing is left in it"


def test_as_a_service_it_waits_for_folders_and_stops_on_a_signal(spaces: NamespacePair, tmp_path: Path) -> None:
    leave_behind(spaces, tmp_path / "spool", count=1)
    spaces.primary.faults.clear()
    command = [sys.executable, "-m", "twinbus", "syphon", "--spool", str(tmp_path / "spool"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: ids_at(spaces.primary, "orders") == ["m0"])
        wait_until(lambda: not (tmp_path / "spool" / "1").exists())
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert finished(out)["ending"] == "stopped"
