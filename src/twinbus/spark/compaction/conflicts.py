"""Conflicts: records with a number that was read before, and another content."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from twinbus.errors import StoreError
from twinbus.spark.compaction.steps import STEP_SCHEMA, to_steps
from twinbus.storage import Folder

NOT_COMPARED = ("at_ms",)
"""Times are corrected in the store; the monotonic clock of a record is compared as well."""


class SeenChecksums:
    """The checksums of the records that a chunk had so far."""

    def __init__(self) -> None:
        self._crcs: dict[str, list[tuple[Any, Any]]] = {}

    def add(self, process: str, table: Any) -> None:
        self._crcs.setdefault(process, []).append((table["number"].to_numpy(), table["crc"].to_numpy()))

    def find_conflicts(self, process: str, repeats: Any, beside: Any) -> set[int]:
        """The numbers of repeated records whose checksum differs from that of the first, in this chunk."""
        pairs = [*self._crcs.get(process, []), (beside["number"].to_numpy(), beside["crc"].to_numpy())]
        number = np.concatenate([pair[0] for pair in pairs])
        crc = np.concatenate([pair[1] for pair in pairs])
        order = np.argsort(number, kind="stable")
        number, crc = number[order], crc[order]
        wanted, theirs = repeats["number"].to_numpy(), repeats["crc"].to_numpy()
        if not len(number):
            return set()
        at = np.minimum(np.searchsorted(number, wanted), len(number) - 1)
        return set(wanted[(number[at] == wanted) & (crc[at] != theirs)].tolist())


def find_conflicts_in_files(store: Folder, files: list[str], process: str, repeats: Any) -> set[int]:
    """The numbers of repeated records that files of the store have with another content.

    Raises `StoreError` if a file cannot be read.
    """
    found: set[int] = set()
    for file in files:
        try:
            known = _steps_in(store, file, process, repeats["number"])
        except (OSError, pa.ArrowInvalid) as error:
            again = f"remove {store.url} and compact again"
            raise StoreError(f"{store.where(file)} cannot be read: {error}; {again}") from error
        if known.num_rows:
            again = to_steps(repeats).select(known.column_names)
            found |= _different(known, again.filter(pc.is_in(again["number"], pc.unique(known["number"]))))
    return found


def _steps_in(store: Folder, file: str, process: str, numbers: Any) -> Any:
    bounds = pc.min_max(numbers).as_py()
    where = [("process", "==", process), ("number", ">=", bounds["min"]), ("number", "<=", bounds["max"])]
    fs, root = store.arrow_filesystem()
    path = f"{root}/{file}"
    names = pq.read_schema(path, filesystem=fs).names
    there = [name for name in names if name in STEP_SCHEMA.names and name not in NOT_COMPARED]
    # Without partitioning: the folder `date=...` would add a column.
    table = pq.read_table(path, columns=there, filters=where, partitioning=None, filesystem=fs)
    return table.filter(pc.is_in(table["number"], pc.unique(numbers)))


def _different(known: Any, again: Any) -> set[int]:
    order = [("number", "ascending"), ("position", "ascending")]
    known, again = known.sort_by(order), again.sort_by(order)
    if known.equals(again.cast(known.schema)):
        return set()
    ours, theirs = _by_number(known), _by_number(again)
    return {number for number, rows in theirs.items() if ours[number] != rows}


def _by_number(steps: Any) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in steps.to_pylist():
        found.setdefault(row["number"], []).append(row)
    return found
