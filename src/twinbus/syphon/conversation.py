"""A pair of links to one node: a request goes out on one, its answer comes back on the other."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from itertools import count

from twinbus.amqp.events import TransferArrived
from twinbus.amqp.link import ReceivingLink, SendingLink
from twinbus.amqp.outcomes import ACCEPTED
from twinbus.amqp.types import Value
from twinbus.errors import DecodeError
from twinbus.pairing.failure import Failure
from twinbus.syphon.linked import LineFailed, Linked
from twinbus.syphon.requests import Answer, read_answer, write_request

ANSWER_CREDIT = 100


class Conversation(Linked):
    """Several requests may be under way; each finds its own answer."""

    def __init__(self, flush: Callable[[], None]) -> None:
        super().__init__()
        self.name = f"syphon-{uuid.uuid4().hex}"
        self._flush = flush
        self._ids = count(1)
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._failure: Failure | None = None
        self._asking: SendingLink | None = None

    @property
    def is_open(self) -> bool:
        return self._failure is None and self._asking is not None

    def begin(self, asking: SendingLink, answers: ReceivingLink) -> None:
        """Both links are there."""
        self._asking = asking
        answers.keep_credit = ANSWER_CREDIT
        self._flush()

    async def ask(self, properties: dict[str, Value], body: Value) -> Answer:
        """The node's answer. Raises `LineFailed` if the links go; the caller bounds the waiting."""
        if self._failure is not None:
            raise LineFailed(self._failure)
        assert self._asking is not None, "ask after begin"
        await self.credit_granted(self._asking)
        message_id = f"{self.name}:{next(self._ids)}"
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[message_id] = future
        try:
            request = write_request(message_id, self.name, properties, body)
            self._asking.send(request, tag=message_id[-16:].encode(), settled=True)
            self._flush()
            return await future
        finally:
            del self._waiting[message_id]

    # --- called by the line ---

    def transfers(self, arrived: list[TransferArrived]) -> None:
        for transfer in arrived:
            if not transfer.settled:
                transfer.link.settle(transfer.delivery_id, transfer.delivery_id, ACCEPTED)
            try:
                asked, answer = read_answer(transfer.payload)
            except DecodeError:
                continue  # nobody can be told; whoever waits for it gives up in time
            future = self._waiting.get(asked) if isinstance(asked, str) else None
            if future is not None and not future.done():
                future.set_result(answer)

    def gone(self, failure: Failure) -> None:
        super().gone(failure)
        self._failure = failure
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LineFailed(failure))
