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

SECONDS = 3.0
GROWN_BYTES_MAX = 160 * 1024 * 1024
P99_S_MAX = 0.05


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with Served("attacked", tmp_path, "--queue", QUEUE, "--queue", NEIGHBOURS_QUEUE) as served:
        yield Target(served)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_neither_takes_memory_nor_time_of_a_neighbour(target: Target, name: str) -> None:
    found = target.under(name, SECONDS)
    assert found.grown_bytes < GROWN_BYTES_MAX
    assert found.p99_s < max(P99_S_MAX, 3 * found.calm_p99_s)
