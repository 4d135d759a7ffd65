"""Nobody takes a namespace down: memory stays bounded, and a neighbour notices nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Served

sys.path.insert(0, str(Path(__file__).parent))

from attacks import ATTACKS, QUEUE
from target import NEIGHBOURS_QUEUE, Target

SECONDS = 1.5
"""`make attack` takes more time for each, and writes the table of docs/security.md."""
PAGE = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with Served("attacked", tmp_path, "--queue", QUEUE, "--queue", NEIGHBOURS_QUEUE) as served:
        yield Target(served)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_takes_neither_much_memory_nor_a_neighbours_time(target: Target, name: str) -> None:
    assert target.under(name, SECONDS).problems() == []


def test_the_page_has_a_row_for_each_attack() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [attack.name for attack in ATTACKS.values() if f"| {attack.does} |" not in page] == []
