"""Small step files become larger ones, and no report says anything else for it, wherever the store is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from object_store import new_place, s3, s3_environment  # noqa: F401  fixtures
from scripted_ledger import make_scenario

from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.main import run
from twinbus.cost.prices import Prices
from twinbus.errors import StoreTooNew
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction import step_merging
from twinbus.spark.compaction.compaction import CompactedLedger, compact_ledger, read_in_process
from twinbus.spark.compaction.manifest import STEPS
from twinbus.spark.jobs import balance as balances
from twinbus.spark.jobs.delta_log import LOG
from twinbus.storage import Folder, open_folder
from twinbus.storage.local_folder import LocalFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TURNS, MANY = 4, 5


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_merging, "MANY", MANY)


def written_in_turns(ledger: Path) -> Iterator[int]:
    """A scenario, in a segment of each process for each turn."""
    scripts = make_scenario(8, 300, misfortunes=1).scripts.values()
    ledger.mkdir()
    for turn in range(TURNS):
        for script in scripts:
            lines = script.lines()
            part = lines[turn * len(lines) // TURNS : (turn + 1) * len(lines) // TURNS]
            if part:
                name = f"20250309T0{turn}0000Z-{script.process}-{turn + 1:06}.jsonl"
                (ledger / name).write_bytes(b"".join(part))
        yield turn


def report(
    spark: SparkSession, ledger: Path, store: str | None = None, note: Callable[[str], None] = lambda _: None
) -> tuple[CompactedLedger, Any]:
    from twinbus.spark.jobs.analysis import analyse

    compacted = compact_ledger(read_in_process, ledger, store)
    found = analyse(spark, compacted, Prices(), horizon_min=15, tell=lambda _: None, note=note).as_dict()
    return compacted, {name: value for name, value in found.items() if name != "made_at"}


def step_files(store: Folder) -> set[str]:
    return {each.name for each in store.files(STEPS) if each.name.startswith(f"{STEPS}/date=")}


def rows_in_delta(store: Folder) -> int:
    """As another engine reads the table, which fails if a file is gone that the log names."""
    return int(pa.table(deltalake.DeltaTable(str(store.path() / STEPS)).to_pyarrow_table()).num_rows)


def merges_in_delta(store: Folder) -> set[bool]:
    """Whether the log says that merging changed data."""
    lines = [line for file in (store.path() / STEPS / LOG).glob("*.json") for line in file.read_bytes().splitlines()]
    actions = [json.loads(line).get("add") or json.loads(line).get("remove") or {} for line in lines]
    removed = [action for action in actions if "deletionTimestamp" in action]
    merged = [action for action in actions if "/merged-" in action.get("path", "")]
    return {action["dataChange"] for action in (*removed, *merged)}


def small_days(store: Folder) -> list[int]:
    """How many files each day has."""
    days = [name.rpartition("/")[0] for name in manifests.load(store).files]
    return [days.count(day) for day in set(days)]


@pytest.mark.long
def test_merged_step_files_have_the_same_rows_and_change_no_report(spark: SparkSession, tmp_path: Path) -> None:
    for _ in written_in_turns(tmp_path / "ledger"):
        compacted, found = report(spark, tmp_path / "ledger")
    store = compacted.store
    manifest = manifests.load(store)
    assert manifest.merged
    assert max(small_days(store)) < MANY
    assert len(manifest.parts) > len(manifest.files)
    assert step_files(store) == set(manifest.files), "those that were merged are gone"
    assert report(spark, tmp_path / "ledger", str(tmp_path / "again"))[1] == found
    assert rows_in_delta(store) == manifest.steps
    assert merges_in_delta(store) == {False}


@pytest.mark.long
def test_a_balance_that_is_made_again_reads_the_merged_files(spark: SparkSession, tmp_path: Path) -> None:
    for _ in written_in_turns(tmp_path / "ledger"):
        compacted, found = report(spark, tmp_path / "ledger")
    assert manifests.load(compacted.store).merged
    (compacted.store.path() / balances.FOLDER / balances.NAME).unlink()
    assert report(spark, tmp_path / "ledger")[1] == found


class Killed(BaseException):
    """What ends a process at once."""


@pytest.mark.long
@pytest.mark.parametrize("with_new_steps", [False, True])
@pytest.mark.parametrize("moment", ["before the manifest", "after the manifest", "before the old files go"])
def test_a_crash_while_merging_loses_nothing_and_the_next_report_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, with_new_steps: bool
) -> None:
    put, turns = LocalFolder.put, written_in_turns(tmp_path / "ledger")
    next(turns)
    monkeypatch.setattr(step_merging, "MANY", 1_000)
    report(spark, tmp_path / "ledger")
    monkeypatch.setattr(step_merging, "MANY", MANY)
    next(turns)

    def put_and_die(self: LocalFolder, name: str, data: bytes, *, private: bool = False) -> None:
        merges = name == manifests.NAME and b'"merged":{"steps' in data
        if merges and moment == "before the manifest":
            raise Killed
        put(self, name, data, private=private)
        if merges and moment == "after the manifest":
            raise Killed

    def die(*_: object) -> list[str]:
        raise Killed

    with monkeypatch.context() as crash:
        crash.setattr(LocalFolder, "put", put_and_die)
        if moment == "before the old files go":
            crash.setattr(balances, "remove_merged", die)
        with pytest.raises(Killed):
            report(spark, tmp_path / "ledger")
    if with_new_steps:
        next(turns)
    compacted, _ = report(spark, tmp_path / "ledger")
    assert rows_in_delta(compacted.store) == compacted.manifest.steps
    list(turns)
    compacted, found = report(spark, tmp_path / "ledger")
    manifest = manifests.load(compacted.store)
    assert manifest.merged
    assert len(manifest.parts) > len(manifest.files)
    assert step_files(compacted.store) == set(manifest.files)
    assert rows_in_delta(compacted.store) == manifest.steps
    assert merges_in_delta(compacted.store) == {False}, "who follows the table has read these steps before"
    assert max(small_days(compacted.store)) < MANY
    assert report(spark, tmp_path / "ledger", str(tmp_path / "again"))[1] == found


@pytest.mark.long
def test_files_that_another_report_reads_stay_until_it_has_ended(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twinbus.spark.jobs.balance_frames import open_balance

    ledger, turns = tmp_path / "ledger", written_in_turns(tmp_path / "ledger")
    next(turns), next(turns)
    compacted = compact_ledger(read_in_process, ledger)
    before = set(compacted.manifest.files)
    monkeypatch.setattr(step_merging, "MANY", 1_000)
    with open_balance(spark, compacted):
        monkeypatch.setattr(step_merging, "MANY", MANY)
        report(spark, ledger)
        assert manifests.load(compacted.store).merged
        next(turns)
        report(spark, ledger)
        assert before <= step_files(compacted.store)
    next(turns)
    report(spark, ledger)
    assert step_files(compacted.store) == set(manifests.load(compacted.store).files)


@pytest.mark.long
def test_a_step_file_that_cannot_be_merged_is_reported_and_ends_no_report(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, notes = written_in_turns(tmp_path / "ledger"), list[str]()
    monkeypatch.setattr(step_merging, "MANY", 1_000)
    for _ in range(2):
        next(turns)
        compacted, _ = report(spark, tmp_path / "ledger")
    damaged = compacted.store.path() / compacted.manifest.files[0]
    damaged.write_bytes(bytes(damaged.stat().st_size))
    monkeypatch.setattr(step_merging, "MANY", MANY)
    next(turns)
    compacted, found = report(spark, tmp_path / "ledger", note=notes.append)
    assert [damaged.name in each and "not merged" in each for each in notes] == [True]
    assert not manifests.load(compacted.store).merged
    assert report(spark, tmp_path / "ledger", str(tmp_path / "again"))[1] == found


@pytest.mark.long
def test_a_bill_is_of_all_steps_if_a_report_merges_them_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from twinbus.spark.jobs import analysis

    actual_cost = analysis.actual_cost

    def after_a_report(traffic: Any, prices: Prices) -> Any:
        with monkeypatch.context() as once:
            once.setattr(analysis, "actual_cost", actual_cost)
            assert manifests.load(report(spark, tmp_path / "ledger")[0].store).merged
        return actual_cost(traffic, prices)

    list(written_in_turns(tmp_path / "ledger"))
    monkeypatch.setattr(analysis, "actual_cost", after_a_report)
    command = ["cost", "actual", "--ledger", str(tmp_path / "ledger"), "--json"]
    assert run(command) == ExitCode.DONE, capsys.readouterr()
    billed = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(analysis, "actual_cost", actual_cost)
    assert run([*command, "--store", str(tmp_path / "again")]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out) == billed


@pytest.mark.long
def test_a_version_that_knows_no_merged_files_refuses_a_store_that_has_some(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in written_in_turns(tmp_path / "ledger"):
        report(spark, tmp_path / "ledger")
    monkeypatch.setattr(manifests, "VERSION", 1)
    with pytest.raises(StoreTooNew, match=r"compacted was written by a newer twinbus.*--store"):
        compact_ledger(read_in_process, tmp_path / "ledger")


def test_the_hour_at_a_url_begins_when_files_are_replaced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not when the run began that replaces them: others may have opened them until then."""
    turns, ledger = written_in_turns(tmp_path / "ledger"), tmp_path / "ledger"
    next(turns), next(turns)
    compacted = compact_ledger(read_in_process, ledger)
    with balances.lock_for_reading(compacted.store):
        report(spark, ledger)
        replaced = manifests.load(compacted.store).replaced.values()
    assert replaced
    written_ms = (compacted.store.path() / STEPS / LOG / f"{0:020}.json").stat().st_mtime_ns // 1_000_000
    assert min(replaced) >= written_ms, "a file of the same run that was written before"


