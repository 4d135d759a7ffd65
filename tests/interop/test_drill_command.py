"""`twinbus drill` with real namespaces: what is measured, and that everything is put back whatever happens."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.management import ServiceBusAdministrationClient
from signals import as_at_a_terminal

from twinbus import Namespace
from twinbus.cli.main import run
from twinbus.drill import canary_collector, changes, injection
from twinbus.testing import LocalNamespace, NamespacePair

WAIT_S = 90.0
QUICK = (
    *("--length", "3s", "--before", "500ms", "--failover-interval", "0s", "--ping-interval", "1s", "--timeout", "30s"),
    *("--attempts", "1", "--rate", "20", "--count", "2", "--yes"),
)
"""As quick as it can be with a fault that a canary meets, also on a machine that stalls for a while."""


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    """Two namespaces in the environment of the commands, and a folder of our own for notes."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "bus"
    with LocalNamespace("contoso", data=data, queues=["orders"]) as primary, LocalNamespace("backup") as secondary:
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield NamespacePair(primary, secondary)


def admin_of(namespace: LocalNamespace) -> ServiceBusAdministrationClient:
    return Namespace.from_connection_string(namespace.connection_string).admin_client()


def status_of(namespace: LocalNamespace, queue: str = "orders") -> str:
    with admin_of(namespace) as admin:
        return str(getattr(status := admin.get_queue(queue).status, "value", status))


def lying_in(namespace: LocalNamespace, queue: str = "orders") -> int:
    with admin_of(namespace) as admin:
        return admin.get_queue_runtime_properties(queue).total_message_count or 0


def notes(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "state").rglob("*.drill"))


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


# --- what is measured ---


