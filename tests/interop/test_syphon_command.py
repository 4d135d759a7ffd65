"""`twinbus syphon` with real namespaces, as people, programs and service managers see it."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backlog_messages import backlog_message, backlog_messages_for, fill, unaddressed
from syphon_program import QUEUES, WAIT_S, command, ids_at, wait_for

from twinbus.amqp.message.sections import Header
from twinbus.cli.main import run
from twinbus.ledger import Kind, LedgerReader, verify
from twinbus.testing import LocalNamespace, NamespacePair

KEY = "key-that-nobody-may-see"


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamespacePair]:
    """Two namespaces that are in the environment of the commands; the backlog has two queues."""
    rules = [f"sender:Send:{KEY}", "reader:Listen"]
    monkeypatch.chdir(tmp_path)
    with (
        LocalNamespace("contoso", queues=["orders", "invoices"], rules=rules) as primary,
        LocalNamespace("backup", queues=QUEUES, rules=rules) as secondary,
    ):
        monkeypatch.setenv("TWINBUS_PRIMARY", primary.connection_string)
        monkeypatch.setenv("TWINBUS_SECONDARY", secondary.connection_string)
        yield NamespacePair(primary, secondary)


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# --- moving ---


def test_until_empty_brings_everything_home_and_says_so(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(spaces.secondary.connection_string, QUEUES[0], backlog_messages_for("orders", 300))
    fill(spaces.secondary.connection_string, QUEUES[1], backlog_messages_for("invoices", 20))
    assert run(["syphon", "--until-empty", "--count", "2"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("320 messages (")
    assert out.endswith(": the backlog is empty\n")
    assert err == ""
    assert ids_at(spaces.primary, "orders") == [f"orders-{number}" for number in range(300)]
    assert len(ids_at(spaces.primary, "invoices")) == 20


def test_in_a_pipe_it_says_the_result_in_plain_lines(spaces: NamespacePair) -> None:
    fill(spaces.secondary.connection_string, QUEUES[0], [*backlog_messages_for("orders", 50), unaddressed()])
    ended = subprocess.run(command("--until-empty"), capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert ended.returncode == 3
    assert ended.stdout.startswith("50 messages (")
    assert "quarantined: " in ended.stderr
    assert not {"{", "\x1b", "\r"} & {*ended.stdout, *ended.stderr}


def test_programs_get_lines_of_json(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    fill(spaces.secondary.connection_string, QUEUES[0], backlog_messages_for("orders", 50))
    assert run(["syphon", "--until-empty", "--count", "2", "--json"]) == 0
    said = json_lines(capsys.readouterr().out)
    assert {line["event"] for line in said} <= {"progress", "alert", "finished"}
    assert (said[-1]["event"], said[-1]["ending"], said[-1]["moved"]) == ("finished", "empty", 50)
    assert said[0]["event"] == "progress"


def test_queues_that_are_not_there_are_left_out_with_a_line(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(spaces.secondary.connection_string, QUEUES[1], backlog_messages_for("orders", 5))
    assert run(["syphon", "--until-empty"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("5 messages")
    assert err.count("\n") == 1
    assert "backlog queue 2 and 7 more cannot be read" in err


def test_a_wrong_name_and_a_missing_right_fail_at_once_in_one_line(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["syphon", "--primary-name", "fabrikam"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no backlog queue of fabrikam can be read" in err
    monkeypatch.setenv("TWINBUS_SECONDARY", spaces.secondary.connection_string_for("sender"))
    assert run(["syphon", "--count", "2"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert KEY not in err


def test_only_some_entities_and_only_what_is_older(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    fill(
        spaces.secondary.connection_string,
        QUEUES[0],
        backlog_messages_for("orders", 10) + backlog_messages_for("invoices", 10),
    )
    assert run(["syphon", "--until-empty", "--count", "2", "--before", "1h"]) == 0
    assert capsys.readouterr().out.startswith("0 messages")
    assert run(["syphon", "--until-empty", "--count", "2", "--entity", "INVOICES"]) == 0, "nothing else was asked for"
    out, err = capsys.readouterr()
    assert out.startswith("10 messages")
    assert ": nothing of what was chosen is left in the backlog\n10 messages stay in the backlog, " in out
    assert err.count("not listed: orders") == 1
    assert ids_at(spaces.primary, "orders") == []
    assert len(ids_at(spaces.secondary, QUEUES[0])) == 10


def test_a_file_names_the_entities_and_what_is_for_others_stays_and_is_counted(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("entities.txt").write_text("# what the shop sends to\nInvoices  # in any case\n\n")
    fill(
        spaces.secondary.connection_string,
        QUEUES[0],
        backlog_messages_for("orders", 3) + backlog_messages_for("invoices", 5),
    )
    wish = ["syphon", "--until-empty", "--count", "2", "--entities-file", "entities.txt", "--json"]
    assert run([*wish, "--metrics-file", "numbers"]) == 0
    said = json_lines(capsys.readouterr().out)
    assert [each["subject"] for each in said if each.get("name") == "not_listed"] == ["orders"]
    assert (said[-1]["moved"], said[-1]["outside"], said[-1]["outside_left"]) == (5, 3, 3)
    assert said[-1]["ending"] == "chosen", "the backlog is not empty"
    numbers = dict(line.rsplit(" ", 1) for line in Path("numbers").read_text().splitlines() if line[0] != "#")
    assert [value for name, value in numbers.items() if "syphon_outside_total" in name] == ["3.0"]
    assert (len(ids_at(spaces.primary, "orders")), len(ids_at(spaces.secondary, QUEUES[0]))) == (0, 3)
    assert run([*wish, "--entity", "orders"]) == 0, "both together"
    assert json_lines(capsys.readouterr().out)[-1]["ending"] == "empty"


@pytest.mark.parametrize(
    ("text", "problem"), [(None, "cannot be read: No such file"), (b"# none\n", "names no entity"), (b"\xff", "UTF-8")]
)
def test_a_file_that_names_nothing_is_refused(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str], text: bytes | None, problem: str
) -> None:
    if text is not None:
        Path("entities.txt").write_bytes(text)
    assert run(["syphon", "--entities-file", "entities.txt"]) == 2
    assert problem in capsys.readouterr().err


def test_a_dry_run_shows_what_would_go_where_and_moves_nothing(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(spaces.secondary.connection_string, QUEUES[0], [*backlog_messages_for("orders", 10), unaddressed()])
    assert run(["syphon", "--dry-run", "--count", "2"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["destination", "messages", "size", "oldest", "newest"]
    assert rows[1][:2] == ["orders", "10"]
    assert rows[2][:3] == ["(refused:", "malformed)", "1"]
    assert run(["syphon", "--dry-run", "--count", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["destinations"]["orders"]["messages"] == 10
    assert len(ids_at(spaces.secondary, QUEUES[0])) == 11


def test_an_empty_backlog_has_nothing_to_tell(spaces: NamespacePair, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["syphon", "--dry-run", "--count", "2"]) == 0
    assert capsys.readouterr().out == "the backlog is empty\n"


def test_the_first_ones_go_home_and_where_nobody_can_be_asked_that_is_the_end(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(spaces.secondary.connection_string, QUEUES[0], backlog_messages_for("orders", 50))
    assert run(["syphon", "--first", "7", "--until-empty", "--count", "2"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("7 messages")
    assert "stopped after the first ones" in out
    assert len(ids_at(spaces.primary, "orders")) == 7
    assert len(ids_at(spaces.secondary, QUEUES[0])) == 43


def test_a_ledger_has_every_step(spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(spaces.secondary.connection_string, QUEUES[0], backlog_messages_for("orders", 30))
    folder = tmp_path / "ledger"
    assert run(["syphon", "--until-empty", "--count", "2", "--ledger", str(folder)]) == 0
    capsys.readouterr()
    assert verify(folder).is_complete
    records = list(LedgerReader(folder).records())
    for kind in (Kind.RECEIVED_FROM_BACKLOG, Kind.SENT_HOME, Kind.COMPLETED):
        recorded = [one for record in records if record.kind == kind for one in record.message_ids]
        assert sorted(recorded) == sorted(f"orders-{number}" for number in range(30))
    assert {record.program for record in records} == {"twinbus syphon"}


# --- quarantine ---


def test_what_can_never_go_home_is_listed_shown_sent_again_and_thrown_away(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    aside = [unaddressed(), backlog_message("orders", "dead", b"late", header=Header(ttl_ms=1))]
    fill(spaces.secondary.connection_string, QUEUES[1], aside)
    assert run(["syphon", "--until-empty", "--count", "2"]) == 3
    assert "\n2 messages are in quarantine: twinbus syphon quarantine list shows" in capsys.readouterr().out
    assert run(["syphon", "quarantine", "list", "--json"]) == 0
    found = {line["message_id"]: line for line in json_lines(capsys.readouterr().out)}
    assert {name: one["reason"] for name, one in found.items()} == {
        "stranger": "TwinbusMalformed",
        "dead": "TwinbusExpired",
    }
    assert run(["syphon", "quarantine", "list"]) == 0
    assert "TwinbusExpired" in capsys.readouterr().out
    assert run(["syphon", "quarantine", "list", "--reason", "Expired"]) == 0
    assert capsys.readouterr().out == "none of 2 in quarantine has the reason 'Expired'\n"
    assert run(["syphon", "quarantine", "show", found["stranger"]["number"]]) == 0
    assert "not from a paired client" in capsys.readouterr().out
    assert run(["syphon", "quarantine", "redrive", "--all"]) == 3
    out, err = capsys.readouterr()
    assert out.startswith("1 sent home")
    assert f"{found['stranger']['number']} stays" in err
    assert run(["syphon", "quarantine", "discard", found["stranger"]["number"], "--primary-name", "contoso"]) == 0
    assert capsys.readouterr().out.startswith("1 thrown away")
    assert run(["syphon", "quarantine", "list"]) == 0
    assert capsys.readouterr().out == "nothing is in quarantine\n"


def test_what_is_done_to_a_quarantine_is_in_the_ledger(
    spaces: NamespacePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = backlog_message("orders", "late", b"late", header=Header(ttl_ms=1))
    fill(spaces.secondary.connection_string, QUEUES[1], [unaddressed(), late])
    options = ["--ledger", str(tmp_path / "ledger"), "--count", "2"]
    assert run(["syphon", "--until-empty", *options]) == 3
    assert run(["syphon", "quarantine", "redrive", "--all", *options]) == 3
    assert run(["syphon", "quarantine", "discard", "--all", "--yes", *options]) == 0
    capsys.readouterr()
    assert verify(tmp_path / "ledger").is_complete
    records = sorted(LedgerReader(tmp_path / "ledger").records(), key=lambda record: (record.at_ms, record.number))
    assert [record.kind for record in records if record.message_ids == ("late",)] == [
        Kind.RECEIVED_FROM_BACKLOG,
        Kind.EXPIRED,
        Kind.RECEIVED_FROM_BACKLOG,
        Kind.SENT_HOME,
        Kind.REDRIVEN,
    ]
    of_stranger = [record for record in records if record.message_ids == ("stranger",)]
    assert [record.kind for record in of_stranger] == [
        Kind.RECEIVED_FROM_BACKLOG,
        Kind.DEAD_LETTERED,
        Kind.RECEIVED_FROM_BACKLOG,
        Kind.ATTEMPT_FAILED,
        Kind.RELEASED,
        Kind.RECEIVED_FROM_BACKLOG,
        Kind.DISCARDED,
    ]
    assert {record.queue for record in of_stranger} == {QUEUES[1], ""}, "never the name of a dead-letter queue"
    assert (of_stranger[1].reason, of_stranger[-1].reason) == ("TwinbusMalformed", "TwinbusMalformed")


def test_what_an_earlier_run_put_aside_keeps_the_next_one_from_saying_that_all_is_home(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(spaces.secondary.connection_string, QUEUES[1], [backlog_message("orders", "late", header=Header(ttl_ms=1))])
    for _ in range(2):
        assert run(["syphon", "--until-empty", "--count", "2", "--json"]) == 3
        said = json_lines(capsys.readouterr().out)[-1]
        assert (said["ending"], said["quarantined"]) == ("empty", 1)
    assert run(["syphon", "--until-empty", "--count", "2", "--entity", "invoices", "--json"]) == 0, "not for those"
    assert json_lines(capsys.readouterr().out)[-1]["quarantined"] == 0
    assert run(["syphon", "quarantine", "redrive", "--all", "--count", "2"]) == 0
    assert run(["syphon", "--until-empty", "--count", "2"]) == 0


# --- names ---


def test_a_name_that_nobody_knows_is_reported_at_once(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(spaces.secondary.connection_string, QUEUES[0], backlog_messages_for("orders", 10))
    for wish in ("--until-empty", "--dry-run"):
        assert run(["syphon", wish, "--count", "2", "--entity", "orders", "--entity", "ordres"]) == 1
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "no entity ordres: contoso has none of that name, and no message in the backlog is for it" in err
    assert len(ids_at(spaces.secondary, QUEUES[0])) == 10


def test_an_entity_that_only_messages_know_is_waited_for_and_not_called_unknown(spaces: NamespacePair) -> None:
    fill(spaces.secondary.connection_string, QUEUES[1], backlog_messages_for("Parcels", 3))
    with subprocess.Popen(
        command("--until-empty", "--entity", "parcels", "--json"), stdout=subprocess.PIPE, text=True
    ) as process:
        wait_for(process, "alert", name="destination_down")
        spaces.primary.create_queue("parcels")
        wait_for(process, "finished", ending="empty", moved=3)
    assert process.returncode == 0


def test_a_primary_that_does_not_say_whether_it_knows_a_name_is_not_taken_to_say_no(
    spaces: NamespacePair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wish = ["syphon", "--until-empty", "--count", "2", "--entity", "orders"]
    monkeypatch.setenv("TWINBUS_PRIMARY", spaces.primary.connection_string_for("reader"))
    assert run(wish) == 3
    out, err = capsys.readouterr()
    assert "unknown whether contoso has an entity orders, and no message was for it: unauthorised" in out
    assert err == ""
    monkeypatch.setenv("TWINBUS_PRIMARY", spaces.primary.connection_string)
    spaces.primary.stop()
    assert run([*wish, "--timeout", "2s"]) == 3
    assert "unknown whether contoso has an entity orders" in capsys.readouterr().out


def test_a_service_with_a_name_that_nobody_knows_says_so_and_goes_on(spaces: NamespacePair) -> None:
    process = subprocess.Popen(
        command("--entity", "ordres", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        wait_for(process, "progress")
        process.terminate()
        wait_for(process, "finished", ending="stopped")
        assert process.stderr is not None
        assert "no entity ordres" in process.stderr.read()
    assert process.returncode == 0


# --- throwing everything away ---


def test_where_nobody_can_be_asked_everything_is_thrown_away_only_with_yes(
    spaces: NamespacePair, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(spaces.secondary.connection_string, QUEUES[1], [unaddressed(), unaddressed()])
    assert run(["syphon", "--until-empty", "--count", "2"]) == 3
    capsys.readouterr()
    assert run(["syphon", "quarantine", "discard", "--all", "--count", "2"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "say --yes" in err
    assert run(["syphon", "quarantine", "discard", "--all", "--yes", "--count", "2"]) == 0
    assert capsys.readouterr().out.startswith("2 thrown away")


@pytest.mark.long
def test_on_a_terminal_everything_is_thrown_away_after_a_question(spaces: NamespacePair) -> None:
    fill(spaces.secondary.connection_string, QUEUES[1], [unaddressed(), unaddressed()])
    assert run(["syphon", "--until-empty", "--count", "2"]) == 3
    for answer, code, said in ((b"n\n", 3, b""), (b"\n", 3, b""), (b"y\n", 0, b"2 thrown away")):
        ours, theirs = pty.openpty()
        arguments = [*command(), "quarantine", "discard", "--all"]
        process = subprocess.Popen(arguments, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        with process:
            read_until(ours, b"There are 2 now. [y/N]")
            os.write(ours, answer)
            assert process.stdout is not None
            assert process.stdout.read().startswith(said)
            read_until(ours, None)
        os.close(ours)
        assert process.returncode == code


# --- signals and terminals ---


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code", "ending"), [(signal.SIGTERM, 3, "stopped"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_signal_stops_it_cleanly_and_nothing_stays_locked(
    spaces: NamespacePair, number: int, code: int, ending: str
) -> None:
    fill(spaces.secondary.connection_string, QUEUES[0], backlog_messages_for("orders", 200))
    slow = command("--rate", "20", "--until-empty", "--json")
    with subprocess.Popen(slow, stdout=subprocess.PIPE, text=True) as process:
        wait_for(process, "progress", moved_min=1)
        process.send_signal(number)
        said = wait_for(process, "finished")
    assert (process.returncode, said["ending"], said["held"]) == (code, ending, 0)
    assert 0 < len(ids_at(spaces.primary, "orders")) < 200
    # Nothing waits for the end of a lock: the rest comes home at once.
    started = time.monotonic()
    assert subprocess.run(command("--until-empty"), stdout=subprocess.DEVNULL).returncode == 0
    assert time.monotonic() - started < 45, "a lock lasts a minute"
    assert sorted(ids_at(spaces.primary, "orders")) == sorted(f"orders-{n}" for n in range(200))


def test_a_service_that_is_stopped_exits_with_0(spaces: NamespacePair) -> None:
    with subprocess.Popen(command("--json"), stdout=subprocess.PIPE, text=True) as process:
        wait_for(process, "progress")
        process.terminate()
        wait_for(process, "finished", ending="stopped")
    assert process.returncode == 0


def test_sigusr1_pauses_and_the_next_one_goes_on(spaces: NamespacePair) -> None:
    fill(spaces.secondary.connection_string, QUEUES[0], backlog_messages_for("orders", 400))
    slow = command("--rate", "20", "--json")  # which takes far longer than this test
    with subprocess.Popen(slow, stdout=subprocess.PIPE, text=True) as process:
        wait_for(process, "progress", moved_min=1)
        process.send_signal(signal.SIGUSR1)
        paused = wait_for(process, "progress", state="paused")
        process.send_signal(signal.SIGUSR1)
        wait_for(process, "progress", state="running", moved_min=paused["moved"] + 10)
        process.terminate()
        wait_for(process, "finished", ending="stopped")
    assert process.returncode == 0


def test_on_a_terminal_there_is_a_bar_and_after_the_first_ones_a_question(spaces: NamespacePair) -> None:
    fill(spaces.secondary.connection_string, QUEUES[0], backlog_messages_for("orders", 40))
    ours, theirs = pty.openpty()
    arguments = command("--first", "5", "--until-empty")
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(arguments, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    with process:
        shown = read_until(ours, b"go on with the others?")
        assert b"5 messages are home" in shown
        os.write(ours, b"yes\n")
        assert process.stdout is not None
        assert process.stdout.read().startswith(b"40 messages")
        read_until(ours, None)
    os.close(ours)
    assert process.returncode == 0


def read_until(terminal: int, text: bytes | None) -> bytes:
    """What was shown up to this text, or to the end."""
    shown, deadline = b"", time.monotonic() + WAIT_S
    while text is None or text not in shown:
        assert time.monotonic() < deadline, shown
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            got = os.read(terminal, 65_536)
        except OSError:  # how a terminal without anybody at the other end reads
            break
        if not got:
            break
        shown += got
    return shown
