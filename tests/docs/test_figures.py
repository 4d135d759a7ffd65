"""Figures on pages are those of the latest `make bench` that has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doc_blocks import DOCS, ROOT

from pages import proxy_figures, spark_figures
from pages.proxy_figures import page_with


def measured(name: str) -> dict[str, Any]:
    runs = (ROOT / "bench" / "results" / "bench.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for run in runs for row in json.loads(run).get("rows", []) if row["row"] == name]
    return dict(rows[-1])


@pytest.mark.parametrize("row", ["100,000 home", "100,000 home, Spark local[2,4]"])
def test_messages_a_second_are_those_of_the_best_round(row: str) -> None:
    found = measured(row)
    assert found["twinbus_per_s"] == max(found["twinbus_rounds"]), "as docs/how-to/spark-or-syphon.md says"


@pytest.mark.parametrize("name", spark_figures.TABLES)
def test_what_spark_takes_is_as_measured(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    assert proxy_figures.BEGIN in page
    assert page == spark_figures.page_with_figures(name, page), "stale: run make pages"


def test_ways_home_that_were_not_measured_are_not_in_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_figures, "latest_rows", dict)
    assert spark_figures.processes_table() == "`make bench` has not measured this yet."


def test_ways_home_are_told_by_the_rows_that_the_bench_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, dict[str, float]] = {}
    for way in spark_figures.WAYS_HOME:
        name = f"100,000 home, {way}"
        found |= {name: {"twinbus_per_s": 25_000}, f"{name}, start to end": {"twinbus_per_s": 20_000}}
        found |= {f"{name}: CPU of what moves": {"value": 30.0}, f"{name}: CPU of both namespaces": {"value": 20.0}}
    monkeypatch.setattr(spark_figures, "latest_rows", lambda: found)
    *_, last = spark_figures.processes_table().splitlines()
    assert last == "| `drain` | 25,000 a second | 20,000 a second | 30 µs | 20 µs |"


def test_what_a_proxy_costs_is_as_measured() -> None:
    page = (DOCS / "how-to" / "any-language.md").read_text(encoding="utf-8")
    assert page == page_with(page, proxy_figures.table()), "stale: run make pages"
