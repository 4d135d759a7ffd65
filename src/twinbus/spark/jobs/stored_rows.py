"""How many rows Parquet files have, and between which values, without Spark: only their ends are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from twinbus.storage import Folder

AT_ONCE = 8


def rows_in(store: Folder, files: Collection[str]) -> dict[str, int]:
    """How many rows each file has. Raises `OSError`, or an error of Arrow for one that is not Parquet."""
    return {file: int(end.num_rows) for file, end in _ends(store, files)}


def least(store: Folder, files: Collection[str], column: str) -> int | None:
    """The smallest value of a column of numbers in the files; None if they have no rows, or do not say it."""
    found = [value for _, end in _ends(store, files) for value in _least_values(end, column)]
    return min(found, default=None)


def _ends(store: Folder, files: Collection[str]) -> Iterator[tuple[str, Any]]:
    fs, root = store.arrow_filesystem()

    def end(file: str) -> Any:
        return pq.read_metadata(f"{root}/{file}", filesystem=fs)

    if store.is_local:
        yield from ((file, end(file)) for file in files)
        return
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        yield from zip(files, at_once.map(end, files), strict=True)


def _least_values(end: Any, column: str) -> Iterator[int]:
    at = end.schema.names.index(column)
    for group in range(end.num_row_groups):
        statistics = end.row_group(group).column(at).statistics
        if statistics is not None and statistics.has_min_max:
            yield statistics.min
