"""SQL actions as text."""

from __future__ import annotations

from collections.abc import Iterable

from twinbus.broker.filters.formatter import write
from twinbus.broker.filters.syntax import Set, Statement


def write_action(statements: Iterable[Statement]) -> str:
    """Statements as text; parsing the text gives the same statements."""
    return " ".join(
        f"SET {write(each.target)} = {write(each.value)};" if isinstance(each, Set) else f"REMOVE {write(each.target)};"
        for each in statements
    )
