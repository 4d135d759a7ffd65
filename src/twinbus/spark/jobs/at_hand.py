"""Little data, handled in this process with Arrow: Spark would take longer to begin than this takes to end.

What a row means, and what it adds, Spark has said before (`transforms.sums`). Here rows are only added up, put beside
each other, and written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from twinbus.spark.transforms.sums import Sums

WAYS = {"sum": pc.ScalarAggregateOptions(min_count=1), "min": None, "max": None}
"""Of nothing at all they are nothing, as in Spark."""


def put_together(parts: Any, by: Sequence[str], sums: Sums) -> Any:
    """`transforms.sums.put_together`, of an Arrow table; `by` and the sums in the order of its columns."""
    wanted = [(name, total.how, WAYS[total.how]) for name, total in sums.items()]
    added = parts.group_by(list(by)).aggregate(wanted)
    names = {f"{name}_{total.how}": name for name, total in sums.items()}
    renamed = added.rename_columns([names.get(name, name) for name in added.column_names])
    return renamed.select([name for name in parts.column_names if name in renamed.column_names])


def read(store: Path, files: Sequence[str], schema: Any) -> Any:
    """These columns of at least one file."""
    return pa.concat_tables(pq.read_table(store / file, columns=schema.names).cast(schema) for file in files)


def write(table: Any, file: Path) -> None:
    """The rows as a file, which is whole after a power cut too if its name is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as opened:
        pq.write_table(table, opened, compression="snappy")
        opened.flush()
        os.fsync(opened.fileno())


def split(table: Any, at: Any) -> list[Any]:
    """The rows in parts; `at` says for each row in which."""
    return [table.filter(pa.array(at == part)) for part in np.unique(at)]


def rows_with(table: Any, by: Sequence[str], wanted: Any) -> Any:
    """For each row of a table whether `wanted` has one that agrees with it in the whole numbers of `by`."""
    numbered = table.select(by).append_column("row", pa.array(np.arange(len(table))))
    found = numbered.join(wanted.select(by), keys=list(by), join_type="left semi")["row"].to_numpy()
    return _marked(len(table), found)


def rows_naming(lists: Any, names: set[str]) -> Any:
    """For each list of texts whether it has one of the names."""
    is_wanted = pc.is_in(pc.list_flatten(lists), value_set=pa.array(sorted(names), pa.string()))
    return _marked(len(lists), pc.list_parent_indices(lists).filter(is_wanted).to_numpy())


def _marked(rows: int, some: Any) -> Any:
    marks = np.zeros(rows, dtype=bool)
    marks[some] = True
    return pa.array(marks)
