"""Sends one message at a time and waits for its outcome: for what is rare, and has to be known."""

from __future__ import annotations

import asyncio

from twinbus.amqp.codec.outcomes import Accepted
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.sending_link import SendingLink
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed, failure_of_outcome, no_answer
from twinbus.transport.links.link_handler import LinkHandler


class SingleSender(LinkHandler):
    """Links are opened when they are needed, and stay open for the next message."""

    def __init__(self, connection: NamespaceConnection, attempt_s: float) -> None:
        super().__init__()
        self._connection = connection
        self._attempt_s = attempt_s
        self._links: dict[str, SendingLink] = {}
        self._answer: asyncio.Future[DispositionArrived] | None = None
        self._number = 0

    async def send(self, path: str, message: bytes) -> None:
        """Returns when the entity has stored the message. Raises `ConnectionFailed`."""
        link = self._links.get(path)
        if link is None or not link.attached:
            link = self._links[path] = await self._connection.open_sender(path, self)
        await self.wait_for_credit(link, self._attempt_s, path)
        self._answer = asyncio.get_running_loop().create_future()
        self._number += 1
        link.send(message, tag=self._number.to_bytes(4, "big"))
        self._connection.flush()
        try:
            async with asyncio.timeout(self._attempt_s):
                answer = await self._answer
        except TimeoutError:
            raise ConnectionFailed(no_answer(f"{path} did not answer in time", in_doubt=True)) from None
        if not isinstance(answer.outcome, Accepted):
            raise ConnectionFailed(failure_of_outcome(answer.outcome))

    def on_disposition(self, event: DispositionArrived) -> None:
        is_latest = any(int.from_bytes(tag, "big") == self._number for _, tag in event.deliveries)
        if is_latest and self._answer is not None and not self._answer.done():
            self._answer.set_result(event)

    def on_detached(self, failure: Failure) -> None:
        super().on_detached(failure)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionFailed(failure))


class AskedOnceSender(SingleSender):
    """The same, for many messages in a row: an entity that does not answer is asked once, not a thousand times."""

    def __init__(self, connection: NamespaceConnection, attempt_s: float) -> None:
        super().__init__(connection, attempt_s)
        self._silent: set[str] = set()

    async def send(self, path: str, message: bytes) -> None:
        """Returns when the entity has stored the message. Raises `ConnectionFailed`."""
        if path in self._silent:
            raise ConnectionFailed(no_answer(f"{path} did not answer before, so it was not asked again"))
        try:
            await super().send(path, message)
        except ConnectionFailed as error:
            if error.failure.kind in (FailureKind.NO_ANSWER, FailureKind.TIMED_OUT):
                self._silent.add(path)
            raise
