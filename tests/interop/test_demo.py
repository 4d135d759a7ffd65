"""`twinbus demo`: the outage happens, messages that are lost are found, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from json_rules import broken_rules
from signals import as_at_a_terminal

from twinbus.cli.demo_screen import result_text, verdict
from twinbus.demo.journal import (
    JournalEntry,
    JournalReader,
    JournalWriter,
    MessageCounts,
    compare_journals,
    out_of_order,
    total_counts,
)
from twinbus.demo.run import DemoResult

WAIT_S = 240


@contextlib.contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A demo process that keeps its files in this folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "twinbus", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        preexec_fn=as_at_a_terminal,
    )
    with process:
        yield process


def running_in(folder: Path) -> list[str]:
    """Command lines of processes that work in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if str(folder) in line:
                found.append(line)
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("application", ["paired", pytest.param("behind a proxy", marks=pytest.mark.long)])
def test_the_demo_loses_nothing_and_leaves_nothing(tmp_path: Path, application: str) -> None:
    proxy = ["--proxy"] if application == "behind a proxy" else []
    with demo(tmp_path, "--fast", "--messages", "100", "--json", *proxy) as process:
        out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert list(broken_rules(result)) == []
    assert (result["lost"], result["ledger"], result["report"]) == (0, None, None)
    judge_everything_came(result["entities"])
    assert "kill -9" in err
    assert "failed over: orders" in err
    assert "recovered" in err
    assert "The syphon brings the backlog home." in err
    assert list(tmp_path.iterdir()) == []
    assert running_in(tmp_path) == []


def judge_everything_came(entities: list[dict[str, Any]]) -> None:
    assert [each["entity"] for each in entities] == ["orders", "invoices", "shipments"]
    assert sum(each["sent"] for each in entities) == 100
    for each in entities:
        assert each["sent"] == each["to_primary"] + each["to_backlog"] == each["received"]
        assert each["to_primary"] > 0
        assert each["to_backlog"] > 0


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("proxy", [[], ["--proxy"]], ids=["paired", "behind a proxy"])
def test_with_spark_the_ledger_says_the_same_and_only_the_report_stays(tmp_path: Path, proxy: list[str]) -> None:
    report = tmp_path / "report.html"
    folder = Path(tempfile.mkdtemp(prefix="twinbus-"))  # a short name: sockets have no room for a long one
    with demo(folder, "--messages", "100", "--json", "--report", str(report), *proxy) as process:
        out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert list(broken_rules(result)) == []
    judge_everything_came(result["entities"])
    reconciliation = result["ledger"]["reconciliation"]
    assert (reconciliation["accepted"], reconciliation["lost"]) == (100, 0)
    classes = reconciliation["classes"]  # a message that was stored when its acknowledgement was killed is there twice
    assert classes["delivered"] + classes["duplicated"] == 100
    late = {row["entity"]: row["late"] for row in result["ledger"]["ordering"]}
    assert late == {each["entity"]: each["out_of_order"] for each in result["entities"]}
    assert result["ledger"]["cost"]["operations"]["documents"] > 100
    assert '"verdict good">Nothing lost<' in report.read_text()
    assert list(folder.iterdir()) == []
    assert running_in(folder) == []
    folder.rmdir()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "Two namespaces"),
        (signal.SIGTERM, "An application pairs them"),
        (signal.SIGINT, "kill -9"),
        (signal.SIGHUP, "kill -9"),
    ],
)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: int, moment: str) -> None:
    with demo(tmp_path, "--fast") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(moment):
                break
        process.send_signal(number)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert err == "twinbus: interrupted\n"
    assert list(tmp_path.iterdir()) == []
    assert running_in(tmp_path) == []


