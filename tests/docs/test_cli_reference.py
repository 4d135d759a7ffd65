"""The reference pages about commands, errors and faults are what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages.command_pages import PAGES, every_error, when_and_what_to_do, write
from pages.pairing_pages import is_fresh
from twinbus.broker.faults.catalogue import KINDS
from twinbus.cli.exit_codes import ExitCode
from twinbus.errors import TwinbusError

FOLDER = Path(__file__).parent.parent.parent / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_fresh(name: str) -> None:
    assert is_fresh(FOLDER / name, PAGES[name]()), "stale: run make pages"


def test_writing_mends_a_stale_page_and_leaves_a_fresh_one(tmp_path: Path) -> None:
    assert [path.name for path in write(tmp_path)] == list(PAGES)
    (tmp_path / "errors.md").write_text("old")
    assert write(tmp_path) == [tmp_path / "errors.md"]
    assert write(tmp_path) == []


@pytest.mark.parametrize("error", every_error(), ids=lambda error: error.__name__)
def test_an_error_says_when_it_comes_and_what_to_do(error: type[TwinbusError]) -> None:
    when, advice = when_and_what_to_do(error)
    assert when.endswith(".")
    assert advice.endswith(".")
    assert PAGES["errors.md"]().count(f"\n| `{error.__name__}` |") == 1
    assert (
        f" {error.__name__}" in PAGES["errors.md"]().partition("```text")[2].partition("```")[0]
        or error is TwinbusError
    )


def test_every_fault_and_every_exit_code_has_a_place() -> None:
    for kind in KINDS:
        assert PAGES["faults.md"]().count(f"\n## {kind}\n") == 1
        assert f"twinbus fault add {kind}" in PAGES["faults.md"]()
    for code in ExitCode:
        assert PAGES["cli.md"]().count(f"\n| {int(code)} |") == 1
