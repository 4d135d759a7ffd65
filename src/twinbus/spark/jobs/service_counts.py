"""Compares counts of the service with the records of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.spark.report.service_counts import (
    COMPLETED,
    CountComparison,
    CountedMessages,
    ServicePoint,
    compare,
    slack_ms,
    spans,
)
from twinbus.spark.transforms.acknowledged import CountedSpan, in_spans

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from twinbus.spark.transforms.selection import LedgerSelection


def compare_counts(
    accounts: DataFrame, points: Iterable[ServicePoint], selection: LedgerSelection
) -> list[CountComparison]:
    """What the service counted in the window, beside the accounts of all messages."""
    counted = spans(points, selection)
    numbered = [(number, span, slack_ms(span)) for number, span in enumerate(counted)]
    ours: dict[CountedSpan, CountedMessages] = {}
    for is_received in (False, True):
        asked = [each for each in numbered if (each[1].metric == COMPLETED) == is_received]
        rows = in_spans(accounts, asked, is_received=is_received).collect() if asked else []
        ours |= {numbered[row["number"]][1]: CountedMessages(row["least"], row["most"]) for row in rows}
    return compare(counted, ours)
