"""Sending many messages to a namespace, from code that has no event loop.

Batches to one entity leave in their order, several at a time. A busy service is left alone for ten seconds, a lost
connection is made again, and what was not acknowledged is sent again: with the same ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from itertools import count

from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.link import SendingLink
from twinbus.amqp.outcomes import Accepted, Outcome, Received
from twinbus.dial import Dial
from twinbus.errors import AmqpError
from twinbus.pairing.failure import Failure, FailureKind
from twinbus.spark.browser import Unreachable
from twinbus.spark.loop_thread import LoopThread
from twinbus.spark.servicebus.rows import Opened, reader_of
from twinbus.syphon.batches import BATCH_FORMAT, HEAD_BYTES_MAX, SECTION_BYTES, encode_batch
from twinbus.syphon.failures import failure_of_outcome, no_answer, unreachable
from twinbus.syphon.line import Line
from twinbus.syphon.linked import LineFailed, Linked

UNDER_WAY = 16
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
"""What another attempt would meet again."""
_MORE_THAN_A_LINK_TAKES = Failure(FailureKind.TOO_LARGE, "it was put together before the link said what it takes")
"""Not sent at all: a service may hang up at one that is too large, and whatever else was on its way is in doubt."""


class Post:
    """`put` messages, `flush`, `close`."""

    def __init__(self, dial: Dial, attempt_s: float, batch_max: int) -> None:
        self._dial = dial
        self._attempt_s = attempt_s
        self._batch_max = batch_max
        self._loop = LoopThread("twinbus-post")
        self._line: Line | None = None
        self._places: dict[str, _Place] = {}
        self._room = asyncio.Semaphore(UNDER_WAY)
        self._under_way: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()
        self._failure: BaseException | None = None
        self.stored = 0
        """Messages that were acknowledged."""

    def put(self, entity: str, messages: list[bytes]) -> None:
        """Waits only while too many batches are under way. Raises `Unreachable` for what came before, too."""
        self._loop.run(self._put(entity, messages))

    def flush(self) -> None:
        """Returns when everything is acknowledged, and only then. Raises `Unreachable`."""
        self._loop.run(self._flush())

    def close(self) -> None:
        if not self._loop.is_closed:
            self._loop.run(self._end())
        self._loop.close()

    async def _put(self, entity: str, messages: list[bytes]) -> None:
        place = self._places.get(entity) or await self._new_place(entity)
        for batch in _cut(messages, self._batch_max, place.limit_bytes):
            self._raise_failure()
            await self._room.acquire()
            task = asyncio.create_task(self._deliver(place, batch))
            self._under_way.add(task)
            task.add_done_callback(self._delivered)

    async def _new_place(self, entity: str) -> _Place:
        """With a link, so that batches are cut for what it takes: cut again, they might come after later ones."""
        place = self._places[entity] = _Place(entity)
        with contextlib.suppress(LineFailed, AmqpError):  # whoever delivers meets it too, and tells it or tries again
            await self._link(place)
        return place

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._room.release()
        if not task.cancelled():  # whatever went wrong: a batch that was not stored is never passed over
            self._failure = self._failure or task.exception()

    async def _flush(self) -> None:
        while self._under_way:
            await asyncio.wait(self._under_way)
        self._raise_failure()

    async def _end(self) -> None:
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        if self._line is not None:
            await self._line.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- one batch ---

    async def _deliver(self, place: _Place, batch: list[bytes]) -> None:
        payload, message_format = encode_batch(batch)
        for attempt in count(1):
            failure = await self._attempt(place, payload, message_format)
            if failure is None:
                self.stored += len(batch)
                return
            if failure.kind is FailureKind.TOO_LARGE and len(batch) > 1:
                await self._deliver_in_pieces(place, batch)
                return
            if failure.kind in FOR_GOOD or attempt == ATTEMPTS:
                raise self._told(place, batch, failure)
            is_busy = failure.kind is FailureKind.BUSY
            await asyncio.sleep(BUSY_S if is_busy else BACKOFF_S[min(attempt, len(BACKOFF_S)) - 1])

    async def _deliver_in_pieces(self, place: _Place, batch: list[bytes]) -> None:
        """None has more than half of the messages: in the end one that is too large is alone."""
        for piece in _cut(batch, -(-len(batch) // 2), place.limit_bytes):
            await self._deliver(place, piece)

    def _told(self, place: _Place, batch: list[bytes], failure: Failure) -> Unreachable:
        where, what = f"{place.entity} of {self._dial.hostname or self._dial.host}", ""
        if failure.kind is FailureKind.TOO_LARGE:
            name = reader_of("message_id")(Opened(place.entity, batch[0]))
            what = f"message {name!r:.60} of {len(batch[0])} bytes: "
        return Unreachable(f"{where}: {what}{failure}", failure)

    async def _attempt(self, place: _Place, payload: bytes, message_format: int) -> Failure | None:
        try:
            async with place.turn:  # in the order in which they were put
                link = await self._link(place)
                if message_format == BATCH_FORMAT and len(payload) > place.limit_bytes:
                    return _MORE_THAN_A_LINK_TAKES
                await place.credit_within(link, self._attempt_s, place.entity)
                answer = place.send(link, payload, message_format)
                self._flush_line()
            async with asyncio.timeout(self._attempt_s):
                outcome = await answer
        except LineFailed as error:
            return error.failure
        except TimeoutError:
            return no_answer("a batch was not answered in time", in_doubt=True)
        except AmqpError as error:
            return unreachable(error)
        return None if isinstance(outcome, Accepted) else failure_of_outcome(outcome)

    def _flush_line(self) -> None:
        if self._line is not None:
            self._line.flush()

    async def _link(self, place: _Place) -> SendingLink:
        async with self._opening:
            if self._line is None or not self._line.is_open:
                line = Line(self._dial, attempt_s=self._attempt_s, clock=lambda: int(time.monotonic() * 1000))
                await line.open()
                self._line = line
            if place.link is None or not place.link.attached:
                place.began(await self._line.sender(place.entity, place))
            assert place.link is not None
            return place.link


class _Place(Linked):
    """An entity that messages are sent to: its link, and who waits for answers on it."""

    def __init__(self, entity: str) -> None:
        super().__init__()
        self.entity = entity
        self.turn = asyncio.Lock()
        self.link: SendingLink | None = None
        self.limit_bytes = 256 * 1024
        """What one transfer may have; what the service usually takes, until the link has said it."""
        self._numbers = count(1)
        self._waiting: dict[bytes, asyncio.Future[Outcome | None]] = {}

    def began(self, link: SendingLink) -> None:
        self.link = link
        said = (link.properties or {}).get(BATCH_LIMIT)
        largest = int(said) if isinstance(said, int) and said > 0 else link.max_message_size or self.limit_bytes
        self.limit_bytes = min(largest, BATCH_BYTES_MAX)

    def send(self, link: SendingLink, payload: bytes, message_format: int) -> asyncio.Future[Outcome | None]:
        """The future answer."""
        tag = (next(self._numbers) & 0xFFFFFFFF).to_bytes(4, "big")
        answer: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._waiting[tag] = answer
        answer.add_done_callback(lambda _: self._waiting.pop(tag, None))
        link.send(payload, tag=tag, message_format=message_format)
        return answer

    def disposition(self, event: DispositionArrived) -> None:
        if isinstance(event.outcome, Received):
            return
        for delivery_id, tag in event.deliveries:
            if not event.settled and isinstance(event.link, SendingLink):
                event.link.settle(delivery_id, delivery_id, event.outcome)
            answer = self._waiting.get(tag)
            if answer is not None and not answer.done():
                answer.set_result(event.outcome)

    def gone(self, failure: Failure) -> None:
        super().gone(failure)
        self.link = None
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(LineFailed(failure))


def _cut(messages: list[bytes], most: int, limit_bytes: int) -> Iterable[list[bytes]]:
    """Lists that fit into one transfer each; a message too large for any goes alone, and is refused by the service."""
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
