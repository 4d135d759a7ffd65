"""Takes chosen messages out of a queue: receives under lock until all of them have come, and gives the others back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from twinbus.amqp.codec.outcomes import ACCEPTED, RELEASED, Error, Outcome, Rejected
from twinbus.amqp.codec.types import Symbol
from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.pairing.sending.failure import Failure
from twinbus.transport.failures import ConnectionFailed, failure_of_outcome, no_answer
from twinbus.transport.links.annotations import sequence_of
from twinbus.transport.links.link_handler import LinkHandler

if TYPE_CHECKING:
    from twinbus.transport.connection import NamespaceConnection

CREDIT = 100
QUIET_S = 1.0
UNDER_LOCK = "locked by another receiver: try again later"
TOO_FAR = "too many messages lie before it: their locks ended before it arrived; remove those first"
DEAD_LETTER_CONDITION = "com.microsoft:dead-letter"

Take = Callable[[TransferArrived], Awaitable[bool]]
"""Deals with a chosen message; True if it is settled, False to give it back."""


def dead_lettered(reason: str, description: str) -> Rejected:
    """The outcome with which a receiver moves a message to the dead-letter queue."""
    info = {Symbol("DeadLetterReason"): reason, Symbol("DeadLetterErrorDescription"): description}
    return Rejected(Error(DEAD_LETTER_CONDITION, description or reason, info))


class LockedReader(LinkHandler):
    """Messages of a queue, one at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived: asyncio.Queue[TransferArrived] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[DispositionArrived]] = {}
        self.failure: Failure | None = None
        """Why the link ended, if it did."""

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

    def take_arrived(self) -> list[TransferArrived]:
        """What has arrived already, without waiting."""
        return [self._arrived.get_nowait() for _ in range(self._arrived.qsize())]

    async def settle(
        self, link: ReceivingLink, delivery_id: int, outcome: Outcome, flush: Callable[[], None], wait_s: float
    ) -> None:
        """Settle a message. Raises `ConnectionFailed` if the queue does not confirm it."""
        answer = self._answers[delivery_id] = asyncio.get_running_loop().create_future()
        link.settle(delivery_id, delivery_id, outcome, settled=False)
        flush()
        try:
            async with asyncio.timeout(wait_s):
                settled_as = (await answer).outcome
        except TimeoutError:
            raise ConnectionFailed(no_answer("the queue did not answer in time", in_doubt=True)) from None
        finally:
            del self._answers[delivery_id]
        # A dead-lettering is confirmed by a rejection without an error.
        if isinstance(settled_as, Rejected) and (settled_as.error is not None or not isinstance(outcome, Rejected)):
            raise ConnectionFailed(failure_of_outcome(settled_as))

    def on_disposition(self, event: DispositionArrived) -> None:
        for delivery_id, _ in event.deliveries:
            answer = self._answers.get(delivery_id)
            if answer is not None and not answer.done():
                answer.set_result(event)

    def on_detached(self, failure: Failure) -> None:
        super().on_detached(failure)
        self.failure = failure
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionFailed(failure))


class SelectiveReceive:
    """One search in one queue: `run` it once."""

    def __init__(self, connection: NamespaceConnection, path: str, attempt_s: float) -> None:
        self._connection = connection
        self._path = path
        self._attempt_s = attempt_s
        self._reader = LockedReader()
        self._link: ReceivingLink | None = None
        self._to_release: list[int] = []
        """Delivery ids."""
        self._passed: dict[int, int] = {}
        """Messages that were passed over, by number, and how many chosen ones were missing then."""

    async def run(
        self, chosen: set[int], take: Take, *, session_id: str | None = None, at_once: bool = False
    ) -> dict[int, str]:
        """Call `take` with each message that has one of these sequence numbers; the numbers that never came, and why.

        `at_once`: for all that have arrived together, not one after the other. With `session_id` messages come from
        that session, as they must where a queue demands one. Raises `ConnectionFailed` if the queue cannot be read.
        """
        where = {} if session_id is None else {"session_id": session_id}
        self._link = link = await self._connection.open_receiver(self._path, self._reader, **where)
        link.keep_credit = CREDIT
        self._connection.flush()
        missing, why_not = set(chosen), UNDER_LOCK
        try:
            while missing and why_not is UNDER_LOCK:
                first = await self._reader.next(QUIET_S)
                if first is None:
                    break
                wanted, is_stuck = self._sort([first, *self._reader.take_arrived()], missing)
                why_not = TOO_FAR if is_stuck else why_not
                if at_once:
                    settled = await asyncio.gather(*map(take, wanted))
                else:
                    settled = [await take(transfer) for transfer in wanted]
                kept = [transfer for transfer, is_settled in zip(wanted, settled, strict=True) if not is_settled]
                self._to_release += [transfer.delivery_id for transfer in kept]
        finally:
            await self._leave(link)
        return dict.fromkeys(missing, why_not if self._reader.failure is None else str(self._reader.failure))

    async def complete(self, transfer: TransferArrived) -> None:
        """Take a message off the queue. Raises `ConnectionFailed` if the queue does not confirm it."""
        await self.settle(transfer, ACCEPTED)

    async def settle(self, transfer: TransferArrived, outcome: Outcome) -> None:
        """Raises `ConnectionFailed` if the queue does not confirm it."""
        assert self._link is not None, "settled within run"
        await self._reader.settle(self._link, transfer.delivery_id, outcome, self._connection.flush, self._attempt_s)

    def _sort(self, arrived: Iterable[TransferArrived], missing: set[int]) -> tuple[list[TransferArrived], bool]:
        """The chosen ones, no longer missing; and whether nothing more is to be expected.

        If a message comes again its lock has ended, and if none of the missing ones arrived meanwhile, none ever will.
        """
        wanted, is_stuck = [], False
        for transfer in arrived:
            sequence = sequence_of(transfer.payload)
            if sequence in missing:
                missing.discard(sequence)
                wanted.append(transfer)
                continue
            self._to_release.append(transfer.delivery_id)
            before, self._passed[sequence] = self._passed.get(sequence), len(missing)
            is_stuck = is_stuck or before == len(missing)
        return wanted, is_stuck

    async def _leave(self, link: ReceivingLink) -> None:
        if self._reader.failure is not None:
            return
        await self._reader.drain(link, self._connection.flush, QUIET_S)  # or what is released now comes again at once
        unread = [transfer.delivery_id for transfer in self._reader.take_arrived()]
        for delivery_id in self._to_release + unread:
            link.settle(delivery_id, delivery_id, RELEASED)
        link.context = None
        link.detach()
        self._connection.flush()