def test_a_fault_over_the_control_socket_is_measured_and_nothing_is_left(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ("--max-failover", "30s", "--max-gap", "30s", "--max-recovery", "30s", "--max-drain", "30s")
    assert run(["drill", "--entity", "orders", *QUICK, *limits, "--report", "drill.md"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("PASSED: no-send of orders on contoso for 3 s\n")
    assert out.count("kept") == 5
    assert "over the control socket" in err
    for line in ("failed over", "orders is put back", "recovered"):
        assert line in err
    assert (tmp_path / "drill.md").read_text().startswith("# PASSED")
    assert (spaces.primary.faults.list(), lying_in(spaces.primary), notes(tmp_path)) == ([], 0, [])


def test_every_canary_of_an_unanswered_outage_is_accounted_for_with_its_copies(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    unanswered = ("--fault", "unanswered", "--timeout", "4s", "--length", "5s", "--max-gap", "1s")
    assert run(["drill", "--entity", "orders", *QUICK, *unanswered, "--json", "--leave-canaries"]) == 1
    said = printed(capsys)
    measures = said["measures"]
    assert (said["verdict"], measures["lost"], measures["waiting"], said["taken_back"]) == ("fail", [], 0, 0)
    assert [finding["name"] for finding in said["findings"] if not finding["passed"]] == ["gap"]
    assert measures["duplicates"] >= 1, "stored on the primary, not answered, sent again by the backlog"
    assert measures["failover_s"] >= 3.9
    assert measures["to_primary"] + measures["to_backlog"] == measures["sent"]
    assert lying_in(spaces.primary) == measures["sent"] + measures["duplicates"]


@pytest.mark.parametrize("kind", ["session queue", "topic"])
def test_a_status_is_changed_and_put_back_for_sessions_and_topics_too(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    with admin_of(spaces.primary) as admin:
        if kind == "topic":
            admin.create_topic("news")
        else:
            admin.create_queue("news", requires_session=True)
        assert run(["drill", "--entity", "news", "--by-status", *QUICK, "--json"]) == 0
        out, err = capsys.readouterr()
        said = json.loads(out)
        assert f"Drill of news, a {kind} of contoso" in err
        assert "has the status SendDisabled" in err
        assert (said["way"], said["measures"]["lost"], said["put_back"]) == ("status", [], True)
        assert said["measures"]["to_backlog"] > 0
        assert said["measures"]["to_primary"] > 0
        if kind == "topic":
            assert admin.get_topic("news").status == "Active"
            assert list(admin.list_subscriptions("news")) == []
        else:
            assert said["taken_back"] == said["measures"]["sent"]
            assert said["left_at_home"] == 0
            assert admin.get_queue("news").status == "Active"
            assert admin.get_queue_runtime_properties("news").total_message_count == 0
    assert notes(tmp_path) == []


def test_a_namespace_without_a_control_socket_is_drilled_by_status(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalNamespace("fabrikam", queues=["orders"]) as remote:
        monkeypatch.setenv("TWINBUS_PRIMARY", remote.connection_string)
        assert run(["drill", "--entity", "orders", "--dry-run", "--json"]) == 0
        assert printed(capsys)["way"] == "status"
        assert run(["drill", "--entity", "orders", "--dry-run", "--fault", "unanswered"]) == 2
        assert "has no control socket here" in capsys.readouterr().err


def test_the_control_socket_of_another_namespace_is_refused(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalNamespace("fabrikam", data=tmp_path / "bus"):
        control = str(tmp_path / "bus" / "fabrikam" / "control.sock")
        assert run(["drill", "--entity", "orders", "--control", control, *QUICK]) == 2
    assert "is that of fabrikam, and the primary is contoso" in capsys.readouterr().err


@pytest.mark.long
def test_messages_of_others_in_front_are_not_touched(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        ServiceBusClient.from_connection_string(spaces.primary.connection_string) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        sender.send_messages([ServiceBusMessage(f"real {number}") for number in range(3)])
        assert run(["drill", "--entity", "orders", *QUICK, "--json"]) == 0
        said = printed(capsys)
        assert (said["taken_back"], said["measures"]["lost"]) == (0, [])
        assert said["left_at_home"] == lying_in(spaces.primary) - 3
        found = [message for _ in range(3) for message in receiver.receive_messages(1, max_wait_time=10)]
        assert [(str(message), message.delivery_count) for message in found] == [(f"real {n}", 0) for n in range(3)]
        (canary,) = receiver.peek_messages(1, sequence_number=(found[-1].sequence_number or 0) + 1)
        assert (canary.application_properties or {})[b"twinbus-drill"] == said["drill"].encode()


def test_what_other_receivers_take_is_not_lost(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    is_open, is_over, taken = threading.Event(), threading.Event(), []

    def consume() -> None:
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with (
            ServiceBusClient.from_connection_string(spaces.primary.connection_string) as client,
            client.get_queue_receiver("orders", receive_mode=mode) as receiver,
        ):
            is_open.set()
            while not is_over.is_set():
                taken.extend(receiver.receive_messages(50, max_wait_time=0.1))
            while late := receiver.receive_messages(
                50, max_wait_time=1
            ):  # what came after the last call is deleted too
                taken.extend(late)

    consumer = threading.Thread(target=consume)
    consumer.start()
    try:
        assert is_open.wait(WAIT_S)
        assert run(["drill", "--entity", "orders", *QUICK, "--json"]) == 0
    finally:
        is_over.set()
        consumer.join()
    out, err = capsys.readouterr()
    measures = json.loads(out)["measures"]
    assert "somebody else receives from orders" in err
    assert (measures["lost"], measures["drain_s"] is not None) == ([], True)
    assert 0 < measures["taken"] <= len(taken)


@pytest.mark.long
def test_the_first_canary_is_waited_for_also_if_it_takes_longer_than_the_time_before_the_fault(
    spaces: NamespacePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = spaces.primary.faults.add("slow", entities=["orders"], delay=timedelta(seconds=1))
    begin = injection.ByControl.begin

    async def begin_in_haste(self: injection.ByControl) -> None:
        spaces.primary.faults.clear(slow)  # all that comes later need not be slow
        await begin(self)

    monkeypatch.setattr(injection.ByControl, "begin", begin_in_haste)
    assert run(["drill", "--entity", "orders", *QUICK]) == 0


def test_canaries_that_nobody_brings_home_are_found_in_the_backlog(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canary_collector, "PATIENCE_S", 0.5)
    assert run(["drill", "--entity", "orders", *QUICK, "--no-syphon"]) == 1
    out, err = capsys.readouterr()
    assert "still in the backlog" in out, err
    assert out.count("MISSED") == 1, "not drained, and nothing is lost"
    assert sum(lying_in(spaces.secondary, f"contoso/x-servicebus-transfer/{index}") for index in (0, 1)) > 0


# --- nothing happens ---


def test_a_dry_run_says_what_would_happen_and_changes_nothing(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["drill", "--entity", "orders", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "for 1 min 30 s: orders refuses sends (no-send, over the control socket)" in out
    assert out.endswith("Nothing was done.\n")
    with admin_of(spaces.secondary) as admin:
        assert list(admin.list_queues()) == []
    assert (spaces.primary.faults.list(), lying_in(spaces.primary), notes(tmp_path)) == ([], 0, [])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "which entity? give --entity NAME"),
        (["--entity", "nothing"], "contoso has no queue or topic 'nothing'"),
        (["--entity", "orders", "--length", "soon"], "--length: a duration needs a number"),
        (["--entity", "orders", "--report", "drill.pdf"], "--report ends in .json or .md"),
        (["--entity", "orders", "--report", "nowhere/drill.md"], "cannot be written"),
        (["--entity", "orders", "--by-status", "--control", "x"], "give one of them"),
        (["--entity", "orders", "--undo"], "leave --entity out"),
        (["--entity", "orders", "--primary-name", "a b"], "primary_name has"),
        (["--entity", "orders", "--count", "0"], "--queues must be from 1 to 100"),
    ],
)
def test_wrong_arguments_are_one_line_and_nothing_happens(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert run(["drill", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert text in err
    assert (lying_in(spaces.primary), notes(tmp_path)) == (0, [])


def test_an_entity_that_is_not_active_is_not_drilled(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    with admin_of(spaces.primary) as admin:
        admin.update_queue(admin.get_queue("orders"), status="ReceiveDisabled")
    assert run(["drill", "--entity", "orders", *QUICK]) == 1
    assert "orders is ReceiveDisabled, not Active" in capsys.readouterr().err
    assert status_of(spaces.primary) == "ReceiveDisabled"


def test_a_backlog_that_would_keep_canaries_is_not_drilled(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    with admin_of(spaces.secondary) as admin:
        for index in range(2):
            admin.create_queue(f"contoso/x-servicebus-transfer/{index}")
        admin.update_queue(admin.get_queue("contoso/x-servicebus-transfer/1"), status="ReceiveDisabled")
    assert run(["drill", "--entity", "orders", *QUICK]) == 1
    assert "backlog queue 1 cannot be emptied: disabled" in capsys.readouterr().err
    assert (lying_in(spaces.primary), status_of(spaces.primary)) == (0, "Active")


# --- interrupted ---


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "twinbus", "drill", "--entity", "orders", *arguments]


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if text in line:
            return
    raise AssertionError(f"it ended without {text!r}: {''.join(said)}")


@pytest.mark.long
def test_a_signal_ends_it_cleanly_and_canaries_are_accounted_for(spaces: NamespacePair, tmp_path: Path) -> None:
    long = command(*QUICK, "--by-status", "--length", "10m", "--json")
    with subprocess.Popen(
        long, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=as_at_a_terminal
    ) as process:
        wait_for(process, "failed over")
        assert status_of(spaces.primary) == "SendDisabled"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WAIT_S)
    said = json.loads(out)
    assert (process.returncode, said["verdict"], said["put_back"]) == (130, "interrupted", True)
    assert said["measures"]["to_backlog"] > 0
    assert (said["measures"]["lost"], said["measures"]["waiting"]) == ([], 0)
    assert (status_of(spaces.primary), lying_in(spaces.primary), notes(tmp_path)) == ("Active", 0, [])


@pytest.mark.long
def test_a_terminal_that_is_closed_ends_it_cleanly_though_nobody_hears_of_it(
    spaces: NamespacePair, tmp_path: Path
) -> None:
    long = command(*QUICK, "--by-status", "--length", "10m", "--json")
    with subprocess.Popen(
        long,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=as_at_a_terminal,
    ) as process:
        wait_for(process, "failed over")
        assert process.stderr is not None
        process.stderr.close()  # whatever it says from now on cannot be written
        process.send_signal(signal.SIGHUP)
        assert process.stdout is not None
        said = json.loads(process.stdout.read())
        assert process.wait(WAIT_S) == 130
    assert (said["verdict"], said["put_back"]) == ("interrupted", True)
    assert (status_of(spaces.primary), notes(tmp_path)) == ("Active", [])


@pytest.mark.long
def test_a_second_signal_leaves_at_once_and_still_puts_the_entity_back(spaces: NamespacePair, tmp_path: Path) -> None:
    long = command(*QUICK, "--length", "10m", "--no-syphon")
    with subprocess.Popen(
        long, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=as_at_a_terminal
    ) as process:
        wait_for(process, "failed over")
        assert len(spaces.primary.faults.list()) == 1
        process.send_signal(signal.SIGTERM)
        wait_for(process, "orders is put back")  # nobody brings the canaries home: it would wait for them
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (130, "")
    assert "canaries were not counted" in err
    assert (spaces.primary.faults.list(), notes(tmp_path)) == ([], [])


@pytest.mark.parametrize("way", ["status", "control"])
def test_what_a_killed_drill_left_behind_is_undone(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    options = ["--by-status"] if way == "status" else []
    long = command(*QUICK, *options, "--length", "10m")
    with subprocess.Popen(
        long, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=as_at_a_terminal
    ) as process:
        wait_for(process, "failed over")
        assert run(["drill", "--undo"]) == 3, "it runs, and is left alone"
        assert f"process {process.pid}" in capsys.readouterr().out
        process.kill()
    assert len(notes(tmp_path)) == 1
    if way == "control":
        assert run(["drill", "--entity", "orders", *QUICK]) == 1
        assert "run twinbus drill --undo first" in capsys.readouterr().err
        assert [fault["length_ms"] is not None for fault in spaces.primary.faults.list()] == [True]
    else:
        assert status_of(spaces.primary) == "SendDisabled"
    assert run(["drill", "--undo"]) == 0
    assert capsys.readouterr().out == "orders: is as it was before the drill\n"
    assert (status_of(spaces.primary), spaces.primary.faults.list(), notes(tmp_path)) == ("Active", [], [])
    assert run(["drill", "--undo"]) == 0
    assert capsys.readouterr().out == "nothing is left of any drill\n"


def test_undoing_ignores_options_of_a_drill(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drill", "--undo", "--queues", "200", "--rate", "0", "--length", "soon"]) == 0
    assert capsys.readouterr().out == "nothing is left of any drill\n"


def test_what_cannot_be_put_back_is_reported_with_the_way_to_do_it_later(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "PAUSES_S", (0.0, 0.1))
    begin = injection.ByStatus.begin

    async def begin_and_lose_the_administration(self: injection.ByStatus) -> None:
        await begin(self)
        spaces.primary.faults.add("no-manage")

    monkeypatch.setattr(injection.ByStatus, "begin", begin_and_lose_the_administration)
    assert run(["drill", "--entity", "orders", "--by-status", *QUICK, "--length", "1s"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "orders cannot be put back" in err
    assert err.strip().endswith("twinbus drill --undo")
    assert run(["drill", "--undo"]) == 3
    assert len(notes(tmp_path)) == 1
    spaces.primary.faults.clear()
    capsys.readouterr()
    assert run(["drill", "--undo", "--json"]) == 0
    assert [each["is_done"] for each in printed(capsys)["undone"]] == [True]
    assert (status_of(spaces.primary), notes(tmp_path)) == ("Active", [])


def test_on_a_terminal_it_asks_first_and_no_means_no(spaces: NamespacePair, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("--failover-interval", "0s", "--length", "1s"), stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    with process:
        shown, deadline = b"", time.monotonic() + WAIT_S
        while b"Go on?" not in shown:
            assert time.monotonic() < deadline, shown
            shown += os.read(ours, 65_536) if select.select([ours], [], [], 0.1)[0] else b""
        os.write(ours, b"n\n")
        assert process.wait(WAIT_S) == 130
    os.close(ours)
    assert b"Drill of orders" in shown
    assert (spaces.primary.faults.list(), notes(tmp_path)) == ([], [])
