"""`twinbus demo`: the story happens, the judge is not fooled, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from twinbus.cli.commands.demo import result_text, verdict
from twinbus.demo.journal import JournalReader, JournalWriter
from twinbus.demo.judge import Tally, judge

WAIT_S = 90


@contextlib.contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A demo process that keeps its files in this folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "twinbus", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
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


def test_the_demo_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--messages", "100", "--json") as process:
        out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    result = json.loads(out)
    primary, secondary = result["namespaces"]
    assert result["lost"] == 0
    assert (primary["namespace"], secondary["namespace"]) == ("contoso", "backup")
    assert primary["sent"] == primary["acknowledged"] == primary["received"] == 100
    assert secondary["acknowledged"] == secondary["received"] == 100
    assert primary["failed_sends"] >= 3
    assert secondary["failed_sends"] == 0
    assert "kill -9" in err
    assert list(tmp_path.iterdir()) == []
    assert running_in(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, "Two namespaces"), (signal.SIGTERM, "A sender for each"), (signal.SIGINT, "kill -9")],
)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: int, moment: str) -> None:
    with demo(tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(moment):
                break
        process.send_signal(number)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert err == ""
    assert list(tmp_path.iterdir()) == []
    assert running_in(tmp_path) == []


def journals(folder: Path, *, acknowledged: list[str], failed: list[str], received: list[str]) -> tuple[Path, Path]:
    sent, got = folder / "sent", folder / "got"
    sender, receiver = JournalWriter(sent), JournalWriter(got)
    for name in failed:
        sender.write("failed", name, "no answer")
    for name in acknowledged:
        sender.write("acknowledged", name)
    for name in received:
        receiver.write("received", name)
    sender.close()
    receiver.close()
    return sent, got


def test_the_judge_names_what_was_acknowledged_and_never_came(tmp_path: Path) -> None:
    files = journals(tmp_path, acknowledged=["a", "b", "c"], failed=["b"], received=["a", "a"])
    tally = judge("contoso", *files)
    assert tally.lost == ("b", "c")
    assert (tally.sent, tally.failed_sends, tally.acknowledged) == (3, 1, 3)
    assert (tally.received, tally.duplicates) == (1, 1)
    assert "LOST: 2 acknowledged messages never came: b, c" in result_text([tally])


def test_a_message_that_was_never_acknowledged_may_come_or_not(tmp_path: Path) -> None:
    tally = judge("contoso", *journals(tmp_path, acknowledged=["a"], failed=["b", "c"], received=["a", "b"]))
    assert tally.lost == ()
    assert (tally.sent, tally.received, tally.duplicates) == (3, 2, 0)


def test_a_receiver_that_wrote_nothing_lost_everything(tmp_path: Path) -> None:
    sent, got = journals(tmp_path, acknowledged=["a"], failed=[], received=[])
    got.unlink()
    assert judge("contoso", sent, got).lost == ("a",)


def test_a_long_list_of_losses_is_cut() -> None:
    assert verdict([f"m{number}" for number in range(12)]).endswith("m9 and 2 more")


def test_loss_ends_the_command_with_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from twinbus.cli.main import run

    tally = Tally(namespace="contoso", sent=1, failed_sends=0, acknowledged=1, received=0, duplicates=0, lost=("a",))

    def sad_story(messages: int) -> Iterator[None]:
        yield from ()
        return [tally]  # type: ignore[return-value]

    monkeypatch.setattr("twinbus.demo.story.tell", sad_story)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert run(["demo"]) == 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert "LOST: 1" in capsys.readouterr().out


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    writer, reader = JournalWriter(path), JournalReader(path)
    writer.write("received", "a")
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
    from twinbus.demo.story import tell

    story = tell(100)
    next(story)
    assert [folder.name.startswith("twinbus-demo-") for folder in tmp_path.iterdir()] == [True]
    story.close()
    assert list(tmp_path.iterdir()) == []
