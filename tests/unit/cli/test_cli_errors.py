"""Wrong invocations: one line on stderr that says what would be right, and the documented exit code."""

from __future__ import annotations

import os
import socket
import sqlite3
from pathlib import Path

import pytest

from twinbus import __version__
from twinbus.broker.store.format import APPLICATION_ID
from twinbus.cli import signals
from twinbus.cli.main import run
from twinbus.errors import TwinbusError

WRONG_ARGUMENTS = [
    ("bogus", "serve, proxy"),
    ("serv", "did you mean serve?"),
    ("it's", "serve, proxy"),
    ("--bogus", "--version"),
    ("serve extra", "takes options only"),
    ("pipeline report --ledger x --out s3://b/x.html", "--out is a file of this machine, not a URL (s3://...)"),
    ("serve --prot 1", "--namespace, --data"),
    ("serve --queu a", "did you mean --queue?"),
    ("serve --json=yes", "does not take a value"),
    ("serve --namespace", "--namespace NAME:PORT"),
    ("serve --queue", "--queue NAME"),
    ("serve --namespace contoso", "NAME:PORT"),
    ("serve --namespace contoso:", "NAME:PORT"),
    ("serve --namespace contoso:amqp", "NAME:PORT"),
    ("serve --namespace contoso:-1", "NAME:PORT"),
    ("serve --namespace contoso:123456", "NAME:PORT"),
    ("serve --namespace contoso:٥", "NAME:PORT"),
    ("serve --namespace contoso:65536", "0 (any free one) to 65535"),
    ("serve --namespace :5672", "2 to 50 letters"),
    ("serve --namespace a:5672", "2 to 50 letters"),
    ("serve --namespace -contoso:5672", "2 to 50 letters"),
    ("serve --namespace ../up:5672", "2 to 50 letters"),
    ("serve --namespace contoso:0 --namespace CONTOSO:0", "its own name"),
    ("serve --namespace contoso:7001 --namespace backup:7001", "its own port"),
    ("serve --queue a//b", "empty part"),
    ("serve --queue $x", "letters, digits"),
    ("serve --key a;b", "semicolons"),
    ("serve --memory --data somewhere", "choose one"),
    ("demo --messages many", "valid integer"),
    ("demo --messages 3", "from 50 to 5000"),
    ("demo --messages 5001", "from 50 to 5000"),
    ("demo --fast --report report.html", "leave out --report, or --fast"),
    ("demo --report nowhere/report.html", "a directory that exists"),
]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TWINBUS_KEY", raising=False)


def only_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr; stdout is empty."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("twinbus: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err


@pytest.mark.parametrize(("arguments", "right"), WRONG_ARGUMENTS, ids=[row[0] for row in WRONG_ARGUMENTS])
def test_wrong_arguments_are_one_line_that_says_what_would_be_right(
    arguments: str, right: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments.split(" ")) == 2
    assert right in only_line(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["serve\n--namespace", "line\nbreak", "tab\tand \x1b[31mcolour"])
def test_an_argument_with_line_breaks_is_still_answered_in_one_line(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([text]) == 2
    only_line(capsys)
    assert run(["serve", "--queue", text]) == 2
    only_line(capsys)


def test_an_empty_key_is_refused_and_a_bad_key_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--key", ""]) == 2
    only_line(capsys)
    assert run(["serve", "--key", "secret secret"]) == 2
    assert "secret" not in only_line(capsys)


def test_a_key_in_the_environment_is_checked_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINBUS_KEY", "two words")
    assert run(["serve"]) == 2
    only_line(capsys)


def test_a_taken_port_is_one_line_and_nothing_is_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["serve", "--namespace", "contoso:0", "--namespace", f"backup:{port}"]) == 1
    line = only_line(capsys)
    assert f"port {port}" in line
    assert "backup" in line
    assert list(tmp_path.iterdir()) == []


def test_an_address_of_another_machine_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--memory", "--namespace", "contoso:0", "--host", "192.0.2.1"]) == 1
    assert "192.0.2.1" in only_line(capsys)


def test_a_data_directory_that_is_a_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "occupied").write_text("mine")
    assert run(["serve", "--namespace", "contoso:0", "--data", "occupied"]) == 1
    assert "occupied" in only_line(capsys)
    assert (tmp_path / "occupied").read_text() == "mine"


def test_a_data_directory_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    data = "/proc/locked" if os.geteuid() == 0 else str(locked)  # root may write everywhere but there
    assert run(["serve", "--namespace", "contoso:0", "--data", data]) == 1
    assert "locked" in only_line(capsys)


def test_a_damaged_store_is_one_line_and_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "data" / "contoso"
    home.mkdir(parents=True)
    store = home / "store.sqlite"
    store.write_bytes(b"no store at all " * 100)
    assert run(["serve", "--namespace", "contoso:0", "--data", "data"]) == 1
    assert "store.sqlite" in only_line(capsys)
    assert store.read_bytes() == b"no store at all " * 100


def test_a_store_of_a_newer_format_is_one_line_and_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "data" / "contoso"
    home.mkdir(parents=True)
    store = home / "store.sqlite"
    database = sqlite3.connect(store)
    database.execute(f"pragma application_id = {APPLICATION_ID}")
    database.execute("pragma user_version = 999")
    database.execute("create table future (x)")
    database.commit()
    database.close()
    before = store.read_bytes()
    assert run(["serve", "--namespace", "contoso:0", "--data", "data"]) == 1
    assert "newer" in only_line(capsys)
    assert store.read_bytes() == before


def test_a_mistake_of_ours_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("one\ntwo")

    monkeypatch.setattr("twinbus.cli.commands.serve.plan_namespaces", broken)
    assert run(["serve"]) == 1
    assert "TWINBUS_TRACEBACK=1" in only_line(capsys)


@pytest.mark.parametrize("made_of_it", [TwinbusError("x"), BrokenPipeError(), OSError("x"), RuntimeError("x")])
def test_an_interrupt_is_one_whatever_a_library_made_of_it(
    made_of_it: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise made_of_it

    monkeypatch.setattr("twinbus.cli.commands.serve.plan_namespaces", broken)
    monkeypatch.setattr(signals, "_came", True)
    assert run(["serve"]) == 130
    assert only_line(capsys) == "twinbus: interrupted\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["serve", "--help"], ["demo", "--help"]])
def test_help_teaches_with_an_example_and_the_exit_codes(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 0
    out, err = capsys.readouterr()
    assert "Examples:\n" in out
    assert "Exit codes:\n" in out
    assert err == ""


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"twinbus {__version__}\n"
