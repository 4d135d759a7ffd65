"""A ledger that is read by several processes makes the same store as one that is read by this one."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from scripted_ledger import make_scenario

from twinbus.errors import StoreError
from twinbus.spark.compaction import reading_processes
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.compaction.reading_processes import read_in_processes


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_scenario(3, 600, misfortunes=1).write(tmp_path / "ledger")
    monkeypatch.setattr(reading_processes, "LITTLE_BYTES", 0)
    return tmp_path / "ledger"


def test_several_processes_make_the_same_store(ledger: Path, tmp_path: Path) -> None:
    alone = compact_ledger(read_in_process, ledger, tmp_path / "alone")
    together = compact_ledger(read_in_processes, ledger, tmp_path / "together")
    assert alone.manifest.steps
    assert msgspec.to_builtins(together.manifest) == msgspec.to_builtins(alone.manifest)
    for file in alone.manifest.files:
        assert (together.store.path() / file).read_bytes() == (alone.store.path() / file).read_bytes()


def test_a_store_that_cannot_be_written_is_not_a_defect_of_the_ledger(ledger: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "steps").write_text("in the way")
    with pytest.raises(StoreError, match="steps cannot be read"):
        compact_ledger(read_in_processes, ledger, tmp_path / "store")


def test_a_process_that_ends_is_reported(ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StoreError, match="ended"):
        compact_ledger(read_in_processes, ledger, tmp_path / "store")
