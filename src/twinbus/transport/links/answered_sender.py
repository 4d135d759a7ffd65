"""A link of ours on which every message waits for its answer: to the coordinator of transactions, or in one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from twinbus.amqp.codec.outcomes import Accepted
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.sending_link import SendingLink
from twinbus.pairing.sending.failure import Failure
from twinbus.transport.failures import ConnectionFailed, failure_of_outcome, no_answer
from twinbus.transport.links.link_handler import LinkHandler


class AnsweredSender(LinkHandler):
    def __init__(self, address: str, flush: Callable[[], None], attempt_s: float) -> None:
        super().__init__()
        self.link: SendingLink | None = None
        self._address = address
        self._flush = flush
        self._attempt_s = attempt_s
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[DispositionArrived]] = {}

    @property
    def is_open(self) -> bool:
        return self.link is not None and self.link.attached

    async def send(self, payload: bytes, message_format: int = 0, transaction: bytes | None = None) -> bytes | None:
        """Send a message that is accepted, or says why not: `ConnectionFailed`.

        Returns the transaction in the answer: the one it was sent in, or that was declared by it.
        """
        if self.link is None:
            raise ConnectionFailed(no_answer(f"{self._address} is not open"))
        await self.wait_for_credit(self.link, self._attempt_s, self._address)
        answer: asyncio.Future[DispositionArrived] = asyncio.get_running_loop().create_future()
        tag = next(self._numbers).to_bytes(8, "big")
        delivery_id = self.link.send(payload, tag=tag, message_format=message_format, transaction=transaction)
        self._waiting[delivery_id] = answer
        self._flush()
        try:
            async with asyncio.timeout(self._attempt_s):
                answered = await answer
        except TimeoutError:
            raise ConnectionFailed(no_answer(f"{self._address} did not answer in time", in_doubt=True)) from None
        finally:
            self._waiting.pop(delivery_id, None)
        is_declared = answered.outcome is None and answered.transaction is not None
        if not is_declared and not isinstance(answered.outcome, Accepted):
            raise ConnectionFailed(failure_of_outcome(answered.outcome))
        return answered.transaction

    def on_disposition(self, event: DispositionArrived) -> None:
        for delivery_id, _ in event.deliveries:
            answer = self._waiting.get(delivery_id)
            if answer is not None and not answer.done():
                answer.set_result(event)
            if self.link is not None and not event.settled:
                self.link.settle(delivery_id, delivery_id, event.outcome)

    def on_detached(self, failure: Failure) -> None:
        super().on_detached(failure)
        self.link = None
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionFailed(failure))
