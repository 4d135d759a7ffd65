"""Which messages a report is about: those first recorded in a window of time, to some entities.

A message is in the window by its first record: when it was accepted. Its fate may be recorded later, and is looked up
in everything on record.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus.ledger.reading.process_end import FOREVER_MS
from twinbus.spark.compaction.primaries import NAMESPACE_MARK
from twinbus.units import clock_time_or_ms, utc_time_ms

if TYPE_CHECKING:
    from pyspark.sql import Column


class LedgerSelection(NamedTuple):
    """A window of time, the end not included, and names of entities; the default is everything."""

    since_ms: int | None = None
    until_ms: int | None = None
    entities: tuple[str, ...] = ()
    """Names, or patterns in which `*` and `?` stand for any characters, in any case; none: all entities."""

    @property
    def is_all(self) -> bool:
        return not self.has_window and not self.entities

    @property
    def has_window(self) -> bool:
        return self.since_ms is not None or self.until_ms is not None

    @property
    def begin_ms(self) -> int:
        return 0 if self.since_ms is None else self.since_ms

    @property
    def end_ms(self) -> int:
        return FOREVER_MS if self.until_ms is None else self.until_ms

    def has_entity(self, name: str) -> bool:
        return not self.entities or re.fullmatch(self.entity_pattern, name.lower()) is not None

    def overlaps(self, begin_ms: int, end_ms: int | None) -> bool:
        """Whether a stretch of time, which goes on if `end_ms` is None, has a part in the window."""
        return begin_ms < self.end_ms and (end_ms is None or end_ms >= self.begin_ms)

    @property
    def entity_pattern(self) -> str:
        """A regular expression that Python and Java read alike, for names in lower case.

        A name without a namespace stands for the entity of that name in any namespace.
        """
        return "|".join(map(_pattern, self.entities))

    def as_dict(self) -> dict[str, Any]:
        return {
            "since_at": None if self.since_ms is None else utc_time_ms(self.since_ms),
            "until_at": None if self.until_ms is None else utc_time_ms(self.until_ms),
            "entities": list(self.entities),
        }

    def __str__(self) -> str:
        """E.g. `messages accepted from 2031-03-09 14:05:06 UTC on, to orders or billing-*`; empty: all of them."""
        since = None if self.since_ms is None else clock_time_or_ms(self.since_ms)
        until = None if self.until_ms is None else clock_time_or_ms(self.until_ms)
        match since, until:
            case None, None:
                when = ""
            case None, _:
                when = f" before {until} UTC"
            case _, None:
                when = f" from {since} UTC on"
            case _:
                when = f" from {since} to {until} UTC"
        where = f"{',' if when else ''} to {' or '.join(self.entities)}" if self.entities else ""
        return "" if self.is_all else f"messages accepted{when}{where}"


ALL = LedgerSelection()


def _pattern(name: str) -> str:
    wild = {"*": "(?s:.*)", "?": "(?s:.)"}
    body = "".join(wild.get(each) or re.escape(each) for each in name.lower())
    return body if NAMESPACE_MARK in name else f"(?:[^{NAMESPACE_MARK}]*{NAMESPACE_MARK})?{body}"


def is_chosen(selection: LedgerSelection) -> Column:
    """Whether a message is in the selection, by its `entity` and `first_ms`."""
    from pyspark.sql import functions as F  # noqa: N812

    chosen = is_chosen_entity(selection)
    if selection.since_ms is not None:
        chosen = chosen & (F.col("first_ms") >= selection.since_ms)
    if selection.until_ms is not None:
        chosen = chosen & (F.col("first_ms") < selection.until_ms)
    return chosen


def is_chosen_entity(selection: LedgerSelection) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.lower("entity").rlike(f"^(?:{selection.entity_pattern})$") if selection.entities else F.lit(True)


def overlaps_window(selection: LedgerSelection, begin: str, end: str | Column) -> Column:
    """Whether the stretch from `begin` to `end` (null: it goes on) has a part in the window."""
    from pyspark.sql import functions as F  # noqa: N812

    ends = F.col(end) if isinstance(end, str) else end
    return (F.col(begin) < selection.end_ms) & F.coalesce(ends >= selection.begin_ms, F.lit(True))
