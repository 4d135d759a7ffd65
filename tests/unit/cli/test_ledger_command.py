"""`twinbus ledger`: what it shows, and with which exit code it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from twinbus.cli.main import run
from twinbus.ledger import Event, Kind, Ledger


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with Ledger.at(tmp_path, "shop") as ledger:
        for number in range(10):
            ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=(f"m{number}",), sizes=(100,)))
        ledger.record(Event(Kind.FAILED_OVER, "bills", "contoso", reason="down\nsince \x1b[31mnoon"))
    return tmp_path


def shown(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert run(["ledger", *arguments]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_tail_shows_the_newest_records_on_one_harmless_line_each(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = shown(["tail", str(directory), "--lines", "3"], capsys).splitlines()
    assert len(rows) == 3
    assert "accepted" in rows[0]
    assert "m9" in rows[0]
    assert "shop#11" in rows[0]
    assert "down since" in rows[1]
    assert "\x1b" not in rows[1]


def test_tail_chooses_by_kind_and_entity_and_speaks_json(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = shown(["tail", str(directory), "--kind", "accepted", "--kind", "failed_over", "--json"], capsys).splitlines()
    assert [json.loads(row)["kind"] for row in rows] == ["accepted"] * 10 + ["failed_over"]
    (row,) = shown(["tail", str(directory), "--entity", "bills"], capsys).splitlines()
    assert "failed_over" in row


def test_a_kind_that_nobody_records_is_reported_with_the_one_that_was_meant(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ledger", "tail", str(directory), "--kind", "failedover"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "no kind 'failedover': did you mean failed_over?" in err


def test_tail_follows_until_it_is_interrupted(directory: Path) -> None:
    command = [sys.executable, "-m", "twinbus", "ledger", "tail", str(directory), "-n", "0", "-f", "--kind", "ping"]
    go_on = threading.Event()

    def keep_pinging() -> None:
        with Ledger.at(directory) as ledger:
            while not go_on.wait(0.05):
                ledger.record(Event(Kind.PING, "orders"))

    pinging = threading.Thread(target=keep_pinging)
    pinging.start()
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert "ping" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20)
        assert process.returncode == 0
    finally:
        go_on.set()
        pinging.join()


def test_stats_count_by_kind_and_entity(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(["stats", str(directory)], capsys)
    assert "13 records of 1 processes in 1 segments" in text
    assert "orders" in text
    counted = json.loads(shown(["stats", str(directory), "--json"], capsys))
    assert counted["kinds"]["accepted"] == {"events": 10, "messages": 10, "size_bytes": 1000}
    assert counted["entities"]["bills"]["failed_over"]["events"] == 1


def test_stats_of_an_empty_ledger_are_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(["stats", str(tmp_path)], capsys).startswith("0 records")


def test_verify_ends_with_0_when_everything_is_there(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(["verify", str(directory)], capsys) == "complete: 13 records of 1 processes in 1 segments\n"
    assert json.loads(shown(["verify", str(directory), "--json"], capsys))["complete"] is True


def test_verify_ends_with_3_and_says_where_when_something_is_not(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = directory.iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:3], b"scratched\n", *lines[6:]]))
    text = shown(["verify", str(directory)], capsys, code=3)
    assert f"{segment}:4: corrupt" in text
    assert "3 records are missing, 4 to 6: nobody knows why" in text
    assert "not complete" in text
    found = json.loads(shown(["verify", str(directory), "--json"], capsys, code=3))
    assert found["processes"][0]["missing"] == [{"first": 4, "last": 6, "reason": ""}]
    assert found["problems"][0]["lines"] == [4]


def test_verify_calls_a_process_killed_that_did_not_close(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (segment,) = directory.iterdir()
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:-1]))
    assert "was killed after record 12" in shown(["verify", str(directory)], capsys, code=3)


def test_verify_finds_nothing_wrong_with_a_process_that_is_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.at(tmp_path) as ledger:
        ledger.record(Event(Kind.PING))
        ledger.flush()
        assert f"(pid {os.getpid()} on" in shown(["verify", str(tmp_path)], capsys)


@pytest.mark.parametrize(
    ("arguments", "code", "right"),
    [
        (["tail", "nowhere"], 1, "no ledger in nowhere"),
        (["stats", "nowhere"], 1, "no ledger in nowhere"),
        (["verify", "nowhere"], 1, "no ledger in nowhere"),
        (["verify"], 2, "DIR"),
        (["tail", "nowhere", "--lines", "-1"], 2, "--last must be from 0 to 100000"),
        (["tails", "nowhere"], 2, "did you mean tail?"),
    ],
)
def test_what_is_wrong_is_one_line_and_the_documented_exit_code(
    arguments: list[str], code: int, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ledger", *arguments]) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert right in err


@pytest.mark.parametrize("verb", [[], ["tail"], ["stats"], ["verify"]])
def test_help_has_examples_and_exit_codes(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = shown([*verb, "--help"] if verb else [], capsys)
    assert "Examples:" in text
    assert "Exit codes:" in text
