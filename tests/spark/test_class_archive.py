"""A class archive is used if its owner made it, and makes no difference to what a report says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from json_rules import broken_rules
from scripted_ledger import make_scenario

from twinbus.spark.class_archive import archive_file, options_to_use


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive that is there, in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = archive_file()
    file.parent.mkdir(parents=True, mode=0o700)
    file.touch()
    return file


def test_an_archive_is_used_if_it_is_there(archive: Path) -> None:
    assert f"-XX:SharedArchiveFile={archive} " in options_to_use()
    archive.unlink()
    assert options_to_use() == ""


def test_an_archive_that_others_may_have_written_is_not_used(archive: Path) -> None:
    archive.parent.chmod(0o777)
    assert options_to_use() == ""


def test_an_archive_below_a_folder_with_a_space_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    archive_file().parent.mkdir(parents=True)
    archive_file().touch()
    assert options_to_use() == ""


def test_another_java_has_another_archive(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert archive_file() != archive


@pytest.mark.long
def test_a_report_with_an_archive_says_what_one_without_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_scenario(8, 300, misfortunes=1).write(tmp_path / "ledger")

    def said(*arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "twinbus", "pipeline", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    where = ("report", "--ledger", str(tmp_path / "ledger"))
    without = said(*where, "--store", str(tmp_path / "one"))
    made = said("quick-start", "--json")
    assert (made[0], list(broken_rules(json.loads(made[1])))) == (0, [])
    assert archive_file().stat().st_size > 1 << 20
    with_archive = said(*where, "--store", str(tmp_path / "two"))
    assert with_archive[:2] == without[:2]
    assert "cds" not in with_archive[2]
    archive_file().write_bytes(b"no archive")
    assert said(*where, "--store", str(tmp_path / "three"))[:2] == without[:2], "one that is damaged is not used"
