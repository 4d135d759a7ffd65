"""Writers: rows become messages, sent in batches. At least once: what a task had sent stays sent if it fails.

Batches to one entity leave in their order, several at a time. A busy service is left alone for ten seconds, a lost
connection is opened again, and what was not acknowledged is sent again, with the same ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from twinbus.amqp.codec.outcomes import Accepted, Outcome, Received
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.sending_link import SendingLink
from twinbus.errors import AmqpError
from twinbus.pairing.sending.encoded_messages import BATCH_FORMAT, HEAD_BYTES_MAX, SECTION_BYTES, encode_batch
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.spark.queue_browser import LoopThread, QueueUnreachable
from twinbus.spark.source.options import WriteOptions
from twinbus.spark.source.rows import DecodedMessage, encode_rows, reader_of
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.dial import Dial
from twinbus.transport.failures import ConnectionFailed, failure_of_outcome, no_answer, unreachable
from twinbus.transport.links.link_handler import LinkHandler

if TYPE_CHECKING:
    from pyarrow import RecordBatch  # type: ignore[import-untyped]

IN_FLIGHT_MAX = 16
ATTEMPTS = 5
BUSY_S = 10.0
BACKOFF_S = (0.5, 1.0, 2.0, 4.0)
BATCH_BYTES_MAX = 1024 * 1024
BATCH_LIMIT = "com.microsoft:max-message-batch-size"
FOR_GOOD = {
    FailureKind.TOO_LARGE,
    FailureKind.NOT_ALLOWED,
    FailureKind.REJECTED,
    FailureKind.UNAUTHORISED,
    FailureKind.NOT_FOUND,
    FailureKind.DISABLED,
}
"""Another attempt would fail in the same way."""
_OVER_LINK_LIMIT = Failure(FailureKind.TOO_LARGE, "the batch was made before the limit of the link was known")
"""Not sent at all: a service may close the link for it, and everything else in flight would be in doubt."""


@dataclass
class WriteCommit(WriterCommitMessage):
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


def _send(batches: Iterator[RecordBatch], options: WriteOptions) -> WriteCommit:
    """Runs on an executor; returns when everything is acknowledged."""
    sender = BlockingSender(options.access.namespace().dial(options.timeout_s), options.timeout_s, options.batch_max)
    try:
        for batch in batches:
            rows = encode_rows(batch, options.entity, int(time.time() * 1000), makes_ids=options.makes_ids)
            for entity, group in groupby(rows, itemgetter(0)):
                sender.put(entity, [message for _, message in group])
        sender.flush()
        return WriteCommit(sender.stored)
    finally:
        sender.close()


class BlockingSender:
    """Sends messages from code without an event loop: `put`, `flush`, `close`."""

    def __init__(self, dial: Dial, attempt_s: float, batch_max: int) -> None:
        self._dial = dial
        self._attempt_s = attempt_s
        self._batch_max = batch_max
        self._loop = LoopThread("twinbus-sender")
        self._connection: NamespaceConnection | None = None
        self._targets: dict[str, _EntityLink] = {}
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._in_flight: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()
        self._failure: BaseException | None = None
        self.stored = 0
        """Messages that were acknowledged."""

    def put(self, entity: str, messages: list[bytes]) -> None:
        """Waits only while too many batches are in flight. Raises `QueueUnreachable`, for earlier messages too."""
        self._loop.run(self._put(entity, messages))

    def flush(self) -> None:
        """Returns once everything is acknowledged. Raises `QueueUnreachable`."""
        self._loop.run(self._flush())

    def close(self) -> None:
        if not self._loop.is_closed:
            self._loop.run(self._end())
        self._loop.close()

    async def _put(self, entity: str, messages: list[bytes]) -> None:
        target = self._targets.get(entity) or await self._new_target(entity)
        for batch in _cut(messages, self._batch_max, target.limit_bytes):
            self._raise_failure()
            await self._slots.acquire()
            task = asyncio.create_task(self._deliver(target, batch))
            self._in_flight.add(task)
            task.add_done_callback(self._delivered)

    async def _new_target(self, entity: str) -> _EntityLink:
        """With a link, so that batches fit its limit: if they were split later, others could overtake them."""
        target = self._targets[entity] = _EntityLink(entity)
        with contextlib.suppress(ConnectionFailed, AmqpError):  # the delivery fails too, and reports it or tries again
            await self._link(target)
        return target

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self._slots.release()
        if not task.cancelled():  # whatever it is: a batch that was not stored is never ignored
            self._failure = self._failure or task.exception()

    async def _flush(self) -> None:
        while self._in_flight:
            await asyncio.wait(self._in_flight)
        self._raise_failure()

    async def _end(self) -> None:
        for task in list(self._in_flight):
            task.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- one batch ---

    async def _deliver(self, target: _EntityLink, batch: list[bytes]) -> None:
        payload, message_format = encode_batch(batch)
        for attempt in count(1):
            failure = await self._attempt(target, payload, message_format)
            if failure is None:
                self.stored += len(batch)
                return
            if failure.kind is FailureKind.TOO_LARGE and len(batch) > 1:
                for piece in _cut(batch, -(-len(batch) // 2), target.limit_bytes):  # one too large is alone in the end
                    await self._deliver(target, piece)
                return
            if failure.kind in FOR_GOOD or attempt == ATTEMPTS:
                raise self._error(target, batch, failure)
            is_busy = failure.kind is FailureKind.BUSY
            await asyncio.sleep(BUSY_S if is_busy else BACKOFF_S[min(attempt, len(BACKOFF_S)) - 1])

    def _error(self, target: _EntityLink, batch: list[bytes], failure: Failure) -> QueueUnreachable:
        where, what = f"{target.entity} of {self._dial.hostname or self._dial.host}", ""
        if failure.kind is FailureKind.TOO_LARGE:
            name = reader_of("message_id")(DecodedMessage(target.entity, batch[0]))
            what = f"message {name!r:.60} of {len(batch[0])} bytes: "
        return QueueUnreachable(f"{where}: {what}{failure}", failure)

    async def _attempt(self, target: _EntityLink, payload: bytes, message_format: int) -> Failure | None:
        try:
            async with target.lock:  # in the order in which they were put
                link = await self._link(target)
                if message_format == BATCH_FORMAT and len(payload) > target.limit_bytes:
                    return _OVER_LINK_LIMIT
                await target.wait_for_credit(link, self._attempt_s, target.entity)
                answer = target.send(link, payload, message_format)
                self._flush_connection()
            async with asyncio.timeout(self._attempt_s):
                outcome = await answer
        except ConnectionFailed as error:
            return error.failure
        except TimeoutError:
            return no_answer("a batch was not answered in time", in_doubt=True)
        except AmqpError as error:
            return unreachable(error)
        return None if isinstance(outcome, Accepted) else failure_of_outcome(outcome)

    def _flush_connection(self) -> None:
        if self._connection is not None:
            self._connection.flush()

    async def _link(self, target: _EntityLink) -> SendingLink:
        async with self._opening:
            if self._connection is None or not self._connection.is_open:
                connection = NamespaceConnection(self._dial, attempt_s=self._attempt_s)
                await connection.open()
                self._connection = connection
            if target.link is None or not target.link.attached:
                target.attached(await self._connection.open_sender(target.entity, target))
            assert target.link is not None
            return target.link


class _EntityLink(LinkHandler):
    """The link to one entity, and the outcomes that are awaited on it."""

    def __init__(self, entity: str) -> None:
        super().__init__()
        self.entity = entity
        self.lock = asyncio.Lock()
        self.link: SendingLink | None = None
        self.limit_bytes = 256 * 1024
        """The limit of one transfer; the usual one of the service until the link is attached."""
        self._numbers = count(1)
        self._waiting: dict[bytes, asyncio.Future[Outcome | None]] = {}

    def attached(self, link: SendingLink) -> None:
        self.link = link
        said = (link.properties or {}).get(BATCH_LIMIT)
        largest = int(said) if isinstance(said, int) and said > 0 else link.max_message_size or self.limit_bytes
        self.limit_bytes = min(largest, BATCH_BYTES_MAX)

    def send(self, link: SendingLink, payload: bytes, message_format: int) -> asyncio.Future[Outcome | None]:
        """The outcome, once it arrives."""
        tag = (next(self._numbers) & 0xFFFFFFFF).to_bytes(4, "big")
        answer: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._waiting[tag] = answer
        answer.add_done_callback(lambda _: self._waiting.pop(tag, None))
        link.send(payload, tag=tag, message_format=message_format)
        return answer

    def on_disposition(self, event: DispositionArrived) -> None:
        if isinstance(event.outcome, Received):
            return
        for delivery_id, tag in event.deliveries:
            if not event.settled and isinstance(event.link, SendingLink):
                event.link.settle(delivery_id, delivery_id, event.outcome)
            answer = self._waiting.get(tag)
            if answer is not None and not answer.done():
                answer.set_result(event.outcome)

    def on_detached(self, failure: Failure) -> None:
        super().on_detached(failure)
        self.link = None
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(ConnectionFailed(failure))


def _cut(messages: list[bytes], most: int, limit_bytes: int) -> Iterable[list[bytes]]:
    """Lists that fit into one transfer each; a message too large for any goes alone, and the service refuses it."""
    batch: list[bytes] = []
    room = limit_bytes - HEAD_BYTES_MAX
    for message in messages:
        size = len(message) + SECTION_BYTES
        if batch and (len(batch) >= most or size > room):
            yield batch
            batch, room = [], limit_bytes - HEAD_BYTES_MAX
        batch.append(message)
        room -= size
    if batch:
        yield batch
