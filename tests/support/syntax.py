"""Syntax trees of source files, for tests that look at them."""

from __future__ import annotations

import ast

TRIES = 10


def parsed(source: str) -> ast.Module:
    """As `ast.parse`, in a process with other threads.

    CPython 3.11 raises SystemError if another thread parses at the same time, as one does that formats a traceback.
    """
    for _ in range(TRIES):
        try:
            return ast.parse(source)
        except SystemError:
            continue
    raise AssertionError(f"somebody else parsed at the same time, {TRIES} times in a row")
