"""Outputs that pages show, compared with what the program prints.

A block of text is the output of the shell block above it if it has the mark `<!-- output: lines -->`: each of its
lines is printed, in this order, and others may stand between; with `<!-- output: all -->` nothing else is printed.
Anything else that is shown as text says what it is: `<!-- not output: a grammar -->`.

One rule says what may differ (`comparable`): lengths of time, sizes with a unit, times of day, addresses, ids, the
number of a backlog queue, and how wide columns are; a line that ends with `...` goes on.
Everything else, counts above all, is as the program prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from doc_blocks import Block

_UNITS = r"(?:ns|us|µs|ms|s|sec|min|h|d|B|KB|MB|GB|KiB|MiB|GiB)"
_MAY_DIFFER = [
    (
        re.compile(
            r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?|\b\d\d:\d\d:\d\d(?:\.\d+)?"
        ),
        "TIME",
    ),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"\b[\w.-]*[\w]:\d{2,5}\b"), "ADDRESS"),
    (re.compile(r"(x-servicebus-transfer/)\d+\b(?!\.\.)"), r"\1N"),
    (re.compile(rf"\b\d[\d,]*(?:\.\d+)? ?{_UNITS}\b(?: \d[\d,.]* ?{_UNITS}\b)*"), "LENGTH"),
    (re.compile(r"\s+"), " "),
]


def comparable(line: str) -> str:
    """A line without what may differ from run to run."""
    for pattern, stands_for in _MAY_DIFFER:
        line = pattern.sub(stands_for, line)
    return line.strip()


def outputs_below(blocks: Iterable[Block]) -> Iterator[tuple[Block, Block]]:
    """Each shell block with the block of text that shows its output."""
    above: Block | None = None
    for block in blocks:
        if block.language == "sh":
            above = block
        elif "output" in block.marks:
            assert above is not None, f"{block}: there is no command above it"
            yield above, block


def difference(shown: Block, printed: str) -> str | None:
    """What is shown and was not printed, or not in this order; None if there is nothing."""
    got = [comparable(line) for line in printed.splitlines() if line.strip() and not line.startswith("@@ ")]
    wanted = [line for line in shown.code.splitlines() if line.strip()]
    if shown.marks["output"] == "all" and len(wanted) != len(got):
        return f"{shown} shows\n{shown.code}but this was printed:\n{printed}"
    left = iter(got)
    for line in wanted:
        if not any(_is_shown_as(line, other) for other in left):
            return f"{shown} shows this, which was not printed, or not in this order:\n{line}\nPrinted was:\n{printed}"
    return None


def _is_shown_as(shown: str, printed: str) -> bool:
    start = comparable(shown)
    return printed.startswith(start[:-3]) if start.endswith("...") else printed == start
