"""The link of a task to the queue, the subscription or the sessions it consumes, for code without an event loop.

Messages arrive on a thread of their own while others are staged; how many, and how many bytes, is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Self, TypeVar

from twinbus.amqp.codec.outcomes import ACCEPTED, RELEASED, Accepted
from twinbus.amqp.codec.types import Symbol, UInt
from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.serial import ranges
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.spark.queue_browser import LoopThread, QueueUnreachable
from twinbus.spark.source.consuming.staged_files import FILE_BYTES_MAX, FILE_MESSAGES_MAX
from twinbus.spark.source.consuming.task_steps import LockedMessage
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.dial import Dial
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.link_handler import LinkHandler

WINDOW_MESSAGES_MAX, WINDOW_BYTES_MAX = 2_000, 16 * 1024 * 1024
FIRST_CREDIT = 50
"""Until it is known how large messages are."""
IDLE_S = 0.1
"""After the first message: when nothing comes for so long, credit is taken back, and that was all."""
SESSION_HELD_S = 10.0
"""Then a session is accepted anew: its lock is never renewed."""
SESSION_FILTER, SESSION_WAIT = Symbol("com.microsoft:session-filter"), Symbol("com.microsoft:timeout")
NEEDS_SESSION = {FailureKind.NOT_ALLOWED, FailureKind.REJECTED}
"""What a link without a session is refused with where there are sessions."""
Result = TypeVar("Result")


class TaskReceiver:
    """Use it in a `with` block. The connection is opened when it is first needed. Raises `QueueUnreachable`."""

    def __init__(self, dial: Dial, path: str, *, attempt_s: float, wait_s: float) -> None:
        """`wait_s`: how long the first message, or a session, is waited for."""
        self._dial = dial
        self._path = path
        self._attempt_s = attempt_s
        self._wait_s = wait_s
        self._loop = LoopThread("twinbus-receiver")
        self._connection: NamespaceConnection | None = None
        self._handler: _TaskLink | None = None
        self._has_sessions = False

    def receive(self, most: int) -> Sequence[LockedMessage]:
        """The next chunk; empty if nothing comes, or no session has anything."""
        return self._run(self._receive(most))

    def complete(self, chunk: Sequence[LockedMessage]) -> int:
        """How many are completed for certain: all, unless their locks ended or the link was lost."""
        return self._run(self._complete(chunk))

    def close(self) -> None:
        """Give back what was received and not asked for. May be called again."""
        if not self._loop.is_closed:
            self._loop.run(self._end())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return self._loop.run(work)
        except ConnectionFailed as error:
            where = f"{self._path} of {self._dial.hostname or self._dial.host}:{self._dial.port}"
            raise QueueUnreachable(f"{where}: {error.failure}", error.failure) from None

    # --- receiving ---

    async def _receive(self, most: int) -> Sequence[LockedMessage]:
        while True:
            handler = self._handler or await self._open()
            if handler is None:
                return ()
            chunk = () if handler.is_over else await handler.next_chunk(most)
            if chunk or not self._has_sessions:
                return chunk
            self._leave()  # the session is empty, or was held for long: another one

    async def _open(self) -> _TaskLink | None:
        """A link with its handler; None if no session has messages."""
        if self._connection is None:
            connection = NamespaceConnection(self._dial, attempt_s=self._attempt_s, name="spark")
            await connection.open()
            self._connection = connection
        if not self._has_sessions:
            try:
                return await self._open_link(None, 0.0)
            except ConnectionFailed as error:
                if error.failure.kind not in NEEDS_SESSION:
                    raise
                handler = await self._open_session()
                self._has_sessions = True
                return handler
        return await self._open_session()

    async def _open_session(self) -> _TaskLink | None:
        try:
            return await self._open_link({SESSION_FILTER: None}, self._wait_s)
        except ConnectionFailed as error:
            if error.failure.kind is FailureKind.TIMED_OUT:
                self._has_sessions = True
                return None
            raise

    async def _open_link(self, filters: dict[Any, Any] | None, wait_s: float) -> _TaskLink:
        assert self._connection is not None
        properties: dict[Any, Any] = {Symbol("com.microsoft:receiver-name"): "twinbus-spark"}
        if filters is not None:
            properties[SESSION_WAIT] = UInt(round(wait_s * 1000))
        handler = _TaskLink(self._connection, self._wait_s, self._attempt_s, is_session=filters is not None)
        handler.link = await self._connection.open_receiver_as(
            self._path,
            handler,
            name=f"spark-{self._path}-{uuid.uuid4().hex}",
            deletes=False,
            filters=filters,
            properties=properties,
            wait_s=wait_s,
        )
        self._handler = handler
        return handler

    async def _complete(self, chunk: Sequence[LockedMessage]) -> int:
        return 0 if self._handler is None else await self._handler.complete(chunk)

    def _leave(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None and handler.link is not None and self._connection is not None:
            handler.release_rest()
            self._connection.end_receiver(handler.link)

    async def _end(self) -> None:
        self._leave()
        if self._connection is not None:
            with contextlib.suppress(ConnectionFailed):
                await self._connection.close()


class _TaskLink(LinkHandler):
    """One link: what has arrived on it, and what of that is settled."""

    def __init__(self, connection: NamespaceConnection, wait_s: float, attempt_s: float, *, is_session: bool) -> None:
        super().__init__()
        self.link: ReceivingLink | None = None
        self._connection = connection
        self._wait_s = wait_s
        self._attempt_s = attempt_s
        self._until_s = time.monotonic() + SESSION_HELD_S if is_session else float("inf")
        self._arrived: deque[LockedMessage] = deque()
        self._bytes = 0
        self._seen = self._seen_bytes = 0
        self._changed = asyncio.Event()
        self._unsettled: set[int] = set()
        self._completed = 0
        self._failure: Failure | None = None

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._until_s

    def on_transfers(self, transfers: list[TransferArrived]) -> None:
        for transfer in transfers:
            self._arrived.append(LockedMessage(transfer.delivery_id, transfer.payload))
            self._bytes += len(transfer.payload)
            self._seen_bytes += len(transfer.payload)
        self._seen += len(transfers)
        if self._bytes > 2 * WINDOW_BYTES_MAX:
            self._connection.pause_reading()
        self._changed.set()

    def on_disposition(self, event: DispositionArrived) -> None:
        for delivery_id, _ in event.deliveries:
            if delivery_id in self._unsettled:
                self._unsettled.remove(delivery_id)
                self._completed += isinstance(event.outcome, Accepted)
        self._changed.set()

    def on_detached(self, failure: Failure) -> None:
        super().on_detached(failure)
        self._failure = failure
        self._changed.set()

    async def next_chunk(self, most: int) -> Sequence[LockedMessage]:
        """What comes and fits into one file. Raises `ConnectionFailed` if the link is lost: then nothing that it
        brought could be completed.
        """
        is_drained = False
        while not self._is_full(most):
            self._raise_failure()
            self._grant(most)
            count = self._seen
            await self._wait(IDLE_S if self._seen else self._wait_s)
            if self._seen == count and self.link is not None:
                await self.drain(self.link, self._connection.flush, self._attempt_s)
                is_drained = self._seen == count
                if is_drained:
                    break
        self._raise_failure()
        chunk = self._take(most)
        if not is_drained:
            self._grant(most - len(chunk))  # the next ones come while these are staged
        return chunk

    async def complete(self, chunk: Sequence[LockedMessage]) -> int:
        if self.link is None or self._failure is not None:
            return 0
        before = self._completed
        self._unsettled = {delivery.number for delivery in chunk}
        for first, last in ranges([delivery.number for delivery in chunk]):
            self.link.settle(first, last, ACCEPTED, settled=False)
        self._connection.flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._attempt_s):
                while self._unsettled and self._failure is None:
                    self._changed.clear()
                    await self._changed.wait()
        return self._completed - before

    def release_rest(self) -> None:
        """Give back what has arrived and was not asked for."""
        if self.link is not None and self._failure is None:
            self.link.grant(0)
            for first, last in ranges([delivery.number for delivery in self._arrived]):
                self.link.settle(first, last, RELEASED, settled=True)
            self._arrived.clear()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise ConnectionFailed(self._failure)

    async def _wait(self, seconds: float) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _grant(self, most: int) -> None:
        """Let come what is wanted, and what memory is for."""
        if self.link is None or self._failure is not None:
            return
        size = max(1, self._seen_bytes // self._seen) if self._seen else 0
        window = max(1, min(WINDOW_MESSAGES_MAX, WINDOW_BYTES_MAX // size)) if size else FIRST_CREDIT
        wanted = min(window, most) - len(self._arrived)
        if wanted > 2 * self.link.credit:
            self.link.grant(wanted)
            self._connection.flush()

    def _is_full(self, most: int) -> bool:
        return len(self._arrived) >= min(most, FILE_MESSAGES_MAX) or self._bytes >= FILE_BYTES_MAX

    def _take(self, most: int) -> list[LockedMessage]:
        chunk: list[LockedMessage] = []
        size = 0
        while self._arrived and len(chunk) < min(most, FILE_MESSAGES_MAX) and size < FILE_BYTES_MAX:
            chunk.append(self._arrived.popleft())
            size += len(chunk[-1].message)
        self._bytes -= size
        if self._bytes <= WINDOW_BYTES_MAX:
            self._connection.resume_reading()
        return chunk
