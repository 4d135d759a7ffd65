"""Which JVM a report asks for: one that is there sooner if it is soon done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripted_ledger import make_scenario

from twinbus.errors import StoreError
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.jobs import balance as balances
from twinbus.spark.jobs.balance import Balance, settings_for_ledger
from twinbus.spark.session import QUICK_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_ledger_that_was_looked_at_needs_no_patient_jvm_for_a_report_but_for_looking_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_scenario(1, 300, misfortunes=1).write(tmp_path)
    assert settings_for_ledger(tmp_path, None) == QUICK_START, "there is little"
    store = compact_ledger(read_in_process, tmp_path)
    monkeypatch.setattr(balances, "QUICK_STEPS", 10)
    assert settings_for_ledger(tmp_path, None) == {}, "nobody has looked at it"
    balances.save(store.store, Balance(folded=store.manifest.files, steps=store.manifest.steps, homes=["contoso"]))
    assert settings_for_ledger(tmp_path, None) == QUICK_START
    assert settings_for_ledger(tmp_path, None, uses_balance=False) == {}


def test_much_that_is_new_needs_a_jvm_that_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_scenario(1, 300, misfortunes=1).write(tmp_path)
    monkeypatch.setattr(balances, "LITTLE_BYTES", 10)
    assert settings_for_ledger(tmp_path, None) == {}


def test_a_ledger_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        settings_for_ledger(tmp_path / "none", None)


def test_a_jvm_that_is_soon_there_has_room_for_all_that_it_compiles(spark: SparkSession) -> None:
    """48 MB are what a JVM has that compiles quickly; once they were full, one ended in the middle of a report."""
    beans = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()  # type: ignore[union-attr]
    rooms = [bean.getUsage().getMax() for bean in beans if "Code" in bean.getName()]
    assert sum(rooms) >= 200 << 20
