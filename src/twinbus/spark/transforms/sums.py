"""Sums that can be merged: those of parts of the rows, in any order, add up to those of the whole.

A table of sums says for each column what a row adds and how two values become one. `add_up` makes the columns of rows,
`merge_parts` of rows that were added up before: both from the same table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812


class Sum(NamedTuple):
    """How two values become one (null is no value), and what a row adds."""

    how: Literal["sum", "min", "max"]
    value: Column

    def of(self, value: Column) -> Column:
        combined: Column = getattr(F, self.how)(value)
        return combined


Sums = dict[str, Sum]
"""By the name of the column."""


def add_up(rows: DataFrame, by: Sequence[str], sums: Sums) -> DataFrame:
    """One row for all that agree in `by`."""
    return rows.groupBy(*by).agg(*(each.of(each.value).alias(name) for name, each in sums.items()))


def merge_parts(parts: DataFrame, by: Sequence[str], sums: Sums) -> DataFrame:
    """The same, from rows that `add_up` made of parts."""
    return parts.groupBy(*by).agg(*(each.of(F.col(name)).alias(name) for name, each in sums.items()))
