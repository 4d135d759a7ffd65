"""Counts that the service itself keeps, beside what is on record.

Where no namespace keeps a ledger, e.g. in Azure, the service still counts: Azure Monitor by time and entity, runtime
properties what is there now. A count is not a name: that numbers agree proves nothing about any message, and others may
send to the same entity. So counts inform, and one difference raises a doubt: the service counted fewer incoming
messages than it acknowledged.

The times of records come from the clocks of clients, and a count belongs to a grain of time. So what was acknowledged
within a grain of an end, or a minute if that is longer, may be on either side of it.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from twinbus.errors import OptionsError
from twinbus.spark.transforms.acknowledged import CountedSpan
from twinbus.spark.transforms.selection import ALL, LedgerSelection
from twinbus.units import clock_time_or_ms, parse_iso_duration, parse_portal_time, parse_time

INCOMING, COMPLETED = "IncomingMessages", "CompleteMessage"
METRICS = {name.lower(): name for name in (INCOMING, COMPLETED)}
"""Those that count what happened. `ActiveMessages` and such say how much was there, as runtime properties do."""
GRAIN_MS = 60_000
SLACK_MS_MIN = 60_000
SHAPE = (
    "--counts takes what Azure Monitor gives: the answer of `az monitor metrics list`, records of a diagnostic "
    "setting, or CSV with the columns TimeGenerated, MetricName, Total and, if split by it, EntityName"
)


Outcome = Literal["agrees", "fewer", "more", "not comparable"]


class ServicePoint(NamedTuple):
    """What the service counted in one grain."""

    entity: str
    """In lower case; empty: in the whole namespace."""
    metric: str
    since_ms: int
    grain_ms: int
    total: int


class CountComparison(NamedTuple):
    """One count of the service, beside ours."""

    entity: str
    metric: str
    since_ms: int | None
    until_ms: int | None
    service: int
    ours_min: int | None
    ours_max: int | None
    """None: nothing to compare."""
    outcome: Outcome
    text: str

    @property
    def doubt(self) -> str:
        """Why the answer is unknown because of it; empty: it is not."""
        return self.text if self.outcome == "fewer" and self.metric == INCOMING else ""

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()


class EntityCounts(NamedTuple):
    """The runtime properties of an entity: what is there now."""

    entity: str
    active: int
    dead_lettered: int
    scheduled: int
    transfer: int
    """Messages, and dead letters, on their way to the entity that this one forwards to."""


# --- reading ---


def read_points(files: Iterable[Path]) -> list[ServicePoint]:
    """All counts in these files, each grain once: exports may overlap. Raises `OptionsError`."""
    found = {(each.entity, each.metric, each.grain_ms, each.since_ms): each for each in _points(files)}
    return [found[key] for key in sorted(found)]


class _WrongPoint(ValueError):
    """A value that cannot be; it says what would be right."""

    line = 0
    """Where it is in its file; 0: unknown."""


def _points(files: Iterable[Path]) -> Iterator[ServicePoint]:
    for file in files:
        try:
            text = file.read_text(encoding="utf-8-sig")
            points = list(_of_text(text))
        except OSError as error:
            raise OptionsError(f"--counts {file} cannot be read: {error.strerror}") from None
        except _WrongPoint as error:
            where = f"{file}:{error.line}" if error.line else f"{file}"
            raise OptionsError(f"--counts {where}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, csv.Error):
            raise OptionsError(f"--counts {file} cannot be understood: {SHAPE}") from None
        if not points:
            raise OptionsError(f"--counts {file} has no {INCOMING} and no {COMPLETED}: {SHAPE}")
        yield from points


def _of_text(text: str) -> Iterator[ServicePoint]:
    if not text.lstrip().startswith(("{", "[")):
        rows = csv.DictReader(text.splitlines())
        for row in rows:
            yield from _at_line(rows.line_num, _of_record(row))
        return
    try:
        documents = [(0, json.loads(text))]
    except json.JSONDecodeError:  # a setting that writes to storage puts one object on each line
        lines = enumerate(text.splitlines(), 1)
        documents = [(number, json.loads(line)) for number, line in lines if line.strip()]
    for number, document in documents:
        yield from _at_line(number, _of_document(document))


def _at_line(number: int, points: Iterator[ServicePoint]) -> Iterator[ServicePoint]:
    try:
        yield from points
    except _WrongPoint as error:
        error.line = number
        raise


def _of_document(document: Any) -> Iterator[ServicePoint]:
    if isinstance(document, list):
        for each in document:
            yield from _of_document(each)
    elif "records" in document or "values" in document:
        yield from _of_document(document.get("records") or document.get("values") or [])
    elif "value" in document:
        for metric in document["value"]:
            yield from _of_metric(metric, document.get("interval"))
    else:
        yield from _of_record(document)


def _of_metric(metric: Mapping[str, Any], interval: str | None) -> Iterator[ServicePoint]:
    """A metric in the answer of the metrics API; a point without a total says nothing."""
    name = METRICS.get(metric["name"]["value"].lower())
    for series in metric["timeseries"] if name else ():
        labels = {each["name"]["value"].lower(): each["value"] for each in series.get("metadatavalues", ())}
        for point in series["data"]:
            if name and point.get("total") is not None:
                yield _point(labels.get("entityname"), name, point["timeStamp"], interval, point["total"])


def _of_record(record: Mapping[str, Any]) -> Iterator[ServicePoint]:
    """A record of a diagnostic setting, or a row of a table; these have their entity only if they were split by it."""
    fields = {_plain(name): value for name, value in record.items() if name}
    name = METRICS.get(str(fields["metricname"]).lower())
    if not name:
        return
    if "total" not in fields:
        raise _WrongPoint("there is no column Total")
    if fields["total"] not in (None, ""):
        at = next((fields[each] for each in ("timegenerated", "timestamp", "time") if each in fields), None)
        if at is None:
            raise _WrongPoint("there is no column TimeGenerated in UTC")
        yield _point(fields.get("entityname"), name, at, fields.get("timegrain"), fields["total"])


def _plain(name: str) -> str:
    return re.sub(r"\[utc\]$", "", name.lower().replace(" ", ""))


def _point(entity: Any, metric: str, at: Any, grain: Any, total: Any) -> ServicePoint:
    """Raises `_WrongPoint`."""
    return ServicePoint(
        str(entity or "").strip("/").lower(), metric, _time_ms(at), _grain_ms(grain), _count(total, metric, at)
    )


def _time_ms(text: Any) -> int:
    try:
        at = parse_time(text)
    except (ValueError, TypeError):
        try:
            at = parse_portal_time(str(text))
        except ValueError:
            right = "2025-03-09T06:00:00Z or 3/9/2025, 6:00:00.000 AM"
            raise _WrongPoint(f"its time must be in UTC, such as {right}, got {text!r}") from None
    return round(at.timestamp() * 1000)


def _grain_ms(text: Any) -> int:
    if not text:
        return GRAIN_MS
    try:
        grain_ms = parse_iso_duration(text)
    except (ValueError, TypeError):
        grain_ms = 0
    if grain_ms <= 0:
        raise _WrongPoint(f"TimeGrain must be a duration such as PT1M, got {text!r}")
    return grain_ms


def _count(value: Any, metric: str, at: Any) -> int:
    try:
        total = float(value)
    except (ValueError, TypeError):
        total = math.nan
    if not 0 <= total < math.inf:
        raise _WrongPoint(f"Total must be a number from 0 on, got {value!r} ({metric} at {at})")
    return round(total)


# --- comparing ---


class CountedMessages(NamedTuple):
    """Messages on record that belong to a span: at least, and at most."""

    least: int = 0
    most: int = 0


def spans(points: Iterable[ServicePoint], selection: LedgerSelection = ALL) -> dict[CountedSpan, int]:
    """What the service counted without a break, of whole grains in the window and of chosen entities."""
    found: dict[CountedSpan, int] = {}
    last: CountedSpan | None = None
    chosen = (
        each
        for each in points
        if (not each.entity or selection.has_entity(each.entity))
        and each.since_ms >= selection.begin_ms
        and each.since_ms + each.grain_ms <= selection.end_ms
    )
    for each in sorted(chosen, key=lambda each: (each.entity, each.metric, each.grain_ms, each.since_ms)):
        follows = last is not None and each.since_ms == last.until_ms and last[:3] == (*each[:2], each.grain_ms)
        since_ms, before = (last.since_ms, found.pop(last)) if last is not None and follows else (each.since_ms, 0)
        last = CountedSpan(each.entity, each.metric, each.grain_ms, since_ms, each.since_ms + each.grain_ms)
        found[last] = before + each.total
    return found


def compare(counted: Mapping[CountedSpan, int], ours: Mapping[CountedSpan, CountedMessages]) -> list[CountComparison]:
    """Each count of the service beside ours."""
    return [_compare(span, total, ours.get(span, CountedMessages())) for span, total in counted.items()]


def _compare(span: CountedSpan, total: int, ours: CountedMessages) -> CountComparison:
    what = {INCOMING: "incoming messages", COMPLETED: "completed messages"}[span.metric]
    when = f"from {clock_time_or_ms(span.since_ms)} to {clock_time_or_ms(span.until_ms)} UTC"
    counted = f"{span.entity or 'the namespace'}: the service counted {total:,} {what} {when}"
    known = f"{ours.least:,}" if ours.least == ours.most else f"{ours.least:,} to {ours.most:,}"
    outcome: Outcome = "agrees"
    says = f"as are on record ({known})"
    if span.until_ms - span.since_ms <= 2 * slack_ms(span):
        outcome, says = (
            "not comparable",
            f"too short a time for grains of {span.grain_ms // 1000:,} s; {known} on record",
        )
    elif total < ours.least:
        outcome = "fewer"
        says = f"fewer than the {ours.least:,} that " + (
            "it acknowledged" if span.metric == INCOMING else "receivers recorded, by completion or receive-and-delete"
        )
    elif total > ours.most:
        outcome, says = "more", f"more than the {ours.most:,} on record: others use it too, or records are missing"
    text = f"{counted}, {says}"
    return CountComparison(
        span.entity, span.metric, span.since_ms, span.until_ms, total, ours.least, ours.most, outcome, text
    )


def slack_ms(span: CountedSpan) -> int:
    return max(span.grain_ms, SLACK_MS_MIN)


def compare_runtime(there: Iterable[EntityCounts], stored: Mapping[str, int]) -> list[CountComparison]:
    """What entities have now, beside the messages `stored` on the primary as far as records tell. It decides nothing:
    somebody without a ledger may have taken messages, or sent some.
    """
    return [
        CountComparison(
            each.entity,
            "RuntimeProperties",
            None,
            None,
            each.active + each.scheduled,
            None,
            stored.get(each.entity, 0),
            "not comparable",
            f"{each.entity}: the service has {each.active:,} active, {each.scheduled:,} scheduled, "
            f"{each.dead_lettered:,} dead-lettered and {each.transfer:,} in transfer; of "
            f"{stored.get(each.entity, 0):,} on record nothing says that they left the primary",
        )
        for each in sorted(there)
    ]
