"""The reader that consumes: what it has received is in a staging location until Spark has processed it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from twinbus.errors import TwinbusError
from twinbus.spark.source.consuming.consuming_offsets import ConsumingOffsets
from twinbus.spark.source.consuming.staged_files import LostStaging, check_mark, read_staged
from twinbus.spark.source.consuming.staging import AdoptTask, ReceiveTask
from twinbus.spark.source.consuming.task_receiver import TaskReceiver
from twinbus.spark.source.consuming.task_steps import run_steps, stage_steps
from twinbus.spark.source.options import ReadOptions
from twinbus.spark.source.reader import OffsetsReader, PeekAnywhere
from twinbus.spark.source.rows import batch_of
from twinbus.storage import Folder, open_folder

if TYPE_CHECKING:
    from pyarrow import RecordBatch  # type: ignore[import-untyped]
    from pyspark.sql.types import StructType

logger = logging.getLogger("twinbus.spark")

ROWS = 1_000


class ConsumePartition(InputPartition):
    """What one task does."""

    def __init__(self, task: ReceiveTask | AdoptTask) -> None:
        super().__init__(task)
        self.task = task


class ConsumingStreamReader(OffsetsReader[ConsumingOffsets]):
    def _new_offsets(self, peek: PeekAnywhere) -> ConsumingOffsets:
        return ConsumingOffsets(self._options, _folder(self._options), peek)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [ConsumePartition(task) for task in self._stream.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Runs on an executor. If there is nothing to read Spark still asks, without a partition."""
        if isinstance(partition, ConsumePartition):
            yield from _consume(partition.task, self._schema, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        self._stream.commit(end)


def _folder(options: ReadOptions) -> Folder:
    assert options.staging is not None, "the options are checked"
    return open_folder(options.staging)


def _consume(task: ReceiveTask | AdoptTask, schema: StructType, options: ReadOptions) -> Iterator[RecordBatch]:
    folder = _folder(options)
    check_mark(folder, task.stream)
    names = task.files if isinstance(task, AdoptTask) else _stage(task, folder, options)
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    try:
        for entity, messages in read_staged(folder, names):
            for at in range(0, len(messages), ROWS):
                yield batch_of(entity, messages[at : at + ROWS], arrow_schema)
    except LostStaging as error:
        if options.fail_on_data_loss:
            raise TwinbusError(f"{error}; failOnDataLoss=false goes on without them") from None
        logger.warning("%s; failOnDataLoss=false goes on without them", error)


def _stage(task: ReceiveTask, folder: Folder, options: ReadOptions) -> tuple[str, ...]:
    dial = options.access.namespace().dial(options.timeout_s)
    with TaskReceiver(dial, task.entity, attempt_s=options.timeout_s, wait_s=options.receive_wait_ms / 1000) as link:
        manifest = run_steps(stage_steps(task, secrets.token_hex(6)), folder, link)
    if manifest.uncompleted:
        logger.warning(
            "%s: %s of %s messages were staged and could not be completed: they come again",
            task.entity,
            f"{manifest.uncompleted:,}",
            f"{manifest.rows:,}",
        )
    return manifest.files
