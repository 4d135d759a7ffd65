"""Kept findings: the same answer without Spark, and only while everything it follows from is the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from scripted_ledger import make_scenario

from twinbus.cost.prices import Prices
from twinbus.ledger.upkeep.expected import ExpectedWriter
from twinbus.ledger.upkeep.pruning import PrunedProcess
from twinbus.spark.compaction.compaction import CompactedLedger, compact_ledger, read_in_process
from twinbus.spark.compaction.manifest import Process
from twinbus.spark.jobs import kept_findings
from twinbus.spark.jobs.analysis import analyse
from twinbus.spark.jobs.findings import Findings
from twinbus.storage.local_folder import LocalFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HORIZON_MIN = 15
CLIENT, NAMESPACE = "1" * 16, "2" * 16


def kept(compacted: CompactedLedger, prices: Prices | None = None, horizon_min: int = HORIZON_MIN) -> Findings | None:
    return kept_findings.load(compacted, prices or Prices(), horizon_min=horizon_min)


def test_what_a_report_found_is_what_the_next_one_is_told_without_spark(
    findings: Findings, compacted: CompactedLedger
) -> None:
    known = kept(compacted)
    assert known == findings
    assert known.as_dict() == findings.as_dict()


def test_it_is_told_again_only_if_nothing_is_new(spark: SparkSession, tmp_path: Path) -> None:
    scenario = make_scenario(5, 200, misfortunes=1)
    scenario.write(tmp_path)
    first = compact_ledger(read_in_process, tmp_path)
    found = analyse(spark, first, Prices(), horizon_min=HORIZON_MIN, tell=lambda _: None)
    assert kept(compact_ledger(read_in_process, tmp_path)) == found
    segment = next(tmp_path.glob("*.jsonl"))
    with segment.open("ab") as file:
        file.write(b"not a record\n")
    assert kept(compact_ledger(read_in_process, tmp_path)) is None


def running(compacted: CompactedLedger, name: str, roles: list[str]) -> CompactedLedger:
    """The same ledger, with a process that runs."""
    manifest = msgspec.structs.replace(
        compacted.manifest, processes=compacted.manifest.processes | {name: Process(roles=roles)}
    )
    return replace(compacted, manifest=manifest, running=frozenset([name]))


@pytest.mark.parametrize(
    "changed",
    [
        lambda ledger: replace(ledger, running=frozenset([CLIENT])),
        lambda ledger: replace(ledger, expected=(ExpectedWriter(host="absent"),)),
        lambda ledger: replace(ledger, pruned={CLIENT: PrunedProcess()}),
        lambda ledger: running(ledger, CLIENT, ["client"]),
    ],
    ids=["a process runs", "a writer is expected", "records were pruned", "another process"],
)
def test_they_do_not_count_if_anything_differs(
    changed: Callable[[CompactedLedger], CompactedLedger], findings: Findings, compacted: CompactedLedger
) -> None:
    assert kept(compacted) == findings
    assert kept(changed(compacted)) is None


def test_another_horizon_other_prices_or_other_code_ask_spark(
    findings: Findings, compacted: CompactedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept(compacted) == findings
    assert kept(compacted, horizon_min=HORIZON_MIN + 1) is None
    assert kept(compacted, Prices(as_of="another day")) is None
    monkeypatch.setattr(kept_findings, "_code_digest", lambda: "other")
    assert kept(compacted) is None


def test_files_that_were_made_again_do_not_count(findings: Findings, compacted: CompactedLedger) -> None:
    file = compacted.store.path() / compacted.manifest.files[0]
    before = file.stat()
    assert kept(compacted) == findings
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert kept(compacted) is None
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert kept(compacted) == findings


@pytest.mark.parametrize(("roles", "counts"), [(["client"], True), (["namespace"], False), ([], False)])
def test_while_a_namespace_writes_the_time_of_reading_counts(
    roles: list[str], *, counts: bool, findings: Findings, compacted: CompactedLedger, tmp_path: Path
) -> None:
    """What it acknowledged a moment ago may not be written yet; a quarter of an hour later that is a loss."""
    now = replace(running(compacted, NAMESPACE, roles), store=LocalFolder(tmp_path))
    for file in now.manifest.files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    kept_findings.save(now, Prices(), findings, horizon_min=HORIZON_MIN)
    assert kept(now) == findings
    assert (kept(replace(now, read_ms=now.read_ms + 900_000)) == findings) is counts


def test_a_damaged_file_is_no_answer(findings: Findings, compacted: CompactedLedger) -> None:
    file = compacted.store.path() / kept_findings.NAME
    whole = file.read_bytes()
    file.write_bytes(whole[:-40])
    assert kept(compacted) is None
    file.write_bytes(whole)
    assert kept(compacted) == findings
