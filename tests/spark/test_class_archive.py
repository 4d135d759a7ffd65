"""A class archive is made after a command that had none, used if its owner made it, and makes no difference to what a
report says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_rules import broken_rules
from scripted_ledger import make_scenario

from twinbus.cli.pipeline import quick_start
from twinbus.cli.pipeline.quick_start import MAKER, make_unasked
from twinbus.errors import TwinbusError
from twinbus.spark import class_archive
from twinbus.spark.class_archive import (
    ATTEMPTS_MAX,
    NEVER_VARIABLE,
    archive_file,
    count_attempt,
    forget_attempts,
    keep_archive,
    maker_lock,
    may_be_made,
    options_to_use,
    remove_unused,
)

REAL_RUN = subprocess.run

WITH_ALL_IT_STARTS = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans become children
done = subprocess.run(sys.argv[1:])
try:
    while os.wait():
        pass
except ChildProcessError:
    sys.exit(done.returncode)
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(NEVER_VARIABLE)


@pytest.fixture
def archive() -> Path:
    """An archive that is there."""
    file = archive_file()
    file.parent.mkdir(parents=True, mode=0o700)
    file.touch()
    return file


def test_an_archive_is_used_if_it_is_there(archive: Path) -> None:
    assert f"-XX:SharedArchiveFile={archive} " in options_to_use()
    assert not may_be_made()
    archive.unlink()
    assert options_to_use() == ""
    assert may_be_made()


def test_an_archive_that_others_may_have_written_is_not_used(archive: Path) -> None:
    archive.parent.chmod(0o777)
    assert options_to_use() == ""


def test_an_archive_below_a_folder_with_a_space_is_neither_used_nor_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    assert not may_be_made()
    archive_file().parent.mkdir(parents=True)
    archive_file().touch()
    assert options_to_use() == ""


def test_another_java_has_another_archive(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert archive_file() != archive
    assert not may_be_made(), "it has no archive of its own classes to make one upon"


def test_one_process_at_a_time_makes_an_archive() -> None:
    with maker_lock(archive_file()) as lock:
        assert lock is not None
        subprocess.run([sys.executable, "-c", MAKER], check=True)
        assert not archive_file().exists()
        with maker_lock(archive_file()) as another:
            assert another is None


def test_an_archive_takes_its_place_in_one_step(archive: Path) -> None:
    draft = archive.with_name("draft")
    draft.write_bytes(b"new")
    with archive.open("rb") as in_use:
        keep_archive(draft, archive)
        assert in_use.read() == b"", "a JVM that has the other one open keeps that"
    assert archive.read_bytes() == b"new"


def test_where_no_archive_gets_complete_no_more_are_tried() -> None:
    for _ in range(ATTEMPTS_MAX):
        assert may_be_made()
        with maker_lock(archive_file()) as lock:
            assert lock is not None
            count_attempt(lock)
    assert not may_be_made()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (NEVER_VARIABLE, "1"),
        ("JAVA_TOOL_OPTIONS", "-agentlib:jdwp=transport=dt_socket,server=y,address=5005"),
        ("SPARK_SUBMIT_OPTS", "-Xshare:off"),
        ("_JAVA_OPTIONS", "-XX:ArchiveClassesAtExit=mine.jsa"),
        ("PYSPARK_SUBMIT_ARGS", "--driver-java-options -Dmine=1 pyspark-shell"),
    ],
)
def test_no_archive_is_made_against_the_will_of_the_user(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert not may_be_made()


def test_an_archive_that_was_complete_once_is_made_again() -> None:
    with maker_lock(archive_file()) as lock:
        assert lock is not None
        for _ in range(ATTEMPTS_MAX):
            count_attempt(lock)
        forget_attempts(lock)
    assert may_be_made()


def test_a_maker_ships_nothing_sees_no_keys_and_runs_no_code_of_the_folder_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINBUS_LEDGER_SHIP_TO", str(tmp_path / "shipped"))
    monkeypatch.setenv("TWINBUS_PRIMARY", "Endpoint=sb://contoso/;SharedAccessKeyName=a;SharedAccessKey=hush")
    (tmp_path / "typer.py").write_text("raise SystemExit('code of the folder')")
    monkeypatch.chdir(tmp_path)
    seen = {}

    def report(command: list[str], **how: Any) -> subprocess.CompletedProcess[bytes]:
        see = "import os, typer; print(typer.__file__, os.environ.get('TWINBUS_PRIMARY'))"
        start = command[: command.index("-c") + 1]
        seen["text"] = REAL_RUN([*start, see], env=how["env"], cwd=how["cwd"], capture_output=True, text=True).stdout
        return subprocess.CompletedProcess(command, 1, b"", b"enough")

    monkeypatch.setattr(subprocess, "run", report)
    monkeypatch.setattr(os, "nice", lambda _by: 0)
    with pytest.raises(TwinbusError, match="enough"):
        make_unasked()
    assert seen["text"].endswith("typer/__init__.py None\n")
    assert not (tmp_path / "shipped").exists()


def test_a_maker_is_started_without_the_keys_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    given: list[dict[str, str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda _command, **how: given.append(how["env"]))
    quick_start._start_maker()
    assert [("AWS_SECRET_ACCESS_KEY" in env, "PATH" in env) for env in given] == [(False, True)]


def test_without_a_home_folder_there_is_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(_self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    assert (options_to_use(), may_be_made()) == ("", False)


def test_no_archive_is_made_where_it_would_fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "FREE_BYTES_MIN", 1 << 60)
    assert not may_be_made()


def test_archives_of_others_go_when_no_jvm_has_used_them_for_long(archive: Path) -> None:
    old, fresh, left = (archive.with_name(f"spark-{name}") for name in ("old.jsa", "fresh.jsa", "quick-start-killed"))
    old.touch()
    fresh.touch()
    left.mkdir()
    (left / "draft.jsa").touch()
    os.utime(old, (1, 1))
    os.utime(left, (1, 1))
    os.utime(archive, (1, 1))
    assert options_to_use()
    assert archive.stat().st_mtime > 1, "it is in use"
    draft = archive.with_name("draft")
    draft.touch()
    keep_archive(draft, archive)
    remove_unused(archive)
    assert sorted(archive.parent.iterdir()) == sorted([archive, fresh])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_after_the_first_report_an_archive_is_made_and_reports_say_the_same(tmp_path: Path) -> None:
    make_scenario(8, 300, misfortunes=1).write(tmp_path / "ledger")

    def said(*arguments: str, **more: str) -> tuple[int, str, str]:
        command = [sys.executable, "-c", WITH_ALL_IT_STARTS, sys.executable, "-m", "twinbus", "pipeline", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | more)
        return done.returncode, done.stdout, done.stderr

    def report(store: str, **more: str) -> tuple[int, str, str]:
        return said("report", "--ledger", str(tmp_path / "ledger"), "--store", str(tmp_path / store), **more)

    without = report("one", **{NEVER_VARIABLE: "1"})
    assert not archive_file().parent.exists()
    first = report("two")
    assert first[:2] == without[:2]
    assert str(archive_file()) in first[2], "it says that an archive is made"
    assert archive_file().stat().st_size > 1 << 20
    with_archive = report("three")
    assert with_archive[:2] == without[:2]
    assert "archive" not in with_archive[2]
    assert "cds" not in with_archive[2]
    made = said("quick-start", "--json")
    assert (made[0], list(broken_rules(json.loads(made[1])))) == (0, [])
    damaged = archive_file().with_name("damaged")
    damaged.write_bytes(b"no archive")
    keep_archive(damaged, archive_file())
    assert report("four")[:2] == without[:2], "one that is damaged is not used"
