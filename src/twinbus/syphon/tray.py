"""Messages of a dead-letter queue, one at a time, and the queue's word on each that was taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.link import ReceivingLink
from twinbus.amqp.outcomes import ACCEPTED, Rejected
from twinbus.pairing.failure import Failure
from twinbus.syphon.failures import failure_of_outcome, no_answer
from twinbus.syphon.linked import LineFailed, Linked


class Tray(Linked):
    """Messages from a link, one at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived: asyncio.Queue[TransferArrived] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[DispositionArrived]] = {}

    def transfers(self, arrived: list[TransferArrived]) -> None:
        for transfer in arrived:
            self._arrived.put_nowait(transfer)

    async def next(self, wait_s: float) -> TransferArrived | None:
        """The next message; None if none comes in time."""
        try:
            async with asyncio.timeout(wait_s):
                return await self._arrived.get()
        except TimeoutError:
            return None

    def left(self) -> list[int]:
        return [self._arrived.get_nowait().delivery_id for _ in range(self._arrived.qsize())]

    async def take_away(self, link: ReceivingLink, delivery_id: int, flush: Callable[[], None], wait_s: float) -> None:
        """Have the queue delete a message. Raises `LineFailed` if it does not say that it has."""
        answer = self._answers[delivery_id] = asyncio.get_running_loop().create_future()
        link.settle(delivery_id, delivery_id, ACCEPTED, settled=False)
        flush()
        try:
            async with asyncio.timeout(wait_s):
                outcome = (await answer).outcome
        except TimeoutError:
            raise LineFailed(no_answer("the queue did not answer in time", in_doubt=True)) from None
        finally:
            del self._answers[delivery_id]
        if isinstance(outcome, Rejected):
            raise LineFailed(failure_of_outcome(outcome))

    def disposition(self, event: DispositionArrived) -> None:
        for delivery_id, _ in event.deliveries:
            answer = self._answers.get(delivery_id)
            if answer is not None and not answer.done():
                answer.set_result(event)

    def gone(self, failure: Failure) -> None:
        super().gone(failure)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(LineFailed(failure))
