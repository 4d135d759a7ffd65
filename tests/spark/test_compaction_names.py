"""Segments and folders are called whatever somebody called them, and Spark reads them all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_ledger import BASE_MS, MINUTE, Script

from twinbus.cost.prices import Prices
from twinbus.ledger import Event, Kind
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.compaction.steps import file_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.spark.jobs.findings import Findings

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60)


def script(process: str, messages: int) -> Script:
    records = Script(process, "client")
    for number in range(messages):
        event = Event(Kind.ACCEPTED, "orders", message_ids=(f"{process}{number}",), sizes=(5,))
        records.note(BASE_MS + number * MINUTE, event)
    return records


def write(segment: Path, process: str, messages: int) -> None:
    segment.parent.mkdir(parents=True, exist_ok=True)
    segment.write_bytes(b"".join(script(process, messages).lines()))


def report(spark: SparkSession, ledger: Path) -> Findings:
    from twinbus.spark.jobs.analysis import analyse

    return analyse(spark, compact_ledger(read_in_process, ledger), Prices(), horizon_min=15, tell=lambda _: None)


def accepted(found: Findings) -> int:
    return found.reconciliation.accepted


@given(NAMES, NAMES)
def test_no_two_segments_have_files_of_one_name_and_spark_reads_each(one: str, other: str) -> None:
    names = [file_name(f"{segment}.jsonl", 7) for segment in (one, other)]
    assert (names[0] == names[1]) == (one == other)
    for name in names:
        assert name.isascii()
        assert not set(name) & set("[]{}*?\\:/ ")
        assert name[0].isalnum()
        assert len(name) < 200


def test_a_name_that_is_safe_is_kept() -> None:
    kept = "20250309T060000Z-00000000000000aa-000001"
    assert file_name(f"{kept}.jsonl", 4096) == f"{kept}-4096.parquet"


@pytest.mark.long
def test_segments_of_any_name_are_read(spark: SparkSession, tmp_path: Path) -> None:
    names = ["_copy", ".hidden", "a[1]", "a1", "b*", "{c,d}", "e\\f", "g:h", "é", "x" * 240]
    for number, name in enumerate(names):
        write(tmp_path / f"{name}.jsonl", f"{number:02}", 2)
    assert accepted(report(spark, tmp_path)) == 2 * len(names)


@pytest.mark.long
@pytest.mark.parametrize("name", ["[sa]t*r", "{star,_st?r\\\\}"])
def test_a_ledger_in_a_folder_of_any_name_is_read_and_nothing_of_its_neighbour(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Twice, for the second report reads what the first has kept."""
    write(tmp_path / "star" / "one.jsonl", "0a", 20)
    report(spark, tmp_path / "star")
    ledger = tmp_path / name
    write(ledger / "one.jsonl", "0a", 3)
    assert accepted(report(spark, ledger)) == 3
    write(ledger / "two.jsonl", "0b", 2)
    assert accepted(report(spark, ledger)) == 5
