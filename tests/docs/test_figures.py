"""Figures on pages are those of the latest `make bench` that has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doc_blocks import DOCS, ROOT

from pages import proxy_figures, spark_figures
from pages.proxy_figures import page_with_table


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
    assert page == page_with_table(page, spark_figures.TABLES[name]()), "stale: run make pages"


def test_what_a_proxy_costs_is_as_measured() -> None:
    page = (DOCS / "how-to" / "any-language.md").read_text(encoding="utf-8")
    assert page == page_with_table(page, proxy_figures.table()), "stale: run make pages"
