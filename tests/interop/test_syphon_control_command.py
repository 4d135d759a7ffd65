"""`twinbus syphon list`, `pause`, `resume` and `pace` with real syphons: of a command, of clients, of a spool."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from backlog_messages import backlog_messages_for, fill
from json_rules import broken_rules
from syphon_program import QUEUES, WAIT_S, ids_at, started, wait_for

from twinbus import PairedServiceBusClient
from twinbus.aio import PairedServiceBusClient as AsyncPairedServiceBusClient
from twinbus.cli.main import run
from twinbus.syphon.control import PaceChange, RunningSyphon, pause, resume, running_syphons, set_pace
from twinbus.testing import LocalNamespace, NamespacePair

SLOW = ("--rate", "20")


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    """Two namespaces that are in the environment of the commands; the backlog has two queues."""
    monkeypatch.chdir(tmp_path)
    with (
        LocalNamespace("contoso", queues=["orders", "invoices"]) as primary,
        LocalNamespace("backup", queues=QUEUES) as secondary,
    ):
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)
        yield NamespacePair(primary, secondary)


@pytest.fixture
def filled(spaces: NamespacePair) -> NamespacePair:
    fill(spaces.secondary.connection_string, QUEUES[0], backlog_messages_for("orders", 2_000))
    fill(spaces.secondary.connection_string, QUEUES[1], backlog_messages_for("invoices", 50))
    return spaces


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def the_syphon() -> RunningSyphon:
    (found,) = running_syphons(wait_s=WAIT_S)
    assert found.facts is not None, found.problem
    return found


def facts() -> Any:
    return the_syphon().facts


def ended(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=WAIT_S)
    return process.returncode


def test_an_operator_pauses_tries_a_few_and_lets_it_go(
    filled: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    process = started("--until-empty", *SLOW)
    wait_for(process, "progress", moved_min=1)
    assert run(["syphon", "pause"]) == 0
    assert "paused" in capsys.readouterr().out
    until(lambda: facts().held == 0, "what was held goes back")
    moved = facts().moved
    assert (facts().is_paused, facts().rate_limit, facts().role) == (True, 20.0, "command")
    assert run(["syphon", "pace", "--no-rate", "--first", "10", "--entity", "orders", the_syphon().id]) == 0
    assert "10 more, then a pause; only orders" in capsys.readouterr().out
    assert facts().moved == moved, "a pause stays a pause"
    for words in (["pause", "contoso"], ["pace", "--no-rate"], ["list"], ["resume"]):
        assert run(["syphon", *words, "--json"]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    said = [each for document in documents for each in (document if isinstance(document, list) else [document])]
    assert [each["state"] for each in said] == ["paused", "paused", "paused", "running"]
    assert [problem for document in said for problem in broken_rules(document)] == []
    until(lambda: bool(facts().moved == moved + 10 and facts().is_paused), "it pauses after so many")
    assert run(["syphon", "list"]) == 0
    assert "paused after the canary" in capsys.readouterr().out
    assert process.poll() is None, "it waits for whoever set the number, and does not end"
    assert len(ids_at(filled.primary, "orders")) + len(ids_at(filled.primary, "invoices")) == moved + 10
    assert run(["syphon", "resume"]) == 0
    assert ended(process) == 0, "of what it was last told to move nothing is left"
    assert len(ids_at(filled.primary, "orders")) == 2_000
    assert len(ids_at(filled.primary, "invoices")) < 50
    assert running_syphons() == []


def test_a_number_that_was_given_at_the_start_still_ends_it(filled: NamespacePair) -> None:
    process = started("--until-empty", "--first", "40", *SLOW)
    wait_for(process, "progress", moved_min=1)
    set_pace(the_syphon(), PaceChange(rate=None), wait_s=WAIT_S)
    assert ended(process) == 3
    assert len(ids_at(filled.primary, "orders")) + len(ids_at(filled.primary, "invoices")) == 40


def test_wrong_words_change_nothing(filled: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["syphon", "pause"]) == 1
    assert "no syphon of this user runs on this machine" in capsys.readouterr().err
    assert run(["syphon", "list", "--json"]) == 0
    process = started(*SLOW)
    wait_for(process, "progress")
    for words, text in [
        (["pace"], "nothing changes: give --rate, --first, --entity, or what lifts them"),
        (["pace", "--rate", "0"], "--rate must be above 0"),
        (["pace", "--rate", "5", "--no-rate"], "--rate and --no-rate exclude each other"),
        (["pace", "--first", "0"], "--first must be 1 or more"),
        (["pause", "12-34"], "no syphon is called '12-34'"),
    ]:
        assert run(["syphon", *words]) == 2
        assert text in capsys.readouterr().err
    assert run(["syphon", "pause", "fabrikam"]) == 2
    assert (facts().is_paused, facts().rate_limit) == (False, 20.0)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == 0


def test_the_syphon_of_a_client_on_threads_is_paused_and_goes_on(filled: NamespacePair) -> None:
    with PairedServiceBusClient.from_connection_strings(
        filled.primary.connection_string,
        filled.secondary.connection_string,
        backlog_queue_count=2,
        enable_syphon=True,
    ) as bus:
        set_pace(the_syphon(), PaceChange(rate=20.0), wait_s=WAIT_S)
        assert pause(the_syphon(), wait_s=WAIT_S).is_paused
        status = bus.status().syphon
        assert status is not None
        assert (status.state, facts().role) == ("paused", "client")
        set_pace(the_syphon(), PaceChange(rate=None), wait_s=WAIT_S)
        resume(the_syphon(), wait_s=WAIT_S)
        until(lambda: facts().moved == 2_050, "all are home")
    assert running_syphons() == []


async def test_the_syphon_of_a_client_on_tasks_is_registered_while_it_runs(spaces: NamespacePair) -> None:
    async with AsyncPairedServiceBusClient.from_connection_strings(
        spaces.primary.connection_string,
        spaces.secondary.connection_string,
        backlog_queue_count=2,
        enable_syphon=True,
    ) as bus:
        import asyncio

        found = await asyncio.to_thread(running_syphons, wait_s=WAIT_S)
        assert [each.facts is not None and each.facts.state for each in found] == ["running"]
        await asyncio.to_thread(pause, found[0], wait_s=WAIT_S)
        status = bus.status().syphon
        assert status is not None
        assert status.state == "paused"
    assert running_syphons() == []


def test_the_syphon_of_a_spool_is_steered_too(spaces: NamespacePair, tmp_path: Path) -> None:
    with PairedServiceBusClient.from_connection_strings(
        spaces.primary.connection_string,
        spaces.secondary.connection_string,
        backlog_queue_count=2,
        failover_interval=timedelta(0),
        spool=tmp_path / "spool",
    ) as bus:
        assert facts().role == "spool"
        pause(the_syphon(), wait_s=WAIT_S)
        with bus.get_queue_sender("orders") as sender:
            for side in (spaces.primary, spaces.secondary):
                side.faults.add("no-send")
            receipt = sender.send_messages(ServiceBusMessage("42", message_id="m1"))
        assert receipt.places == ("spool",)
        for side in (spaces.primary, spaces.secondary):
            side.faults.clear()
        resume(the_syphon(), wait_s=WAIT_S)
        until(lambda: ids_at(spaces.primary, "orders") == ["m1"], "it is home")


# --- several processes ---


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(each) for each in found.stdout.split()]


def test_several_processes_share_the_work_and_the_rate_and_are_steered_as_one(filled: NamespacePair) -> None:
    process = started("--until-empty", "--processes", "3", "--rate", "60")
    wait_for(process, "progress", moved_min=60)
    assert (facts().processes, facts().rate_limit) == (3, pytest.approx(60))
    assert facts().moved <= 60 * facts().seconds + 20
    pause(the_syphon(), wait_s=WAIT_S)
    until(lambda: facts().held == 0, "all give back what they hold")
    moved = facts().moved
    time.sleep(0.6)
    assert facts().moved == moved, "none of them moves anything"
    set_pace(the_syphon(), PaceChange(rate=None, first=20), wait_s=WAIT_S)
    resume(the_syphon(), wait_s=WAIT_S)
    until(lambda: facts().state == "paused after the canary", "the first ones are home")
    assert len(ids_at(filled.primary, "orders")) + len(ids_at(filled.primary, "invoices")) == moved + 20
    resume(the_syphon(), wait_s=WAIT_S)
    said = wait_for(process, "finished")
    assert (said["ending"], said["moved"], said["repeated"]) == ("empty", 2_050, 0)
    assert ended(process) == 0
    assert len(set(ids_at(filled.primary, "orders"))) == 2_000


def test_a_process_that_is_killed_loses_nothing_and_none_outlives_the_first(filled: NamespacePair) -> None:
    process = started("--processes", "3", "--rate", "100")
    wait_for(process, "progress", moved_min=100)
    os.kill(next(pid for pid in children_of(process.pid) if "spawn_main" in command_of(pid)), signal.SIGKILL)
    wait_for(process, "alert", name="process_ended")
    rest = [pid for pid in children_of(process.pid) if "spawn_main" in command_of(pid)]
    assert len(rest) == 1
    process.kill()
    process.communicate(timeout=WAIT_S)
    until(lambda: not any("spawn_main" in command_of(pid) for pid in rest), "they stop when the first one is gone")
    assert len(set(ids_at(filled.primary, "orders"))) >= 50


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.mark.parametrize("words", [["--order", "session"], ["--spool", "."], ["--dry-run"]])
def test_several_processes_are_refused_where_one_counts_or_decides(
    spaces: NamespacePair, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["syphon", "--processes", "2", *words]) == 2
    assert f"--processes and {words[0]} exclude each other" in capsys.readouterr().err
