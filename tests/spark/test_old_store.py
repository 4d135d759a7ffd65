"""A ledger of version 0.1.0 with the store that it had compacted it into."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from version_0_1 import copied

from twinbus.cost.prices import Prices
from twinbus.errors import StoreTooNew
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.compaction import CompactedLedger, compact_ledger, read_in_process
from twinbus.spark.jobs.analysis import analyse
from twinbus.spark.jobs.balance import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.spark.jobs.findings import Findings


def test_an_old_store_has_every_record_of_its_ledger(tmp_path: Path) -> None:
    ledger = copied("ledger", tmp_path)
    lines = sum(len(file.read_bytes().splitlines()) for file in ledger.glob("*.jsonl"))
    for _ in range(2):
        compacted = compact_ledger(read_in_process, ledger)
        assert compacted.manifest.version <= manifests.VERSION, "older ones read it until its files are merged"
        assert compacted.manifest.records == lines
        assert compacted.manifest.troubles == []
    assert compacted.bytes_read == 0, "what was read once is not read again"


@pytest.mark.long
def test_a_report_on_an_old_store_finds_what_one_on_the_segments_finds(spark: SparkSession, tmp_path: Path) -> None:
    old, fresh = copied("ledger", tmp_path / "old"), copied("ledger", tmp_path / "fresh")
    shutil.rmtree(fresh / "compacted")
    found = [_findings(spark, compact_ledger(read_in_process, each)) for each in (old, fresh)]
    assert found[0].as_dict() == found[1].as_dict()
    assert found[0].reconciliation.accepted == 15


@pytest.mark.long
def test_what_has_to_be_made_again_is_said_once(spark: SparkSession, tmp_path: Path) -> None:
    ledger = copied("ledger", tmp_path)
    said: list[list[str]] = [[], []]
    for lines in said:
        compacted = compact_ledger(read_in_process, ledger)
        analyse(spark, compacted, Prices(), horizon_min=15, tell=lambda _: None, note=lines.append)
    why = f"it was kept in form 5 and this twinbus keeps form {VERSION}"
    assert said == [[f"what earlier reports found is made again because {why}"], []]


def test_a_store_of_a_later_version_is_refused_untouched(tmp_path: Path) -> None:
    ledger = copied("ledger", tmp_path)
    manifest = ledger / "compacted" / manifests.NAME
    said = msgspec.json.decode(manifest.read_bytes())
    manifest.write_bytes(msgspec.json.encode(said | {"version": 99}))
    before = {file: file.read_bytes() for file in ledger.rglob("*") if file.is_file()}
    with pytest.raises(StoreTooNew, match="compacted was written by a newer twinbus"):
        compact_ledger(read_in_process, ledger)
    assert {file: file.read_bytes() for file in before} == before


def _findings(spark: SparkSession, compacted: CompactedLedger) -> Findings:
    return analyse(spark, compacted, Prices(), horizon_min=15, tell=lambda _: None)
