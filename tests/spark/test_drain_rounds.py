"""A round of tasks, with jobs that are not Spark's: whose failure ends what."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.errors import TwinbusError
from twinbus.spark.access import Access
from twinbus.spark.drain import rounds
from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.drain.plan import Shard
from twinbus.spark.drain.rounds import run_round
from twinbus.spark.drain.shard import ShardReport

SHARDS = [Shard(number, (number,)) for number in range(3)]
ACCESS = Access("env:NAME")
OPTIONS = DrainOptions(primary=ACCESS, secondary=ACCESS, primary_name="contoso")
SPARK: Any = SimpleNamespace(conf={})


def round_of(monkeypatch: pytest.MonkeyPatch, job: Callable[[Shard], ShardReport]) -> list[ShardReport]:
    monkeypatch.setattr(rounds, "_run_job", lambda _spark, _options, shard, _tag: job(shard))
    return run_round(SPARK, OPTIONS, SHARDS, every_s=0.01, look=lambda: None)


def test_a_job_that_fails_ends_no_other_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def job(shard: Shard) -> ShardReport:
        if shard.number == 1:
            raise TwinbusError("Spark gave up: failed 4 times")
        return ShardReport(shard.number, 0, "host:1", moved=10)

    reports = round_of(monkeypatch, job)
    assert [report.moved for report in reports] == [10, 0, 10]
    assert [report.trouble for report in reports] == ["", "Spark gave up: failed 4 times", ""]


def test_if_all_fail_the_round_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def job(_shard: Shard) -> ShardReport:
        raise TwinbusError("executors have no twinbus")

    with pytest.raises(TwinbusError, match="executors have no twinbus"):
        round_of(monkeypatch, job)


def test_a_mistake_of_ours_is_not_taken_for_a_failure_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def job(shard: Shard) -> ShardReport:
        if shard.number == 2:
            raise ValueError("a mistake")
        return ShardReport(shard.number, 0, "host:1")

    with pytest.raises(ValueError, match="a mistake"):
        round_of(monkeypatch, job)
