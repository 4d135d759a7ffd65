"""`docs/conformance.md` as data: each clause, how far it is done, and the tests that prove it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "conformance.md"
STATUSES = ("done", "partly", "not yet")
_ROW = re.compile(r"^\| ([SAPCDX]\d+) \| ([^|]+) \| ([^|]+) \|([^|]*)\|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[^`]+)`")


class Clause(NamedTuple):
    name: str
    """As in the specification, e.g. P16."""
    status: str
    """One of `STATUSES`; empty if the page says something else."""
    tests: tuple[str, ...]
    """Those that prove it, as pytest names them."""

    @property
    def is_claimed(self) -> bool:
        """Whether at least a part of it is said to hold."""
        return self.status in ("done", "partly")


def read_clauses() -> list[Clause]:
    """Every row of the page, in its order."""
    return [_clause(row) for row in _ROW.finditer(PAGE.read_text(encoding="utf-8"))]


def _clause(row: re.Match[str]) -> Clause:
    name, _, claim, proof = row.groups()
    status = next((each for each in STATUSES if claim.strip().startswith(each)), "")
    return Clause(name, status, tuple(_TEST.findall(proof)))
