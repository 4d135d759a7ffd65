"""Everything that can be typed wrong, or go wrong: one line on stderr, the right exit code, and nothing left behind.

What needs no process of its own runs in this one. Where it matters (signals, limits, a missing package) it is a real
process, in a session of its own, so that whatever it leaves running is found.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from signals import as_at_a_terminal

from twinbus.cli.main import run
from twinbus.testing import LocalNamespace

SECRET = "bm90LWZvci15b3VyLWV5ZXM="
NOBODY = f"Endpoint=sb://127.0.0.1:9;SharedAccessKeyName=k;SharedAccessKey={SECRET};UseDevelopmentEmulator=true"
A = f"{NOBODY};TwinbusNamespace=aa"
B = A.replace(":9;", ":10;").replace("=aa", "=bb")
WAIT_S = 60
SOON_S = 15
"""Generous: other tests run beside this one."""
PATIENTLY = ("--timeout", f"{2 * SOON_S}s")
"""Where it is not the time that should end a command."""

WRONG: list[tuple[str, str]] = [
    # what is missing
    ("send", "Missing argument 'ENTITY'"),
    ("receive", "Missing argument 'ENTITY'"),
    ("backup", "Missing argument 'DIR'"),
    ("fault add", "Missing argument 'FAULT'"),
    ("ledger stats", "Missing argument 'DIR'"),
    ("pipeline report", "Missing option '--ledger'"),
    ("cost actual", "Missing option '--ledger'"),
    ("send orders x", "which namespace? give --primary (or TWINBUS_PRIMARY)"),
    ("receive orders", "which namespace? give --primary (or TWINBUS_PRIMARY)"),
    ("bench", "which namespace? give --primary (or TWINBUS_PRIMARY)"),
    ("pair", "--primary (or TWINBUS_PRIMARY) and --secondary"),
    ("syphon", "--primary (or TWINBUS_PRIMARY) and --secondary"),
    ("syphon quarantine list --primary-name contoso", "give --secondary (or TWINBUS_SECONDARY)"),
    ("pipeline drain", "--primary-secret"),
    # what is no value
    ("send orders x --primary nonsense", "--primary: "),
    (f"send orders x --primary Endpoint=sb://a;SharedAccessKey={SECRET}", "--primary: "),
    ("send orders x --primary @nowhere", "--primary: nowhere cannot be read"),
    ("send orders x --config nowhere.toml", "nowhere.toml cannot be read"),
    ("send orders x --primary A --ttl soon", "--ttl: "),
    ("send orders x --primary A --schedule soon", "--schedule takes a time"),
    ("send orders x --primary A --count 0", "--repeat must be from 1"),
    ("send orders x --primary A --count many", "valid integer"),
    ("send orders x --primary A --rate 0", "--rate must be above 0"),
    ("send orders x --primary A --rate -1", "--rate must be above 0"),
    ("send orders x --primary A --property region", "NAME=TEXT"),
    ("send orders x --primary A --property =eu", "NAME=TEXT"),
    ("send orders x --primary A --property n:=null", "true, false or a number"),
    ("send orders x --primary A --property n:=5000000000", "at most 32 bits"),
    ("send orders --primary A --file nowhere", "--file nowhere is not a readable file"),
    ("send / x --primary A", "must not be empty"),
    ("send orders x --primary A --timeout 1h", "--timeout must be from"),
    ("send orders x --primary A --secondary B --queues 0", "--queues"),
    ("receive orders --primary A --max 0", "--max must be from 1"),
    ("receive orders --primary A --wait long", "--wait: "),
    ("receive / --primary A", "name must not be empty"),
    ("bench --primary A --messages 0", "--messages must be from 1"),
    ("bench --primary A --size -1", "--size must be from 0"),
    ("bench --primary A --clients 1000", "--connections must be from 1 to 64"),
    ("bench --primary A --batch 0", "--batch must be from 1"),
    ("fault add no-sent", "did you mean no-send?"),
    ("fault add refuse", "condition is missing"),
    ("fault add slow --delay soon", "--delay: "),
    ("cost forecast --outage soon", "--outage: "),
    ("cost forecast --entities -1", "entities"),
    ("cost forecast --prices nowhere.toml", "nowhere.toml"),
    ("syphon --primary A --secondary B --before soon", "--before takes a time"),
    ("syphon --primary A --secondary B --concurrency 0", "concurrency"),
    ("syphon quarantine show 17", "a number, e.g. 0/17"),
    ("pair --emit arm --primary-name contoso", "bicep, terraform, cli"),
    ("ledger tail . --lines -1", "--last must be from 0"),
    ("pipeline report --ledger . --horizon soon", "--horizon: "),
    ("pipeline drain --primary A --secondary B --every 1ms", "--every must be from 1s"),
    ("serve --ledger l --ledger-ship-to ftp://h/l", "ftp:// is not a place"),
    (
        "proxy --primary A --secondary B --ledger l --ledger-ship-to ftp://h/l",
        "--ledger-ship-to: ftp:// is not a place",
    ),
    ("send orders x --primary A --ledger l --ledger-ship-to ftp://h/l", "ftp:// is not a place"),
    ("syphon --primary A --secondary B --ledger l --ledger-ship-to s3a://k:s@b/l", "come from the environment"),
    ("pipeline drain --primary A --secondary B --ledger l --ledger-ship-to l/copies", "cannot be shipped into itself"),
    ("syphon quarantine redrive --all --ledger l --ledger-ship-to ftp://h/l", "ftp:// is not a place"),
    # what contradicts itself
    ("serve --ledger-ship-to s3a://b/l", "--ledger-ship-to needs --ledger"),
    ("proxy --primary A --secondary B --ledger-ship-to s3a://b/l", "--ledger-ship-to needs --ledger"),
    ("send orders x --primary A --ledger-ship-to s3a://b/l", "--ledger-ship-to needs --ledger"),
    ("syphon --primary A --secondary B --ledger-ship-to s3a://b/l", "--ledger-ship-to needs --ledger"),
    ("pipeline drain --primary A --secondary B --ledger-ship-to s3a://b/l", "--ledger-ship-to needs --ledger"),
    ("syphon quarantine discard --all --ledger-ship-to s3a://b/l", "--ledger-ship-to needs --ledger"),
    ("send orders x --file order --primary A", "the body is given twice"),
    ("send orders x --lines --primary A", "the body is given twice"),
    ("receive orders --primary A --peek --delete", "exclude each other"),
    ("receive orders --primary A --max 1 --all", "exclude each other"),
    ("receive orders --primary A --all --follow", "exclude each other"),
    ("receive orders --primary A --body --json", "exclude each other"),
    ("receive orders --primary A --session s --next-session", "exclude each other"),
    ("receive orders --primary A --session s --dead-letters", "dead letters have no sessions"),
    ("fault add no-send --entity a --pattern b*", "exclude each other"),
    ("fault clear", "or give --all"),
    ("fault list --control c --data d", "one or the other"),
    ("syphon quarantine redrive --primary A --secondary B", "say which"),
    ("syphon quarantine discard 0/1 --all --primary A --secondary B", "say which"),
    ("pair --primary A --secondary A", "the same namespace"),
    ("status --primary A --secondary A", "the same namespace"),
    # what is not there
    ("receive orders more --primary A", "unexpected extra argument"),
    ("receive orders --peak --primary A", "did you mean --peek?"),
    ("syphon quarantine lst", "did you mean list?"),
    ("backup monday --data nowhere", "--data nowhere is not a directory"),
]
"""A and B stand for connection strings of two namespaces that nobody serves."""

FAILS: list[tuple[str, str]] = [
    ("send orders x --primary A", "unreachable"),
    ("send orders x --primary A --secondary B --queues 1", "secondary bb"),
    ("receive orders --primary A", "unreachable"),
    ("bench --primary A", "--entity takes one that exists"),
    ("bench --primary A --entity orders", "unreachable"),
    ("pair --primary A --secondary B --count 1", "secondary bb"),
    ("syphon --dry-run --primary A --secondary B --count 1", "does not answer"),
    ("syphon quarantine list --primary A --secondary B --count 1", "unreachable"),
    ("fault list", "there is no namespace 'local'"),
    ("fault list --control nowhere.sock", "nothing is running"),
    ("ledger stats nowhere", "there is no ledger"),
    ("ledger verify nowhere", "there is no ledger"),
    ("ledger tail nowhere", "there is no ledger"),
    ("pipeline report --ledger nowhere", "there is no ledger"),
    ("backup monday --data .", "there is no namespace"),
]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    for name in ("TWINBUS_PRIMARY", "TWINBUS_SECONDARY", "TWINBUS_KEY"):
        monkeypatch.delenv(name, raising=False)


def words(line: str) -> list[str]:
    return [{"A": A, "B": B}.get(word, word) for word in line.split()]


def check_line(err: str, expected: str) -> None:
    assert err.startswith("twinbus: ")
    assert (err.count("\n"), err[-1]) == (1, "\n")
    assert expected in err
    assert "Traceback" not in err
    assert SECRET not in err


def test_there_are_enough_of_them() -> None:
    assert len(WRONG) + len(FAILS) >= 60


@pytest.mark.parametrize(("line", "expected"), WRONG, ids=[line for line, _ in WRONG])
def test_wrong_arguments(line: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words(line)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    check_line(err, expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("line", "expected"), FAILS, ids=[line for line, _ in FAILS])
def test_what_cannot_be_done(line: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words(line)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    check_line(err.splitlines(keepends=True)[-1], expected)
    assert list(tmp_path.iterdir()) == []


# --- a namespace that answers, but not as hoped ---


@pytest.fixture(scope="module")
def contoso() -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", queues=["orders"], rules=["reader:Listen", "sender:Send"]) as namespace:
        namespace.create_queue("carts", requires_session=True)
        yield namespace


@pytest.mark.parametrize(
    ("line", "rule", "expected"),
    [
        ("send nowhere x", None, "not found"),
        ("receive nowhere", None, "not found"),
        ("receive orders --subscription none", None, "not found"),
        ("receive carts", None, "session"),
        ("send carts x", None, "session"),
        ("send orders x", "reader", "unauthorised"),
        ("receive orders", "sender", "unauthorised"),
        ("bench --messages 1", "sender", "cannot be made"),
        ("bench --messages 1 --entity orders", "reader", "unauthorised"),
    ],
)
def test_a_namespace_that_refuses(
    line: str, rule: str | None, expected: str, contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    string = contoso.connection_string if rule is None else contoso.connection_string_for(rule)
    assert run([*line.split(), "--primary", string, *PATIENTLY]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    check_line(err, expected)


def test_a_wrong_key(contoso: LocalNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    key = contoso.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    string = contoso.connection_string.replace(key, SECRET)
    for command in ("send orders x", "receive orders", "bench"):
        assert run([*command.split(), "--primary", string, *PATIENTLY]) == 1
        check_line(capsys.readouterr().err, "")


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """The connection string of somebody who takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as taking:
        yield A.replace(":9;", f":{taking.getsockname()[1]};")