def test_a_killed_demo_leaves_nothing_either(tmp_path: Path) -> None:
    with demo(tmp_path, "--fast") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("An application pairs them"):
                break
        assert running_in(tmp_path) != []
        process.kill()
        process.communicate(timeout=WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while (running_in(tmp_path) or any(tmp_path.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def journals(
    folder: Path, *, acknowledged: dict[str, str], failed: list[str], received: list[str]
) -> tuple[Path, list[Path]]:
    sent, got = folder / "sent", folder / "got"
    sender, receiver = JournalWriter(sent), JournalWriter(got)
    sender.write(JournalEntry(kind="event", entity="orders", event="failed_over"))
    for name in failed:
        sender.write(JournalEntry(kind="failed", entity=entity_of(name), message_id=name, note="no answer"))
    for name, place in acknowledged.items():
        sender.write(
            JournalEntry(kind="acknowledged", entity=entity_of(name), message_id=name, place=place, took_s=0.5)
        )
    for name in received:
        receiver.write(JournalEntry(kind="received", entity=entity_of(name), message_id=name))
    sender.close()
    receiver.close()
    return sent, [got]


def entity_of(message_id: str) -> str:
    return message_id.partition("-")[0]


def test_the_judge_names_what_was_acknowledged_and_never_came(tmp_path: Path) -> None:
    acknowledged = {"orders-1": "primary", "orders-2": "backlog/3", "orders-3": "primary"}
    files = journals(tmp_path, acknowledged=acknowledged, failed=["orders-2"], received=["orders-1", "orders-1"])
    (count,) = compare_journals(*files)
    assert count.lost == ("orders-2", "orders-3")
    assert (count.sent, count.failed_sends, count.to_primary, count.to_backlog) == (3, 1, 2, 1)
    assert (count.received, count.duplicates) == (1, 1)
    assert (count.availability, count.slowest_send_s) == (0.75, 0.5)
    text = result_text(DemoResult([count], None, None))
    assert "LOST: 2 acknowledged messages never came: orders-2, orders-3" in text


def test_the_table_adds_up_all_entities_and_fits_a_terminal(tmp_path: Path) -> None:
    acknowledged = {f"{entity}-{number}": "primary" for entity in ("orders", "invoices") for number in range(1_000)}
    files = journals(tmp_path, acknowledged=acknowledged, failed=["orders-1"], received=list(acknowledged))
    counts = compare_journals(*files)
    assert total_counts(counts).availability == 2_000 / 2_001
    lines = result_text(DemoResult(counts, None, None)).splitlines()
    assert max(map(len, lines)) <= 80
    rows = {name: cells for name, *cells in (re.split(r"\s{2,}", line.strip()) for line in lines)}
    assert rows["sent"] == rows["received"] == ["1,000", "1,000", "2,000"]
    assert (rows["LOST"], rows["sends that failed"][-1]) == (["0", "0", "0"], "1")
    assert rows["availability"] == ["99.90%", "100.00%", "99.95%"]


def test_each_entity_is_judged_by_itself(tmp_path: Path) -> None:
    acknowledged = {"orders-1": "primary", "invoices-2": "primary"}
    orders, invoices = compare_journals(
        *journals(tmp_path, acknowledged=acknowledged, failed=[], received=["orders-1"])
    )
    assert (orders.lost, invoices.lost) == ((), ("invoices-2",))


def test_a_message_that_was_never_acknowledged_may_come_or_not(tmp_path: Path) -> None:
    files = journals(
        tmp_path,
        acknowledged={"orders-1": "primary"},
        failed=["orders-2", "orders-3"],
        received=["orders-1", "orders-2"],
    )
    (count,) = compare_journals(*files)
    assert count.lost == ()
    assert (count.sent, count.received, count.duplicates) == (3, 2, 0)


def test_what_comes_after_a_later_one_is_out_of_order_within_its_session(tmp_path: Path) -> None:
    def came(name: str, session: str | None) -> JournalEntry:
        return JournalEntry(kind="received", entity="orders", message_id=name, session=session)

    assert out_of_order([came("1", None), came("3", None), came("2", None), came("4", None)]) == 1
    assert out_of_order([came("1", "a"), came("3", "a"), came("2", "b"), came("4", "b")]) == 0
    assert out_of_order([came("2", "a"), came("1", "a"), came("1", "a")]) == 1


def test_a_receiver_that_wrote_nothing_lost_everything(tmp_path: Path) -> None:
    sent, got = journals(tmp_path, acknowledged={"orders-1": "primary"}, failed=[], received=[])
    got[0].unlink()
    assert compare_journals(sent, got)[0].lost == ("orders-1",)


def test_a_long_list_of_losses_is_cut() -> None:
    assert verdict([f"m{number}" for number in range(12)]).endswith("m9 and 2 more")


def test_loss_ends_the_command_with_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from twinbus.cli.main import run

    count = MessageCounts(
        entity="orders",
        sent=1,
        failed_sends=0,
        to_primary=1,
        to_backlog=0,
        received=0,
        duplicates=0,
        out_of_order=0,
        slowest_send_s=0.1,
        lost=("a",),
    )

    def failing_demo(messages: int, report: Path | None, *, with_proxy: bool) -> Iterator[None]:
        yield from ()
        return DemoResult([count], None, None)  # type: ignore[return-value]

    monkeypatch.setattr("twinbus.demo.run.run_demo", failing_demo)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert run(["demo", "--fast"]) == 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert "LOST: 1" in capsys.readouterr().out


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    writer, reader = JournalWriter(path), JournalReader(path)
    writer.write(JournalEntry(kind="received", message_id="a"))
    with path.open("a") as file:
        file.write('{"kind": "received", "mess')
    assert [entry.message_id for entry in reader.new_entries()] == ["a"]
    with path.open("a") as file:
        file.write('age_id": "b"}\n')
    assert [entry.message_id for entry in reader.new_entries()] == ["b"]
    writer.close()


def test_the_files_of_the_demo_go_where_temporary_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    from twinbus.demo.run import run_demo

    demo = run_demo(100, None)
    next(demo)
    assert [folder.name.startswith("twinbus-demo-") for folder in tmp_path.iterdir()] == [True]
    demo.close()
    assert list(tmp_path.iterdir()) == []
