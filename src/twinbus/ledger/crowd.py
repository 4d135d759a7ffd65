"""Is a ledger about to be full? Writers stop when the segments of their folder take up too much."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from twinbus.ledger.options import LedgerOptions
from twinbus.ledger.segment import CROWDED

USUAL_MAX: int = next(each.default for each in fields(LedgerOptions) if each.name == "directory_bytes_max")  # type: ignore[assignment]


def crowded(segments: Iterable[Path]) -> list[str]:
    """A line for each folder whose segments have nearly reached the usual limit of a writer, or passed it."""
    used: dict[Path, int] = {}
    for path in segments:
        with suppress(OSError):  # moved away meanwhile
            used[path.parent] = used.get(path.parent, 0) + path.stat().st_size
    return [
        f"the segments in {folder} take up {taken:,} bytes; unless directory_bytes_max says otherwise, writers stop at "
        f"{USUAL_MAX:,}: twinbus ledger prune makes room"
        for folder, taken in used.items()
        if taken >= CROWDED * USUAL_MAX
    ]
