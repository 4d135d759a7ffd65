"""Readers: they peek into queues and take nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from twinbus.errors import TwinbusError
from twinbus.spark.queue_browser import QueueBrowser
from twinbus.spark.source.offsets import SequenceRange, old_number, positions_in, split_ranges, unread
from twinbus.spark.source.options import ReadOptions
from twinbus.spark.source.rows import batch_of
from twinbus.spark.source.stream_api import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from twinbus.spark.source.stream_offsets import (
    PeekedEntry,
    StreamOffsets,
    check_browses,
    describe_peeked,
    ranges_of,
)
from twinbus.transport.links.annotations import sequence_of

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema  # type: ignore[import-untyped]
    from pyspark.sql.types import StructType

    from twinbus.spark.source.consuming.consuming_offsets import ConsumingOffsets

logger = logging.getLogger("twinbus.spark")

Offsets = TypeVar("Offsets", "StreamOffsets", "ConsumingOffsets")
PeekAnywhere = Callable[[str, int, int], list[PeekedEntry]]


class ReadPartition(InputPartition):
    """What one task reads."""

    def __init__(self, piece: SequenceRange) -> None:
        super().__init__(piece)
        self.piece = piece


class ServiceBusReader(DataSourceReader):
    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """What is there now: later messages are not read."""
        options = self._options
        ranges: list[SequenceRange] = []
        with open_browser(options) as browser:
            for entity in options.entities:
                peek = partial(peek_entries, browser, entity)
                ranges += ranges_of(peek, entity, options.starting, options.ending)
        return [ReadPartition(piece) for piece in split_ranges(ranges, options.partition_max)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return _read(partition, self._schema, self._options)


class OffsetsReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[Offsets]):
    """The driver's part of any stream: its offsets plan what is read. Subclasses read it."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options
        self._browser: QueueBrowser | None = None
        self._offsets: Offsets | None = None
        self._idle_since_s = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_browser": None, "_offsets": None}  # pickled for executors

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the name is Spark's
        """The first message that is there, so that no task is planned for missing numbers."""
        return self._stream.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Pauses if nothing is new: an idle stream would otherwise peek hundreds of times a second."""
        self._pause_if_idle()
        most = getattr(limit, "max_rows", None) if limit is not None else self._options.trigger_max
        after = self._stream.latest(start, most)
        self._idle_since_s = time.monotonic() if after == start else 0.0
        return after

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._stream.stop_at_what_is_there()

    def stop(self) -> None:
        if self._browser is not None:
            self._browser.close()
            self._browser = self._offsets = None

    @property
    def _stream(self) -> Offsets:
        if self._offsets is None:
            self._browser = open_browser(self._options)
            self._offsets = self._new_offsets(partial(peek_entries, self._browser))
        return self._offsets

    def _new_offsets(self, peek: PeekAnywhere) -> Offsets:
        """`peek` takes an entity, a sequence number and a count."""
        raise NotImplementedError

    def _pause_if_idle(self) -> None:
        until_s = self._idle_since_s + self._options.idle_poll_ms / 1000
        if self._idle_since_s and until_s > time.monotonic():
            time.sleep(until_s - time.monotonic())


class ServiceBusStreamReader(OffsetsReader[StreamOffsets]):
    """Offsets are sequence numbers, so a batch that is run again reads the same messages, if they are still there."""

    def _new_offsets(self, peek: PeekAnywhere) -> StreamOffsets:
        return StreamOffsets(self._options, peek)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        check_browses(end)  # else the batch would be empty, and its messages would count as delivered
        ranges = [
            SequenceRange(entity, *numbers)
            for entity in self._options.entities
            for numbers in _between(entity, start, end)
        ]
        return [ReadPartition(piece) for piece in split_ranges(ranges, self._options.partition_max)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return _read(partition, self._schema, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: what was read stays where it is."""


def _between(entity: str, start: dict[str, Any], end: dict[str, Any]) -> Iterable[tuple[int, int]]:
    first, after = old_number(start, entity), old_number(end, entity)
    if after is not None:  # a batch that version 0.1 planned and did not finish
        return [(first or 1, after - 1)] if after > (first or 1) else []
    return unread(positions_in(start, entity), positions_in(end, entity))


def open_browser(options: ReadOptions) -> QueueBrowser:
    return QueueBrowser(options.access.namespace().dial(options.timeout_s), options.timeout_s)


def peek_entries(browser: QueueBrowser, entity: str, number: int, most: int) -> list[PeekedEntry]:
    return [describe_peeked(message) for message in browser.peek(entity, number, most)]


def _read(partition: InputPartition | None, schema: StructType, options: ReadOptions) -> Iterator[RecordBatch]:
    """Runs on an executor. If there is nothing to read Spark still asks, without a partition."""
    if not isinstance(partition, ReadPartition):
        return
    piece, arrow_schema = partition.piece, to_arrow_schema(schema, timezone="UTC")
    with open_browser(options) as browser:
        seen = 0
        for batch in _pages(browser, piece, arrow_schema, options.page):
            seen += batch.num_rows
            yield batch
    expected = piece.last - piece.first + 1
    if seen < expected:
        _report_missing(piece, expected - seen, fails=options.fail_on_missing)


def _report_missing(piece: SequenceRange, missing: int, *, fails: bool) -> None:
    first, last = piece.first, piece.last
    expected = last - first + 1
    what = f"{piece.entity} has {expected - missing:,} of the {expected:,} messages from {first} to {last}"
    if fails:
        raise TwinbusError(f"{what}: others took some before they were read; failOnMissing=false goes on")
    logger.warning("%s: others took %s before they were read", what, f"{missing:,}")


def _pages(browser: QueueBrowser, piece: SequenceRange, schema: Schema, page: int) -> Iterator[RecordBatch]:
    at = piece.first
    while at <= piece.last:
        messages = browser.peek(piece.entity, at, min(page, piece.last - at + 1))
        wanted = {number: message for message in messages if at <= (number := sequence_of(message)) <= piece.last}
        if not wanted:
            return  # what came, if anything, is of another partition
        yield batch_of(piece.entity, list(wanted.values()), schema)
        at = max(wanted) + 1
