"""The driver's part of consuming: plans batches, and deletes what they have delivered. `staging` says why it may."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from twinbus.errors import TwinbusError
from twinbus.spark.source.consuming.staged_files import LostStaging, check_mark, put_mark, read_manifests
from twinbus.spark.source.consuming.staging import (
    AdoptTask,
    ReceiveOffset,
    ReceiveTask,
    files_of_others,
    manifests_to_read,
    next_offset,
    parse_offset,
    plan_tasks,
    sort_files,
    tasks_of,
)
from twinbus.spark.source.offsets import EntityPartition, partition_of, share_limit
from twinbus.spark.source.options import ReadOptions
from twinbus.spark.source.stream_offsets import CHECK_S, PeekedEntry, PeekEntity, partitions_from, span_from
from twinbus.storage import Folder

logger = logging.getLogger("twinbus.spark")

LOCKS_END_S = 330.0
"""The longest lock of the service, and some more. A message that is there and was not received for so long is left to
the consumer that renews its lock.
"""
PAUSE_S_MAX = 10.0
UNCOMPLETED_BATCHES_MAX = 3
WAITING_SEARCH, PAGES_MAX = 250, 40


class _Tidied(NamedTuple):
    """What was found after a batch."""

    batch: int
    at_s: float
    orphans: tuple[str, ...]
    received: int
    uncompleted: int


def first_waiting(peek: PeekEntity, first: PeekedEntry) -> PeekedEntry | None:
    """The first message of a partition, from one on, that a receiver would get; others are deferred or scheduled.

    After ten thousand others it is whatever is next.
    """
    found: list[PeekedEntry] = [first]
    for _ in range(PAGES_MAX):
        for each in found:
            if partition_of(each.number) != partition_of(first.number):
                return None
            if each.is_waiting:
                return each
        found = peek(found[-1].number + 1, WAITING_SEARCH)
        if not found:
            return None
    return found[0]


class ConsumingOffsets:
    """The offsets of a stream that consumes."""

    def __init__(
        self,
        options: ReadOptions,
        folder: Folder,
        peek: Callable[[str, int, int], list[PeekedEntry]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`peek` takes an entity, a sequence number and a count."""
        self._options = options
        self._folder = folder
        self._peek = peek
        self._monotonic = monotonic
        self._sleep = sleep
        self._tidied: _Tidied | None = None
        self._stream = secrets.token_hex(6)
        """If this is a new one; Spark asks for the initial offset until the first batch is planned."""
        self._marked = ""
        self._targets: dict[EntityPartition, int] | None = None
        self._empty_since_s: float | None = None
        self._pause_s = 0.0
        self._uncompleted_batches = 0

    def initial(self) -> dict[str, Any]:
        return ReceiveOffset(self._stream).as_json()

    def stop_at_what_is_there(self) -> None:
        """Messages that arrive from now on are left for another run, as far as they can be told apart."""
        self._targets = {}
        for entity in self._options.entities:
            peek = partial(self._peek, entity)
            for first in partitions_from(peek, 1):
                self._targets[entity, partition_of(first.number)] = span_from(peek, first).last.number

    def latest(self, start: Mapping[str, Any], most: int | None) -> dict[str, Any]:
        """The offset of the next batch, of about `most` messages; `start` if there is nothing to do.

        Spark asks only when everything up to `start` is committed. Raises `TwinbusError`.
        """
        committed = parse_offset(start)
        if committed.batch:
            self._check_mark(committed.stream, is_first=False)
        tidied = self._tidy(committed)
        self._check_locks(tidied)
        depths = {(entity, 0): depth for entity, depth in self._depths()}
        self._pause(is_locked=bool(depths and committed.batch and not tidied.received and not committed.adopted))
        shares = share_limit(depths, most)
        tasks = plan_tasks({entity: share for (entity, _), share in shares.items()}, self._options.partition_max)
        if self._gives_up():
            tasks = {}
        counts = {"received": tidied.received, "uncompleted": tidied.uncompleted}
        after = next_offset(committed, tidied.orphans, tasks, **counts)
        return dict(start) if after is None else after.as_json()

    def tasks(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[ReceiveTask | AdoptTask]:
        """The tasks of the batch between two offsets."""
        offset = parse_offset(end)
        if parse_offset(start).batch == offset.batch:
            return []
        self._check_mark(offset.stream, is_first=offset.batch == 1)
        return tasks_of(offset)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Delete what is delivered. Spark calls this late, and for the last batch not at all: `latest` does it too."""
        offset = parse_offset(end)
        if self._tidied is None or self._tidied.batch < offset.batch:
            self._tidy(offset)

    # --- staging ---

    def _check_mark(self, stream: str, *, is_first: bool) -> None:
        if self._marked == stream:
            return
        if not is_first:
            try:
                check_mark(self._folder, stream)
            except LostStaging as error:
                self._report_loss(error)
        put_mark(self._folder, stream)
        self._marked = stream

    def _tidy(self, committed: ReceiveOffset) -> _Tidied:
        known, now_s = self._tidied, self._monotonic()
        if known is not None and known.batch == committed.batch and now_s - known.at_s < CHECK_S:
            return known
        names = [file.name for file in self._folder.files()]
        manifests = read_manifests(self._folder, manifests_to_read(names, committed))
        found = sort_files(names, committed, manifests)
        self._folder.delete(found.delivered)
        self._folder.delete(found.void)
        others = self._adoptable(files_of_others(names, committed.stream), committed)
        adopted = tuple(name for name in others if name not in committed.adopted)
        if known is None or known.batch != committed.batch:
            received, uncompleted = (
                sum(each.rows for each in manifests),
                sum(each.uncompleted for each in manifests),
            )
        else:  # looked again: its manifests are counted
            received, uncompleted = known.received, known.uncompleted
        self._tidied = _Tidied(committed.batch, now_s, (*found.orphans, *adopted), received, uncompleted)
        return self._tidied

    def _adoptable(self, others: list[str], committed: ReceiveOffset) -> list[str]:
        if self._options.adopts_staged:
            return others
        if others and not committed.batch:
            raise TwinbusError(
                f"{self._folder.url} has {len(others):,} files of messages that another stream has received and not "
                f"delivered, {others[0]} first. If that one is at work, or goes on, give this one a stagingLocation of "
                "its own; if its checkpoint is gone, adoptStaged=true delivers them here"
            )
        return []

    def _report_loss(self, error: LostStaging) -> None:
        if self._options.fail_on_data_loss:
            raise TwinbusError(f"{error}; failOnDataLoss=false goes on without what was in it") from None
        logger.warning("%s; failOnDataLoss=false goes on without what was in it", error)

    # --- what waits ---

    def _depths(self) -> Iterator[tuple[str, int]]:
        for entity in self._options.entities:
            depth = sum(self._depths_of_partitions(entity))
            if depth:
                yield entity, depth

    def _depths_of_partitions(self, entity: str) -> Iterator[int]:
        peek = partial(self._peek, entity)
        for first in partitions_from(peek, 1):
            waiting = first_waiting(peek, first)
            if waiting is None:
                continue
            last = span_from(peek, waiting).last.number
            if self._targets is not None:
                last = min(last, self._targets.get((entity, partition_of(first.number)), 0))
            if last >= waiting.number:
                yield last - waiting.number + 1

    # --- patience ---

    def _pause(self, *, is_locked: bool) -> None:
        """Wait longer and longer while messages are there and a batch gets none: they are under lock elsewhere."""
        if not is_locked:
            self._empty_since_s, self._pause_s = None, 0.0
            return
        if self._empty_since_s is None:
            self._empty_since_s = self._monotonic()
        self._pause_s = min(PAUSE_S_MAX, 2 * self._pause_s or self._options.idle_poll_ms / 1000)
        self._sleep(self._pause_s)

    def _gives_up(self) -> bool:
        """Whether a stream that is to end has waited long enough for locks of others."""
        if self._targets is None or self._empty_since_s is None:
            return False
        return self._monotonic() - self._empty_since_s > LOCKS_END_S

    def _check_locks(self, tidied: _Tidied) -> None:
        if not tidied.received or tidied.uncompleted < tidied.received:
            self._uncompleted_batches = 0
            return
        self._uncompleted_batches += 1
        if self._uncompleted_batches >= UNCOMPLETED_BATCHES_MAX:
            raise TwinbusError(
                f"none of the {tidied.received:,} messages of the last batch could be completed, nor of the batches "
                "before it: their locks ended before they were staged, so the same ones come again and again. Make the "
                "lock duration of the entity longer, or take a faster stagingLocation"
            )
