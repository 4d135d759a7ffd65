"""Readers: they look into queues and take nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from twinbus.errors import TwinbusError
from twinbus.spark.browser import Browser, Extent
from twinbus.spark.servicebus.batches import batch_of
from twinbus.spark.servicebus.options import LATEST, ReadOptions
from twinbus.spark.servicebus.ranges import Range, ends, pieces
from twinbus.syphon.look import sequence_of

try:  # since 4.2
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # pragma: no cover
    SupportsTriggerAvailableNow = object  # type: ignore[misc, assignment]
    ReadAllAvailable = ReadMaxRows = None  # type: ignore[misc, assignment]

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema  # type: ignore[import-untyped]
    from pyspark.sql.types import StructType

Offsets = dict[str, int]
"""By entity, the number of the next message."""


class Piece(InputPartition):
    """What one task reads."""

    def __init__(self, piece: Range) -> None:
        super().__init__(piece)
        self.piece = piece


class ServiceBusReader(DataSourceReader):
    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """What is there now: messages that come later are not read."""
        options = self._options
        with _browser(options) as browser:
            found = {entity: browser.extent(entity, options.from_sequence) for entity in options.entities}
        ranges = [Range(entity, *extent) for entity, extent in found.items() if extent is not None]
        return [Piece(piece) for piece in pieces(ranges, options.partition_max)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return _read(partition, self._schema, self._options)


class ServiceBusStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are sequence numbers, so a batch that is run again reads the same messages, if they are still there."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options
        self._browser: Browser | None = None
        self._target: Offsets | None = None
        self._looked_s = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_browser": None, "_target": None}  # to executors, which only read

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the name is Spark's
        """The first message that is there, so that nobody plans tasks for numbers that are long gone."""
        begin = self._begin(None)
        found = self._look(begin)
        if self._options.from_sequence == LATEST:
            return {entity: 1 if extent is None else extent.last + 1 for entity, extent in found.items()}
        return {entity: begin[entity] if extent is None else extent.first for entity, extent in found.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Without a pause between two looks that find nothing, an idle stream would peek hundreds of times a second."""
        begin = self._begin(start)
        self._wait_a_moment()
        found = self._look(begin)
        if self._target is not None:
            found = {entity: _up_to(extent, self._target.get(entity, 1)) for entity, extent in found.items()}
        most = getattr(limit, "max_rows", None) if limit is not None else self._options.trigger_max
        after = ends(begin, found, most)
        self._looked_s = time.monotonic() if after == begin else 0.0
        return after

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        found = self._look({})
        self._target = {entity: 1 if extent is None else extent.last + 1 for entity, extent in found.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin = self._begin(start)
        ranges = [
            Range(entity, begin[entity], end[entity] - 1) for entity in begin if end.get(entity, 0) > begin[entity]
        ]
        return [Piece(piece) for piece in pieces(ranges, self._options.partition_max)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return _read(partition, self._schema, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: what was read stays where it is."""

    def stop(self) -> None:
        if self._browser is not None:
            self._browser.close()
            self._browser = None

    def _begin(self, start: dict[str, Any] | None) -> Offsets:
        """Where to go on; entities that were added since begin at their beginning, removed ones are forgotten."""
        before = start or {}
        first = max(1, self._options.from_sequence)
        return {entity: int(before.get(entity, first)) for entity in self._options.entities}

    def _look(self, begin: Offsets) -> dict[str, Extent | None]:
        if self._browser is None:
            self._browser = _browser(self._options)
        return {entity: self._browser.extent(entity, begin.get(entity, 1)) for entity in self._options.entities}

    def _wait_a_moment(self) -> None:
        until_s = self._looked_s + self._options.idle_poll_ms / 1000
        if self._looked_s and until_s > time.monotonic():
            time.sleep(until_s - time.monotonic())


def _up_to(extent: Extent | None, target: int) -> Extent | None:
    if extent is None or extent.first >= target:
        return None
    return Extent(extent.first, min(extent.last, target - 1))


def _browser(options: ReadOptions) -> Browser:
    return Browser(options.access.namespace().dial(options.timeout_s), options.timeout_s)


def _read(partition: InputPartition | None, schema: StructType, options: ReadOptions) -> Iterator[RecordBatch]:
    """Runs on an executor. Where nothing is to be read Spark still asks, with no partition."""
    if not isinstance(partition, Piece):
        return
    piece, arrow_schema = partition.piece, to_arrow_schema(schema, timezone="UTC")
    with _browser(options) as browser:
        seen = 0
        for batch in _pages(browser, piece, arrow_schema, options.page):
            seen += batch.num_rows
            yield batch
    expected = piece.last - piece.first + 1
    if options.fail_on_data_loss and seen < expected:
        raise TwinbusError(
            f"{piece.entity} has {seen:,} of the {expected:,} messages from {piece.first} to {piece.last}: others took "
            "some before they were read; failOnDataLoss=false goes on"
        )


def _pages(browser: Browser, piece: Range, schema: Schema, page: int) -> Iterator[RecordBatch]:
    at = piece.first
    while at <= piece.last:
        messages = browser.peek(piece.entity, at, min(page, piece.last - at + 1))
        numbers = [sequence_of(message) for message in messages]
        wanted = [message for message, number in zip(messages, numbers, strict=True) if number <= piece.last]
        if wanted:
            yield batch_of(piece.entity, wanted, schema)
        if not numbers:
            return
        at = numbers[-1] + 1
