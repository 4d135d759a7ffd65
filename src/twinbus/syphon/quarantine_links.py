"""The links with which quarantined messages are read, removed and sent home, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twinbus.amqp import sections
from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.outcomes import ACCEPTED, Rejected
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.errors import EnvelopeError
from twinbus.pairing.envelope import open_envelope
from twinbus.pairing.failure import Failure, FailureKind
from twinbus.syphon.dead_letter_reasons import DEAD_LETTER_PROPERTIES, path_problem
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed, failure_of_outcome, no_answer
from twinbus.transport.link_handler import LinkHandler
from twinbus.transport.single_sender import SingleSender


class DeadLetterReader(LinkHandler):
    """Messages of a dead-letter queue, one at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived: asyncio.Queue[TransferArrived] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[DispositionArrived]] = {}

    def on_transfers(self, transfers: list[TransferArrived]) -> None:
        for transfer in transfers:
            self._arrived.put_nowait(transfer)

    async def next(self, wait_s: float) -> TransferArrived | None:
        """The next message; None if none arrives in time."""
        try:
            async with asyncio.timeout(wait_s):
                return await self._arrived.get()
        except TimeoutError:
            return None

    def take_unread(self) -> list[int]:
        """The delivery ids of messages that arrived and were not read."""
        return [self._arrived.get_nowait().delivery_id for _ in range(self._arrived.qsize())]

    async def remove(self, link: ReceivingLink, delivery_id: int, flush: Callable[[], None], wait_s: float) -> None:
        """Complete a message. Raises `ConnectionFailed` if the queue does not confirm it."""
        answer = self._answers[delivery_id] = asyncio.get_running_loop().create_future()
        link.settle(delivery_id, delivery_id, ACCEPTED, settled=False)
        flush()
        try:
            async with asyncio.timeout(wait_s):
                outcome = (await answer).outcome
        except TimeoutError:
            raise ConnectionFailed(no_answer("the queue did not answer in time", in_doubt=True)) from None
        finally:
            del self._answers[delivery_id]
        if isinstance(outcome, Rejected):
            raise ConnectionFailed(failure_of_outcome(outcome))

    def on_disposition(self, event: DispositionArrived) -> None:
        for delivery_id, _ in event.deliveries:
            answer = self._answers.get(delivery_id)
            if answer is not None and not answer.done():
                answer.set_result(event)

    def on_detached(self, failure: Failure) -> None:
        super().on_detached(failure)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionFailed(failure))


class RedriveSender:
    """Sends quarantined messages to their destinations, one at a time."""

    def __init__(self, connection: NamespaceConnection, attempt_s: float) -> None:
        self._sender = SingleSender(connection, attempt_s)
        self._silent: set[str] = set()
        """Entities that did not answer: asked once, or a thousand messages would wait a thousand times."""

    async def deliver(self, message: bytes) -> int:
        """Send a message home; its size there in bytes.

        Raises `ConnectionFailed`, `EnvelopeError` or `DecodeError` if it did not arrive.
        """
        home = open_envelope(sections.rewrite(message, remove_application_properties=DEAD_LETTER_PROPERTIES))
        problem = path_problem(home.path)
        if problem is not None:
            raise EnvelopeError(problem)
        if home.path in self._silent:
            raise ConnectionFailed(no_answer(f"{home.path} did not answer before, so it was not asked again"))
        try:
            await self._sender.send(home.path, home.encoded)
        except ConnectionFailed as error:
            if error.failure.kind in (FailureKind.NO_ANSWER, FailureKind.TIMED_OUT):
                self._silent.add(home.path)
            raise
        return len(home.encoded)
