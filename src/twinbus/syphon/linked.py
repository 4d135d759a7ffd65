"""Whoever a link of ours belongs to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.link import ReceivingLink, SendingLink
from twinbus.errors import TwinbusError
from twinbus.pairing.failure import Failure
from twinbus.syphon.failures import no_answer


class LineFailed(TwinbusError):
    """A connection, a link or a request came to nothing; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Linked:
    """What happens on a link is told here; whoever does not care leaves it as it is."""

    def __init__(self) -> None:
        self._credit_waiters: list[asyncio.Future[None]] = []
        self._is_drained = asyncio.Event()

    def transfers(self, arrived: list[TransferArrived]) -> None:
        """Messages came, in one piece."""

    def disposition(self, event: DispositionArrived) -> None:
        """The peer has said how deliveries ended."""

    def credit(self, link: SendingLink) -> None:
        """The peer takes more messages, or fewer."""
        waiters, self._credit_waiters = self._credit_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def gone(self, failure: Failure) -> None:
        """The link is over, not by our wish."""
        waiters, self._credit_waiters = self._credit_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(LineFailed(failure))

    def drained(self) -> None:
        """Nothing more comes until credit is granted again."""
        self._is_drained.set()

    async def drain(self, link: ReceivingLink, flush: Callable[[], None], wait_s: float) -> None:
        """Take all credit back and wait, but not for ever, until nothing more can be on its way to us."""
        self._is_drained.clear()
        link.keep_credit = 0
        link.grant(0)
        link.drain()
        flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._is_drained.wait()

    async def credit_granted(self, link: SendingLink) -> None:
        """Wait until something may be sent."""
        while not link.credit:
            waiter = asyncio.get_running_loop().create_future()
            self._credit_waiters.append(waiter)
            await waiter

    async def credit_within(self, link: SendingLink, wait_s: float, path: str) -> None:
        """The same, but not for ever: raises `LineFailed`."""
        try:
            async with asyncio.timeout(wait_s):
                await self.credit_granted(link)
        except TimeoutError:
            raise LineFailed(no_answer(f"{path} takes nothing at the moment")) from None