@pytest.mark.long
@pytest.mark.usefixtures("s3")
def test_at_a_url_merged_files_stay_for_an_hour(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_place("s3", tmp_path)
    store, before = open_folder(url), set[str]()
    for _ in written_in_turns(tmp_path / "ledger"):
        _, found = report(spark, tmp_path / "ledger", url)
        assert before <= step_files(store), "the report before may still be reading"
        before = step_files(store)
    manifest = manifests.load(store)
    assert manifest.replaced
    assert step_files(store) == {*manifest.files, *manifest.replaced}
    monkeypatch.setattr(balances, "KEPT_MS", 0)
    assert report(spark, tmp_path / "ledger", url)[1] == found
    assert step_files(store) == set(manifests.load(store).files)


def test_one_run_merges_a_bounded_amount_and_each_file_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(written_in_turns(tmp_path / "ledger"))
    compacted = compact_ledger(read_in_process, tmp_path / "ledger")
    store, manifest = compacted.store, compacted.manifest
    sizes = {each.name: each.bytes for each in store.files(STEPS)}
    monkeypatch.setattr(step_merging, "MERGED_BYTES", 2 * max(sizes.values()))
    merges = step_merging.find_merges(store, manifest)
    assert all(len(merge.files) > 1 for merge in merges)
    names = [name for merge in merges for name in merge.files]
    assert len(names) == len(set(names)) > MANY
    monkeypatch.setattr(step_merging, "BYTES_PER_RUN", merges[0].bytes)
    assert step_merging.find_merges(store, manifest) == merges[:1]
    monkeypatch.setattr(step_merging, "SMALL_BYTES", 1)
    assert step_merging.find_merges(store, manifest) == []
