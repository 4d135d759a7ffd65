"""`docs/reference/compare.md`: every cell about us is shown by a test that is there, every source is listed."""

from __future__ import annotations

import re

import pytest
from doc_blocks import DOCS, ROOT

from twinbus.broker.entities.settings import SIZE_MB_MAX
from twinbus.broker.faults.catalogue import KINDS
from twinbus.broker.limits import ServerLimits, TrafficLimits

TEXT = (DOCS / "reference" / "compare.md").read_text(encoding="utf-8")
TABLES, SOURCES = TEXT.split("## Sources")
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+(?:::\w+)?)`", TABLES)))
UNPROVEN = {"JMS", "for production"}
"""Rows in which nothing is claimed of us."""


@pytest.mark.parametrize("test", NAMED)
def test_what_is_said_of_us_is_shown_by_a_test(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_every_row_about_the_emulator_names_its_test() -> None:
    rows = [line.strip("| ").split(" | ") for line in TABLES.split("## Beside other")[0].splitlines() if "| " in line]
    assert {row[0] for row in rows[1:] if "`tests/" not in row[-1]} == UNPROVEN


@pytest.mark.parametrize(
    ("feature", "said"),
    [
        ("connections", f"{ServerLimits().connections:,}, can be set"),
        ("size of a message", f"{TrafficLimits().message_bytes_max // 1024} KB, can be set"),
        ("size of a queue", f"as set, up to {SIZE_MB_MAX // 1024} GB"),
        ("failing on purpose", f"yes, {len(KINDS)} kinds"),
    ],
)
def test_numbers_about_us_are_those_of_the_code(feature: str, said: str) -> None:
    assert f"| {feature} | {said} |" in TABLES


def test_every_source_that_is_named_is_listed_with_its_address() -> None:
    used = set(re.findall(r"\[([A-Z]\d)\]", TABLES))
    listed = dict(re.findall(r"\[([A-Z]\d)\] \[[^]]+\]\((https://[^)]+)\)", SOURCES))
    assert used == set(listed)
