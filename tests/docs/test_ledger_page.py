"""The reference page of the ledger is the one that its schema makes."""

from __future__ import annotations

from pathlib import Path

from pages.ledger_page import reference_page
from twinbus.ledger.kinds import Kind
from twinbus.ledger.schema import described_fields

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "ledger.md"


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_page(), "stale: run make pages"


def test_every_kind_and_every_field_is_on_the_page() -> None:
    rows = [line for line in reference_page().splitlines() if line.startswith("| `")]
    for name in [*Kind, *described_fields()]:
        assert any(row.startswith(f"| `{name}` |") for row in rows), name
