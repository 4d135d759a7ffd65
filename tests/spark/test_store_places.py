"""A report whose ledger, store and verdict table are on object storage is the one of a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from object_store import new_place, s3, s3_environment  # noqa: F401  fixtures
from scripted_ledger import make_scenario

from twinbus.cli.main import run
from twinbus.errors import StoreError
from twinbus.ledger.upkeep.expected import EXPECTED_FILE
from twinbus.spark.failures import summarize
from twinbus.spark.jobs.spark_files import DirectFiles, path_for_spark
from twinbus.spark.jobs.stored_rows import rows_in
from twinbus.storage import open_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOST, UNKNOWN = 4, 3


class Commands:
    """The commands, by what they print as JSON."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def report(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        code = run(["pipeline", "report", *arguments, "--json"])
        document: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        document.pop("made_at")
        return code, document


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(capsys)


def written(tmp_path: Path) -> str:
    make_scenario(8, 300, misfortunes=1).write(tmp_path / "ledger")
    return str(tmp_path / "ledger")


def files_in(url: str, end: str) -> set[str]:
    return {each.name for each in open_folder(url).files() if each.name.endswith(end)}


@pytest.mark.usefixtures("s3", "spark")
def test_a_store_at_a_url_gives_the_report_of_one_in_a_folder(tmp_path: Path, commands: Commands) -> None:
    ledger, store = written(tmp_path), new_place("s3", tmp_path)
    expected = commands.report("--ledger", ledger)
    assert expected[0] == LOST
    where = ("--ledger", ledger, "--store", store)
    assert commands.report(*where) == expected
    assert files_in(store, "findings.json")
    assert commands.report(*where) == expected, "from what is kept"


@pytest.mark.long
@pytest.mark.usefixtures("s3", "spark")
def test_verdicts_at_a_url_are_replaced_only_by_new_ones(tmp_path: Path, commands: Commands) -> None:
    ledger, store, verdicts = written(tmp_path), new_place("s3", tmp_path), new_place("s3", tmp_path)
    where = ("--ledger", ledger, "--store", store)
    expected = commands.report(*where)
    code, found = commands.report(*where, "--verdicts", verdicts)
    assert (code, found.pop("verdicts_url")) == (LOST, verdicts)
    assert found | {"verdicts_url": None} == expected[1] | {"verdicts_url": None}
    first = files_in(verdicts, ".parquet")
    assert first
    assert commands.report(*where, "--verdicts", verdicts, "--overwrite")[0] == LOST
    assert not first & files_in(verdicts, ".parquet")


@pytest.mark.long
@pytest.mark.usefixtures("s3", "spark")
def test_where_everything_is_at_a_url_a_writer_that_is_absent_makes_the_answer_unknown(
    tmp_path: Path, commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, there = written(tmp_path), new_place("s3", tmp_path)
    assert run(["ledger", "ship", ledger, "--to", there]) == 0
    assert run(["ledger", "expect", there]) == 0
    capsys.readouterr()
    assert commands.report("--ledger", there)[0] == LOST
    assert files_in(f"{there}/compacted", "manifest.json"), "the store is below the ledger"
    listed = open_folder(there).read(EXPECTED_FILE)
    open_folder(there).put(EXPECTED_FILE, listed + b'\n[[writer]]\nhost = "till-7"\nprogram = "shop"\n')
    code, found = commands.report("--ledger", there)
    assert code == UNKNOWN
    assert found["reconciliation"]["verdict"].startswith("unknown: records are missing")
    assert [each["program"] for each in found["coverage"]["unknown"]] == ["shop on till-7"]


@pytest.fixture
def other_default_file_system(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """As where Hadoop is set up: a path without a scheme is not one of this machine."""
    there = tmp_path / "elsewhere"
    there.mkdir()
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.viewfs.mounttable.x.link./tmp", there.as_uri())
    settings.set("fs.defaultFS", "viewfs://x/")
    yield there
    settings.set("fs.defaultFS", "file:///")
    settings.unset("fs.viewfs.mounttable.x.link./tmp")


def test_local_paths_are_of_this_machine_where_hadoop_has_another_default(
    tmp_path: Path, commands: Commands, other_default_file_system: Path
) -> None:
    verdicts = tmp_path / "[verdicts]"
    assert commands.report("--ledger", written(tmp_path), "--verdicts", str(verdicts))[0] == LOST
    assert any(rows_in(open_folder(verdicts), files_in(str(verdicts), ".parquet")).values())
    assert not list(other_default_file_system.rglob("*"))


def test_rows_that_spark_wrote_to_another_machine_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    here, rows = tmp_path / "here", spark.range(10)
    assert len(DirectFiles(open_folder(here), path_for_spark(here), may_be_elsewhere=True).write(rows, "")) > 0
    for count in (0, 1):  # none of the rows is here, or only those of some executors
        missing = DirectFiles(open_folder(here), path_for_spark(tmp_path / "there"), may_be_elsewhere=count == 1)
        before = [each.name for each in open_folder(here).files()][count:]
        with pytest.raises(StoreError, match="executors write to a place that this process does not see"):
            missing.write(rows, "", before)


def test_a_file_that_only_executors_do_not_see_is_not_called_damaged(tmp_path: Path) -> None:
    file = tmp_path / "steps" / "1.parquet"
    trace = f"[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:{file}. It does not exist."
    assert "cannot be read: remove the store" in summarize(trace)
    file.parent.mkdir()
    file.touch()
    assert summarize(trace) == f"executors do not see {file}: give a folder that all machines share, or a URL"
