"""The register of processes on this machine: found while they run, forgotten when they are gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from twinbus.control.local_register import (
    RUN_VARIABLE,
    Registered,
    Registration,
    register_spool,
    registered,
    registered_spools,
)


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(RUN_VARIABLE, str(tmp_path / "run"))
    return tmp_path / "run"


def test_who_registers_is_found_until_the_end(tmp_path: Path, run: Path) -> None:
    here = Registration("proxy", "Mine", tmp_path / "control.sock")
    assert registered("proxy") == [Registered("proxy", "Mine", os.getpid(), tmp_path / "control.sock")]
    assert registered("other") == []
    assert run.stat().st_mode & 0o777 == 0o700
    here.end()
    here.end()
    assert registered("proxy") == []


def test_who_was_killed_is_forgotten(tmp_path: Path, run: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    Registration("proxy", "mine", tmp_path)
    (file,) = run.iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pid": ended.pid}))
    assert registered("proxy") == []
    assert list(run.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"kind": "proxy", "name": "x", "pid": "x", "path": ""}', "\0"])
def test_a_damaged_entry_is_removed(run: Path, text: str) -> None:
    run.mkdir(mode=0o700)
    (run / "proxy-1-x.json").write_text(text)
    assert registered("proxy") == []
    assert list(run.iterdir()) == []


@pytest.mark.parametrize("pid", [-1, 0, 2**70])
def test_a_number_that_is_no_process_is_gone(tmp_path: Path, run: Path, pid: int) -> None:
    run.mkdir(mode=0o700)
    entry = {"kind": "proxy", "name": "x", "pid": pid, "path": str(tmp_path)}
    (run / "proxy-1-x.json").write_text(json.dumps(entry))
    assert registered("proxy") == []


def test_a_folder_that_others_can_write_is_not_believed(tmp_path: Path, run: Path) -> None:
    run.mkdir()
    run.chmod(0o777)
    entry = {"kind": "proxy", "name": "x", "pid": os.getpid(), "path": str(tmp_path)}
    (run / "proxy-1-x.json").write_text(json.dumps(entry))
    assert registered("proxy") == []


def test_who_cannot_register_works_all_the_same(tmp_path: Path, run: Path, caplog: pytest.LogCaptureFixture) -> None:
    run.write_text("in the way")
    Registration("proxy", "mine", tmp_path).end()
    assert "twinbus status will not find the proxy mine" in caplog.text


def test_without_a_choice_the_folder_of_the_user_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_VARIABLE)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    here = Registration("proxy", "unusual-name-of-this-test", tmp_path)
    try:
        assert len(list((tmp_path / "twinbus").iterdir())) == 1
        assert "unusual-name-of-this-test" in [found.name for found in registered("proxy")]
    finally:
        here.end()


def test_a_spool_is_found_by_its_pair_as_long_as_its_folder_is_there(tmp_path: Path, run: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    register_spool(spool, "contoso")
    register_spool(spool, "contoso")
    assert registered_spools("Contoso") == [spool]
    assert registered_spools("fabrikam") == []
    (file,) = run.iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pid": 2**70}))
    assert registered_spools("contoso") == [spool]
    spool.rmdir()
    assert registered_spools("contoso") == []
    assert list(run.iterdir()) == []


def test_a_spool_whose_folder_cannot_be_looked_at_is_not_forgotten(tmp_path: Path, run: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    register_spool(spool, "contoso")
    spool.rmdir()
    spool.symlink_to(spool)  # the system refuses to look at it
    assert registered_spools("contoso") == [spool]
    assert len(list(run.iterdir())) == 1
