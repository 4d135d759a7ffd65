"""The reference pages are what the code says."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from twinbus.client.metrics import METRICS
from twinbus.client.news import NewsName
from twinbus.client.options import PairedNamespaceOptions, Retry, SendAvailabilityPairedNamespaceOptions
from twinbus.client.reference import PAGES, docs_of, is_fresh, write

FOLDER = Path(__file__).parent.parent.parent / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_fresh(name: str) -> None:
    assert is_fresh(FOLDER / name, PAGES[name]()), "stale: run python -m twinbus.client.reference docs/reference"


def test_writing_mends_a_stale_page_and_leaves_a_fresh_one(tmp_path: Path) -> None:
    assert [path.name for path in write(tmp_path)] == list(PAGES)
    (tmp_path / "events.md").write_text("old")
    assert write(tmp_path) == [tmp_path / "events.md"]
    assert write(tmp_path) == []


def test_everything_there_is_has_a_line_of_its_own() -> None:
    pages = {name: write_page() for name, write_page in PAGES.items()}
    for option in fields(SendAvailabilityPairedNamespaceOptions):
        assert pages["options.md"].count(f"\n| `{option.name}` |") == 1
    for name in NewsName:
        assert pages["events.md"].count(f"\n| `{name}` |") == 1
    for metric in METRICS:
        assert pages["metrics.md"].count(f"\n| `{metric.name}` |") == 1


def test_every_option_and_event_says_what_it_is() -> None:
    options = docs_of(PairedNamespaceOptions) | docs_of(SendAvailabilityPairedNamespaceOptions)
    assert list(options) == [option.name for option in fields(SendAvailabilityPairedNamespaceOptions)]
    assert list(docs_of(Retry)) == [option.name for option in fields(Retry)]
    assert list(docs_of(NewsName)) == list(NewsName.__members__)