def test_a_namespace_that_says_nothing_is_not_waited_for_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    with silent() as string:
        for command in ("send orders x", "receive orders", "bench --entity orders", "bench"):
            began = time.monotonic()
            assert run([*command.split(), "--primary", string, "--timeout", "500ms"]) == 1
            assert time.monotonic() - began < SOON_S
            check_line(capsys.readouterr().err, "")


# --- processes ---


class Ran:
    """What a process came to, and whether it left another one running."""

    def __init__(self, code: int, out: str, err: str, *, is_alone: bool) -> None:
        self.code, self.out, self.err, self.is_alone = code, out, err, is_alone


def process(
    line: list[str], tmp_path: Path, *, stdout: Any = subprocess.PIPE, preexec_fn: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    (tmp_path / "temporary").mkdir(exist_ok=True)
    return subprocess.Popen(
        line,
        env=os.environ | {"TMPDIR": str(tmp_path / "temporary"), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=preexec_fn or as_at_a_terminal,
    )


def ended(running: subprocess.Popen[str]) -> Ran:
    out, err = running.communicate(timeout=WAIT_S)
    try:
        os.killpg(running.pid, 0)
    except ProcessLookupError:
        return Ran(running.returncode, out, err, is_alone=True)
    return Ran(running.returncode, out, err, is_alone=False)


def twinbus(line: str) -> list[str]:
    return [sys.executable, "-m", "twinbus", *words(line)]


@pytest.mark.parametrize(
    ("line", "blocked", "expected"),
    [
        ("pipeline report --ledger .", "pyspark", "twinbus[spark]"),
        ("cost actual --ledger .", "pyspark", "twinbus[spark]"),
        ("pipeline drain --primary A --secondary B", "pyspark", "twinbus[spark]"),
    ],
)
def test_a_missing_extra_is_named(line: str, blocked: str, expected: str, tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util as util; find = util.find_spec\n"
        f"util.find_spec = lambda name, *more: None if name.startswith({blocked!r}) else find(name, *more)\n"
        f"sys.modules[{blocked!r}] = None\n"
        f"from twinbus.cli.main import main; main({words(line)!r})"
    )
    (tmp_path / "twinbus-ledger-1.jsonl").touch()
    ran = ended(process([sys.executable, "-c", code], tmp_path))
    assert ran.code == 1
    check_line(ran.err.splitlines(keepends=True)[-1], expected)


@pytest.mark.parametrize(
    "line", ["--help", "cost forecast", "cost forecast --json", "pair --emit cli --primary-name aa"]
)
def test_an_output_that_is_full(line: str, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = ended(process(twinbus(line), tmp_path, stdout=full))
    assert ran.code == 1
    check_line(ran.err, "the output cannot be written: No space left on device")


def test_a_disk_that_is_full_when_a_namespace_starts(tmp_path: Path) -> None:
    line = "serve --namespace contoso:0 --data bus"
    ran = ended(process(twinbus(line), tmp_path, preexec_fn=lambda: small_files(5_000)))
    assert (ran.code, ran.out, ran.is_alone) == (1, "", True)
    check_line(ran.err.splitlines(keepends=True)[-1], "contoso")


def small_files(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


# --- Ctrl-C ---


def listening() -> tuple[str, threading.Event, Callable[[], None]]:
    """As `silent`, and tells when somebody is connected."""
    taking = socket.create_server(("127.0.0.1", 0))
    connected = threading.Event()

    def take() -> None:
        with contextlib.suppress(OSError):
            kept = taking.accept()
            connected.set()
            kept[0].recv(1)
            time.sleep(WAIT_S)

    threading.Thread(target=take, daemon=True).start()
    return A.replace(":9;", f":{taking.getsockname()[1]};"), connected, taking.close


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("send orders x", signal.SIGINT),
        ("send orders x", signal.SIGTERM),
        ("receive orders", signal.SIGINT),
        ("bench", signal.SIGINT),
        ("bench", signal.SIGTERM),
        ("status --secondary B", signal.SIGINT),
        ("syphon quarantine list --secondary B", signal.SIGINT),
    ],
)
def test_an_interrupt_while_nobody_answers(line: str, number: int, tmp_path: Path) -> None:
    string, connected, close = listening()
    side = "--secondary" if "quarantine" in line else "--primary"
    line = line.replace("--secondary B", "--primary B") if "quarantine" in line else line
    running = process([*twinbus(line), side, string, *PATIENTLY], tmp_path)
    assert connected.wait(WAIT_S)
    running.send_signal(number)
    began = time.monotonic()
    ran = ended(running)
    close()
    assert time.monotonic() - began < SOON_S
    assert (ran.code, ran.out, ran.is_alone) == (130, "", True)
    check_line(ran.err, "interrupted")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_an_interrupt_in_the_middle_of_sending(contoso: LocalNamespace, tmp_path: Path) -> None:
    line = "send orders x{n} --count 100000 --rate 200 --json"
    running = process([*twinbus(line), "--primary", contoso.connection_string], tmp_path)
    assert running.stdout is not None
    for _ in range(5):
        assert '"sent"' in running.stdout.readline()
    running.send_signal(signal.SIGINT)
    ran = ended(running)
    assert (ran.code, ran.is_alone) == (130, True)
    check_line(ran.err, "interrupted")
    assert '"ending": "interrupted"' in ran.out.splitlines()[-1]


def test_an_interrupt_while_waiting_for_a_message_leaves_none_under_lock(
    contoso: LocalNamespace, tmp_path: Path
) -> None:
    contoso.create_queue("late")
    running = process(
        [*twinbus("receive late --max 100 --wait 1m --body"), "--primary", contoso.connection_string], tmp_path
    )
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_sender("late") as sender,
        client.get_queue_receiver("late") as receiver,
    ):
        sender.send_messages(ServiceBusMessage("first"))
        assert running.stdout is not None
        assert running.stdout.readline() == "first\n"
        running.send_signal(signal.SIGINT)
        ran = ended(running)
        sender.send_messages(ServiceBusMessage("second"))
        assert [str(message) for message in receiver.receive_messages(max_wait_time=WAIT_S)] == ["second"]
    assert (ran.code, ran.out, ran.is_alone) == (130, "", True)


def test_an_interrupt_of_a_measurement_removes_its_queue(contoso: LocalNamespace, tmp_path: Path) -> None:
    from twinbus.client.namespace import Namespace

    running = process([*twinbus("bench --messages 100000"), "--primary", contoso.connection_string], tmp_path)
    with Namespace.from_connection_string(contoso.connection_string).admin_client() as admin:

        def queues() -> list[str]:
            return [each.name for each in admin.list_queues() if each.name.startswith("twinbus-bench-")]

        until = time.monotonic() + WAIT_S
        while not queues() and time.monotonic() < until:
            time.sleep(0.05)
        assert queues()
        running.send_signal(signal.SIGINT)
        ran = ended(running)
        assert queues() == []
    assert (ran.code, ran.out, ran.is_alone) == (130, "", True)
    check_line(ran.err, "interrupted")


def test_an_interrupt_at_any_moment_of_the_start_is_no_traceback(tmp_path: Path) -> None:
    for delay_s in (0.1, 0.2, 0.3):
        running = process([*twinbus("receive orders --wait 1m --primary"), A], tmp_path)
        time.sleep(delay_s)
        running.send_signal(signal.SIGTERM)
        ran = ended(running)
        assert ran.code in (130, 1, -signal.SIGTERM)  # the last: before the first line of ours
        assert "Traceback" not in ran.err
