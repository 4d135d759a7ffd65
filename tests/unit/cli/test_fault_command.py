"""`twinbus fault`: what it asks a running namespace, and what it says when there is none."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from twinbus.broker.faults.catalogue import KINDS
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.switch import FaultSwitch, NoPort
from twinbus.broker.ops.control_socket import make_control_handler
from twinbus.cli.main import run
from twinbus.control.control_server import ControlServer

NOW = 1_000_000


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """The control socket of the namespace `contoso` in the data directory `bus`."""
    home = tmp_path / "bus" / "contoso"
    home.mkdir(parents=True)

    def write_dump(reason: str) -> Path:
        return home / reason

    switch = FaultSwitch(FaultTable(lambda: 0.5), NoPort(), write_dump=write_dump, entity_names=lambda: ["orders"])
    control_handler = make_control_handler(switch, clock=lambda: NOW, write_dump=write_dump, status=dict)
    server = ControlServer(home / "control.sock", control_handler)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    yield server.path
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


HERE = ["--data", "bus", "--namespace", "Contoso"]


def fault(*arguments: str) -> int:
    return run(["fault", *arguments])


def test_a_fault_is_added_listed_and_cleared(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fault("add", "no-send", "--entity", "orders", "--for", "30s", *HERE) == 0
    assert capsys.readouterr().out == ("no-send-1  orders: sends are refused with amqp:internal-error, 30 s left\n")
    assert fault("list", *HERE) == 0
    assert capsys.readouterr().out.startswith("no-send-1  orders: ")
    assert fault("clear", "no-send-1", *HERE) == 0
    assert capsys.readouterr().out == "no-send-1  cleared\n"
    assert fault("list", *HERE) == fault("clear", "--all", *HERE) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "twinbus: no fault is in force\ntwinbus: no fault was in force\n"


@pytest.mark.parametrize(
    "line",
    [
        "no-send --entity orders --for 30s",
        "no-receive --entity orders",
        "no-manage --for 5m",
        "unreachable --how silent --for 10s",
        "refuse --condition com.microsoft:server-busy --on sends --count 3 --text later --probability 0.5",
        "busy --per-second 5",
        "slow --delay 500ms --jitter 200ms",
        "late --delay 2m --entity orders",
        "unanswered --probability 0.1 --count 2",
        "restart --pattern orders* --for 20s --slow-for 1m --delay 100ms",
    ],
)
def test_every_fault_can_be_had_with_its_parameters(
    running: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = line.split()
    assert fault("add", *words, "--control", str(running), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["fault"] == words[0]
    for flag, text in zip(words[1::2], words[2::2], strict=True):
        key = {"--entity": "entities", "--for": "length_s", "--per-second": "per_s"}.get(
            flag, flag[2:].replace("-", "_")
        )
        assert said.get(key, said.get(f"{key}_s")), f"{flag} {text} has no effect"


def test_the_help_shows_an_example_of_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert fault("add", "--help") == 0
    text = capsys.readouterr().out
    assert [kind for kind in KINDS if f"twinbus fault add {kind}" not in text] == []


@pytest.mark.parametrize("arguments", [[], ["add", "-h"], ["list", "--help"], ["clear", "--help"]])
def test_help_teaches_with_examples_and_exit_codes(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert fault(*arguments) == 0
    out, err = capsys.readouterr()
    assert "Examples" in out
    assert "Exit codes:\n" in out
    assert err == ""


def test_json_is_what_the_namespace_says(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fault("add", "slow", *HERE, "--json") == 0
    added = json.loads(capsys.readouterr().out)
    assert (added["id"], added["delay_s"]) == ("slow-1", 1)
    assert fault("list", *HERE, "--json") == 0
    assert [one["id"] for one in json.loads(capsys.readouterr().out)] == ["slow-1"]
    assert fault("clear", "--all", *HERE, "--json") == 0
    assert json.loads(capsys.readouterr().out) == ["slow-1"]


def test_an_entity_that_is_not_there_is_mentioned(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fault("add", "no-send", "--entity", "oders", *HERE) == 0
    assert capsys.readouterr().err == "twinbus: there is no entity oders yet\n"


@pytest.mark.parametrize(
    ("line", "code", "right"),
    [
        ("add no-sent", 2, "did you mean no-send?"),
        ("add no-send --for 3", 2, "--for: a duration needs"),
        ("add no-send --for", 2, "--for TIME"),
        ("add slow --delay 1h --how drop", 2, "slow takes no how; delay must be from 1 ms to 5 min, got 1 h"),
        ("add refuse", 2, "condition is missing"),
        ("add no-send extra", 2, "takes FAULT and options"),
        ("add", 2, "FAULT"),
        ("ad no-send", 2, "did you mean add?"),
        ("clear", 2, "or give --all"),
        ("clear slow-1 --all", 2, "or give --all"),
        ("list --control x --data y", 2, "one or the other"),
        ("list", 1, "there is no namespace 'local' in .twinbus"),
        ("list --control nowhere.sock", 1, "nothing is running at nowhere.sock"),
        ("list --data bus --namespace nope", 1, "it has contoso"),
        ("list --data bus --namespace ../bus", 1, "there is no namespace '../bus'"),
        ("list --data bus --namespace stopped", 1, "is not running"),
        ("list --data bus --namespace killed", 1, "nothing is running"),
        ("clear slow-9 --data bus --namespace contoso", 1, "there are no faults"),
    ],
)
def test_what_goes_wrong_is_one_line_and_the_documented_exit_code(
    running: Path, tmp_path: Path, line: str, code: int, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("stopped", "killed"):
        (tmp_path / "bus" / name).mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "bus" / "killed" / "control.sock"))
    assert fault(*line.split()) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("twinbus: ")
    assert err.count("\n") == 1
    assert right in err
