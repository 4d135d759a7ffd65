"""The reference pages are what the code says."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from pages.pairing_pages import PAGES, docs_of, is_fresh, write
from twinbus import deprecated
from twinbus.client.options import PairedNamespaceOptions, Retry, SendAvailabilityPairedNamespaceOptions
from twinbus.client.reporting.events import PairEventName
from twinbus.client.reporting.metrics import METRICS

FOLDER = Path(__file__).parent.parent.parent / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_fresh(name: str) -> None:
    assert is_fresh(FOLDER / name, PAGES[name]()), "stale: run make pages"


def test_writing_mends_a_stale_page_and_leaves_a_fresh_one(tmp_path: Path) -> None:
    assert [path.name for path in write(tmp_path)] == list(PAGES)
    (tmp_path / "events.md").write_text("old")
    assert write(tmp_path) == [tmp_path / "events.md"]
    assert write(tmp_path) == []


def test_everything_there_is_has_a_line_of_its_own() -> None:
    pages = {name: write_page() for name, write_page in PAGES.items()}
    for option in fields(SendAvailabilityPairedNamespaceOptions):
        assert pages["options.md"].count(f"\n| `{option.name}` |") == 1
    for name in PairEventName:
        assert pages["events.md"].count(f"\n| `{name}` |") == 1
    for metric in METRICS:
        assert pages["metrics.md"].count(f"\n| `{metric.name}` |") == 1
    tables = (deprecated.NAMES, deprecated.ATTRIBUTES, deprecated.MODULES, deprecated.METRICS)
    for old, new in [each for table in tables for each in table.items()]:
        assert pages["deprecated.md"].count(f"\n| `{old}` | `{new}` |") == 1


def test_every_option_and_event_says_what_it_is() -> None:
    options = docs_of(PairedNamespaceOptions) | docs_of(SendAvailabilityPairedNamespaceOptions)
    assert list(options) == [option.name for option in fields(SendAvailabilityPairedNamespaceOptions)]
    assert list(docs_of(Retry)) == [option.name for option in fields(Retry)]
    assert list(docs_of(PairEventName)) == list(PairEventName.__members__)
