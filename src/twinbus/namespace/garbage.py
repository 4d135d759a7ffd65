"""When Python looks for garbage that refers to itself: everybody waits while it looks."""

from __future__ import annotations

import gc

NEW_OBJECTS, LOOKS_AT_NEW, LOOKS_AT_OLDER = 10_000, 3, 260
"""A look walks all objects that are new since the last look of its kind: some 40,000 at most, about 10 milliseconds."""


def collect_seldom() -> None:
    """Look for garbage less often: messages never refer to themselves, and a look walks all that are under way."""
    gc.collect()
    gc.freeze()  # modules and settings stay for good
    gc.set_threshold(NEW_OBJECTS, LOOKS_AT_NEW, LOOKS_AT_OLDER)
