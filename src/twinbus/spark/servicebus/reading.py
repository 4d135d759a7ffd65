"""Readers: they look into queues and take nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from twinbus.errors import TwinbusError
from twinbus.spark.browser import Browser
from twinbus.spark.servicebus.batches import batch_of
from twinbus.spark.servicebus.looking import Glimpse, glimpse_of, partitions_from, span_from
from twinbus.spark.servicebus.offsets import old_number, positions_in, unread
from twinbus.spark.servicebus.options import ReadOptions
from twinbus.spark.servicebus.ranges import Range, pieces
from twinbus.spark.servicebus.stream_offsets import StreamOffsets
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
        ranges: list[Range] = []
        with _browser(options) as browser:
            for entity in options.entities:
                peek = partial(_glimpses, browser, entity)
                firsts = partitions_from(peek, options.from_sequence)
                ranges += [Range(entity, first.number, span_from(peek, first).last.number) for first in firsts]
        return [Piece(piece) for piece in pieces(ranges, options.partition_max)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return _read(partition, self._schema, self._options)


class ServiceBusStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are sequence numbers, so a batch that is run again reads the same messages, if they are still there."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options
        self._browser: Browser | None = None
        self._offsets: StreamOffsets | None = None
        self._looked_s = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_browser": None, "_offsets": None}  # to executors, which only read

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the name is Spark's
        """The first message that is there, so that nobody plans tasks for numbers that are long gone."""
        return self._stream.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Without a pause between two looks that find nothing, an idle stream would peek hundreds of times a second."""
        self._wait_a_moment()
        most = getattr(limit, "max_rows", None) if limit is not None else self._options.trigger_max
        after = self._stream.latest(start, most)
        self._looked_s = time.monotonic() if after == start else 0.0
        return after

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._stream.stop_at_what_is_there()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = [
            Range(entity, *numbers) for entity in self._options.entities for numbers in _between(entity, start, end)
        ]
        return [Piece(piece) for piece in pieces(ranges, self._options.partition_max)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return _read(partition, self._schema, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: what was read stays where it is."""

    def stop(self) -> None:
        if self._browser is not None:
            self._browser.close()
            self._browser = self._offsets = None

    @property
    def _stream(self) -> StreamOffsets:
        if self._offsets is None:
            self._browser = _browser(self._options)
            self._offsets = StreamOffsets(self._options, partial(_glimpses, self._browser))
        return self._offsets

    def _wait_a_moment(self) -> None:
        until_s = self._looked_s + self._options.idle_poll_ms / 1000
        if self._looked_s and until_s > time.monotonic():
            time.sleep(until_s - time.monotonic())


def _between(entity: str, start: dict[str, Any], end: dict[str, Any]) -> Iterable[tuple[int, int]]:
    first, after = old_number(start, entity), old_number(end, entity)
    if after is not None:  # a batch that version 0.1 planned, and did not finish
        return [(first or 1, after - 1)] if after > (first or 1) else []
    return unread(positions_in(start, entity), positions_in(end, entity))


def _browser(options: ReadOptions) -> Browser:
    return Browser(options.access.namespace().dial(options.timeout_s), options.timeout_s)


def _glimpses(browser: Browser, entity: str, number: int, most: int) -> list[Glimpse]:
    return [glimpse_of(message) for message in browser.peek(entity, number, most)]


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
        wanted = {number: message for message in messages if at <= (number := sequence_of(message)) <= piece.last}
        if not wanted:
            return  # or what came is of another partition
        yield batch_of(piece.entity, list(wanted.values()), schema)
        at = max(wanted) + 1
