"""Sums that can be put together: of any parts of the rows, in any order, they come to what they are of the whole.

Each row is first turned into what it adds. Then it does not matter who adds up: Spark where there is much, and where
there is little whoever is nearest, because for it a name of how two values become one is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812


class Sum(NamedTuple):
    """How two values become one, nothing being no value; and what a row adds."""

    how: Literal["sum", "min", "max"]
    value: Column

    def of(self, value: Column) -> Column:
        combined: Column = getattr(F, self.how)(value)
        return combined


Sums = dict[str, Sum]
"""By the name of the column."""


def each(rows: DataFrame, by: Sequence[str], sums: Sums) -> DataFrame:
    """What every row adds, one by one."""
    return rows.select(*by, *(total.value.alias(name) for name, total in sums.items()))


def added_up(rows: DataFrame, by: Sequence[str], sums: Sums) -> DataFrame:
    """One row for all that agree in `by`."""
    return rows.groupBy(*by).agg(*(total.of(total.value).alias(name) for name, total in sums.items()))


def put_together(parts: DataFrame, by: Sequence[str], sums: Sums) -> DataFrame:
    """The same, from rows that `each` or `added_up` made of parts."""
    return parts.groupBy(*by).agg(*(total.of(F.col(name)).alias(name) for name, total in sums.items()))
