"""When Python looks for garbage that refers to itself: everybody waits while it looks."""

from __future__ import annotations

import gc
from collections.abc import Callable

NEW_OBJECTS, LOOKS_AT_NEW, LOOKS_AT_OLDER = 10_000, 3, 260
"""A look walks all objects that are new since the last look of its kind: some 40,000 at most, about 10 milliseconds."""

CONNECTIONS_PER_LOOK = 250
"""What these leave is about 1.5 MB. With more, to give it back would take too long."""


class Gone:
    """Counts connections that are gone: each leaves some 60 objects that refer to each other, about 6 KB.

    Python counts objects, not bytes, and would not look at old ones before there are ten million new ones.
    """

    def __init__(self, collect: Callable[[], object] = gc.collect) -> None:
        self._collect = collect
        self._count = 0

    def one_more(self) -> None:
        """Another one is gone. After very many, look for all that they left."""
        self._count += 1
        if self._count >= CONNECTIONS_PER_LOOK:
            self._count = 0
            self._collect()


def collect_seldom() -> None:
    """Look for garbage less often: messages never refer to themselves, and a look walks all that are under way."""
    gc.collect()
    gc.freeze()  # modules and settings stay for good
    gc.set_threshold(NEW_OBJECTS, LOOKS_AT_NEW, LOOKS_AT_OLDER)
