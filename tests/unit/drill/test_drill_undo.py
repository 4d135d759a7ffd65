"""What a drill may be asked for, and what is left of one that was killed."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from twinbus import Namespace, SendAvailabilityPairedNamespaceOptions
from twinbus.cli.main import make_app
from twinbus.drill.measures import Limits
from twinbus.drill.options import DrillOptions
from twinbus.drill.undo import ChangeRecord, ChangeRecordFile, change_records_in, default_folder, undo_all
from twinbus.errors import OptionsError, TwinbusError
from twinbus.units import parse_seconds

SECONDARY = "Endpoint=sb://backup.servicebus.windows.net;SharedAccessKeyName=root;SharedAccessKey=a2V5"
NOTE = ChangeRecord(
    drill="d1", pid=os.getpid(), address="host:1", entity="orders", way="status", began_at="today", was="Active"
)


def test_a_drill_has_the_intervals_of_an_application_that_sets_none() -> None:
    application = SendAvailabilityPairedNamespaceOptions(Namespace.from_connection_string(SECONDARY))
    drill = DrillOptions(entity="orders")
    assert drill.failover_interval_s == application.failover_interval.total_seconds()
    assert drill.ping_interval_s == application.ping_primary_interval.total_seconds()
    assert drill.outage_s == drill.failover_interval_s + 30
    for option, value in (
        ("--failover-interval", drill.failover_interval_s),
        ("--ping-interval", drill.ping_interval_s),
    ):
        command = get_command(make_app()).commands["drill"]  # type: ignore[attr-defined]
        (default,) = [each.default for each in command.params if option in each.opts]
        assert parse_seconds(default, option) == value


@pytest.mark.parametrize(
    ("wishes", "text"),
    [
        ({"entity": " / "}, "--entity needs the name"),
        ({"fault": "nosend"}, "--fault must be no-send, unreachable, unanswered, got 'nosend'"),
        ({"fault": "unanswered", "by_status": True}, "a status can only be no-send"),
        ({"how": "silent"}, "--how is for --fault unreachable"),
        ({"fault": "unreachable", "how": "gone"}, "refuse, drop, silent"),
        ({"length_s": 0.5}, "--length must be from 1 s to 1 h, got 500 ms"),
        ({"ping_interval_s": 0.1}, "--ping-interval must be from 1 s"),
        ({"rate": 0}, "--rate must be from 0.1 to 100"),
        ({"attempts": 0}, "--attempts must be from 1 to 20"),
        ({"length_s": 30, "failover_interval_s": 60}, "make --length longer or --failover-interval shorter"),
        ({"ttl_s": 60}, "--ttl must be at least 2 min 30 s"),
        ({"limits": Limits(lost=-1)}, "--max-lost must be 0 or more"),
    ],
)
def test_what_makes_no_sense_is_refused_in_the_words_of_the_command(wishes: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError) as refused:
        DrillOptions(**{"entity": "orders"} | wishes)
    assert text in str(refused.value)


def test_all_that_is_wrong_is_reported_at_once() -> None:
    with pytest.raises(OptionsError, match=r"--rate .*; --attempts"):
        DrillOptions(entity="orders", rate=0, attempts=0)


def test_a_note_is_locked_while_its_drill_lives_and_gone_when_all_is_put_back(tmp_path: Path) -> None:
    record_file = ChangeRecordFile(tmp_path / "notes", NOTE)
    ((path, note, is_running),) = change_records_in(tmp_path / "notes")
    assert (note, is_running) == (NOTE, True)
    assert path.stat().st_mode & 0o777 == 0o600
    record_file.close(is_put_back=True)
    assert list(change_records_in(tmp_path / "notes")) == []


def test_what_could_not_be_put_back_stays_noted(tmp_path: Path) -> None:
    record_file = ChangeRecordFile(tmp_path, NOTE)
    record_file.add(fault_id="no-send-1")
    record_file.close(is_put_back=False)
    ((_, note, is_running),) = change_records_in(tmp_path)
    assert (note.fault_id, is_running) == ("no-send-1", False)


def test_a_line_that_was_cut_short_and_a_file_of_somebody_else_do_no_harm(tmp_path: Path) -> None:
    record_file = ChangeRecordFile(tmp_path, NOTE)
    record_file.close(is_put_back=False)
    with record_file.path.open("a") as file:
        file.write('{"fault_id": "no-')
    (tmp_path / "other.drill").write_text("[1]\n{}")
    assert [note for _, note, _ in change_records_in(tmp_path)] == [NOTE]


def test_a_folder_that_cannot_be_written_is_reported_before_anything_is_changed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TwinbusError, match="must be noted in"):
        ChangeRecordFile(tmp_path / "file" / "notes", NOTE)


def test_a_note_that_cannot_be_written_whole_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TwinbusError, match="No space left"):
        ChangeRecordFile(tmp_path, NOTE)
    assert list(tmp_path.iterdir()) == []


def test_notes_are_kept_with_the_state_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_folder() == Path("/state/twinbus/drills")


def test_undoing_leaves_running_drills_alone_and_asks_for_the_namespace_it_needs(tmp_path: Path) -> None:
    record_file = ChangeRecordFile(tmp_path, NOTE)
    (running,) = asyncio.run(undo_all(tmp_path, None, 1.0))
    assert not running.is_done
    assert f"process {os.getpid()}" in running.text
    record_file.close(is_put_back=False)
    (killed,) = asyncio.run(undo_all(tmp_path, None, 1.0))
    assert not killed.is_done
    assert "give --primary" in killed.text
    assert len(list(change_records_in(tmp_path))) == 1
