"""Figures on pages are those of the latest `make bench` that has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doc_blocks import DOCS, ROOT

from pages.proxy_figures import page_with_table

PAGE = (DOCS / "how-to" / "spark-or-syphon.md").read_text(encoding="utf-8")


def measured(name: str) -> dict[str, Any]:
    runs = (ROOT / "bench" / "results" / "bench.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for run in runs for row in json.loads(run).get("rows", []) if row["row"] == name]
    return dict(rows[-1])


@pytest.mark.parametrize("row", ["100,000 home", "100,000 home, Spark local[2,4]"])
def test_messages_a_second_are_as_measured(row: str) -> None:
    found = measured(row)
    assert found["twinbus_per_s"] == max(found["twinbus_rounds"])  # the page says: best of three
    assert f" {found['twinbus_per_s']:,} messages a second |" in PAGE


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("Spark: start of the session", "{:.1f} s"),
        ("Spark: first job, 1,000 home", "{:.1f} s for the first job of 1,000 messages"),
        ("100,000 home: memory of the syphon", "{:.0f} MB"),
        ("1,000,000 home: memory, beside 100,000", "{:.2f} times as much"),
    ],
)
def test_other_figures_are_as_measured(row: str, text: str) -> None:
    assert text.format(measured(row)["value"]) in PAGE


def test_what_a_proxy_costs_is_as_measured() -> None:
    page = (DOCS / "how-to" / "any-language.md").read_text(encoding="utf-8")
    assert page == page_with_table(page), "stale: run make pages"
