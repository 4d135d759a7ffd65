"""Steps, accounts and verdicts are tables that other engines read, at every moment as one report left them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from scripted_ledger import make_scenario, write_lines

from twinbus.cost.prices import Prices
from twinbus.errors import StoreError
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.jobs.delta_log import COMMITS_PER_CHECKPOINT, LOG, DeltaFile, publish, schema_of
from twinbus.storage import Folder, open_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.spark.compaction.compaction import CompactedLedger

SCHEMA = schema_of("name STRING, count BIGINT")


def rows_of(table: Path | str) -> list[dict[str, Any]]:
    """As delta-rs reads it, which is another engine."""
    found: list[dict[str, Any]] = pa.table(deltalake.DeltaTable(str(table)).to_pyarrow_table()).to_pylist()
    return found


def report(spark: SparkSession, ledger: Path, verdicts: Path | None = None) -> CompactedLedger:
    from twinbus.spark.jobs.analysis import ChosenMessages, analyse
    from twinbus.spark.jobs.verdict_files import VerdictFiles

    compacted = compact_ledger(read_in_process, ledger)
    write = None if verdicts is None else VerdictFiles(str(verdicts), overwrite=True).write
    analyse(
        spark,
        compacted,
        Prices(),
        horizon_min=15,
        tell=lambda _: None,
        chosen=ChosenMessages(write_verdicts=write),
    )
    return compacted


def test_other_engines_read_what_a_report_left(spark: SparkSession, tmp_path: Path) -> None:
    scenario = make_scenario(8, 300, misfortunes=1)
    ledger, store, verdicts = tmp_path / "ledger", tmp_path / "ledger" / "compacted", tmp_path / "verdicts"
    ledger.mkdir()
    scripts = [*scenario.scripts.values()]
    for some in (scripts[:2], scripts[2:]):
        for script in some:
            write_lines(ledger, script.process, script.lines())
        compacted = report(spark, ledger, verdicts)
    assert len(rows_of(store / "steps")) == compacted.manifest.steps
    names = set(scenario.expected)
    assert {(row["entity"], row["message_id"]) for row in rows_of(store / "accounts")} == names
    said = {(row["entity"], row["message_id"]): row["verdict"] for row in rows_of(verdicts)}
    assert said == scenario.expected
    files = deltalake.DeltaTable(str(store / "accounts")).file_uris()
    query = "select count(distinct (entity, message_id)) from read_parquet(?)"
    assert duckdb.connect().execute(query, [files]).fetchall() == [(len(names),)]


def put_rows(folder: Folder, name: str, count: int) -> DeltaFile:
    with folder.draft(name) as draft:
        pq.write_table(pa.table({"name": [name], "count": [count]}), draft)
    [found] = [each for each in folder.files() if each.name == name]
    return DeltaFile(found.bytes, found.modified_ms)


def test_a_version_has_just_the_files_that_count_in_it(tmp_path: Path) -> None:
    """Also beyond a checkpoint, after which the commits before it go."""
    folder, files = open_folder(tmp_path / "a table"), dict[str, DeltaFile]()
    for number in range(2 * COMMITS_PER_CHECKPOINT + 5):
        files[f"{number} [new].parquet"] = put_rows(folder, f"{number} [new].parquet", number)
        if number % 2:
            files.pop(f"{number - 1} [new].parquet")
        assert publish(folder, "counts", SCHEMA, files) == number
        assert publish(folder, "counts", SCHEMA, files) == number, "nothing new is no version"
        if number % 6 == 0:
            assert {row["name"] for row in rows_of(tmp_path / "a table")} == set(files)
    assert {row["name"] for row in rows_of(tmp_path / "a table")} == set(files)
    commits = [each for each in folder.files(LOG) if each.name.endswith(".json")]
    assert len(commits) <= 2 * COMMITS_PER_CHECKPOINT


def test_what_another_engine_wrote_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder(tmp_path)
    publish(folder, "counts", SCHEMA, {"a.parquet": put_rows(folder, "a.parquet", 1)})
    create = type(folder).create

    def create_too_late(self: Any, name: str, data: bytes) -> bool:
        create(self, name, b"{}\n")
        return create(self, name, data)

    monkeypatch.setattr(type(folder), "create", create_too_late)
    with pytest.raises(StoreError, match="was written by somebody else"):
        publish(folder, "counts", SCHEMA, {})
