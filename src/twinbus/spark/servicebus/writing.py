"""Writers: rows become messages, sent in batches. At least once: what a task had sent stays sent if it fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from twinbus.spark.servicebus.batches import outgoing
from twinbus.spark.servicebus.options import WriteOptions
from twinbus.spark.servicebus.post import Post

if TYPE_CHECKING:
    from pyarrow import RecordBatch  # type: ignore[import-untyped]


@dataclass
class Sent(WriterCommitMessage):
    """What one task has sent."""

    messages: int


class ServiceBusWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        return _send(iterator, self._options)


class ServiceBusStreamWriter(DataSourceStreamArrowWriter):
    """A batch that is run again sends the same ids again: with duplicate detection the queue keeps one of each."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        return _send(iterator, self._options)


def _send(batches: Iterator[RecordBatch], options: WriteOptions) -> Sent:
    """Runs on an executor; returns when everything is acknowledged."""
    post = Post(options.access.namespace().dial(options.timeout_s), options.timeout_s, options.batch_max)
    try:
        for batch in batches:
            rows = outgoing(batch, options.entity, int(time.time() * 1000), makes_ids=options.makes_ids)
            for entity, group in groupby(rows, itemgetter(0)):
                post.put(entity, [message for _, message in group])
        post.flush()
        return Sent(post.stored)
    finally:
        post.close()
