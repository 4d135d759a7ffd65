"""The page about rules says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from twinbus.broker.filters.actions import compile_action
from twinbus.broker.filters.compiler import compile_filter
from twinbus.broker.filters.parser import DEPTH, STATEMENTS, TEXT_LENGTH
from twinbus.broker.filters.properties import ALIASES, SYSTEM_PROPERTIES
from twinbus.broker.filters.tokenizer import KEYWORDS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "sql-filters.md").read_text(encoding="utf-8")


def test_the_examples_on_the_page_are_rules() -> None:
    *rules, grammar = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(rules) == 2
    assert grammar.startswith("filter ")
    for rule in rules:
        compile_action(rule) if rule.startswith("SET") else compile_filter(rule)


def test_the_page_lists_every_keyword_and_every_limit() -> None:
    listed = re.search(r"^Keywords: `(.*?)`", PAGE, re.MULTILINE)
    assert listed is not None
    assert set(listed[1].split()) == KEYWORDS
    for limit in (f"{TEXT_LENGTH:,}", str(STATEMENTS), str(DEPTH)):
        assert f"| {limit} |" in PAGE


def test_the_page_lists_every_system_property_and_whether_it_can_be_set() -> None:
    table = PAGE.partition("| name | also |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    settable = {name: row[3].startswith("yes") for row in rows for name in row[0].split(", ")}
    assert settable == {name: known.settable for name, known in SYSTEM_PROPERTIES.items()}
    assert {name for row in rows for name in row[1].split(", ") if name} == set(ALIASES)
