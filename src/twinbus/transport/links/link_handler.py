"""Receives what happens on a link of ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sending_link import SendingLink
from twinbus.pairing.sending.failure import Failure
from twinbus.transport.failures import ConnectionFailed, no_answer


class LinkHandler:
    """The base of everything that owns a link; the `on_` methods are called in the event loop and must not wait."""

    def __init__(self) -> None:
        self._credit_waiters: list[asyncio.Future[None]] = []
        self._is_drained = asyncio.Event()

    def on_transfers(self, transfers: list[TransferArrived]) -> None:
        """Messages arrived together."""

    def on_disposition(self, event: DispositionArrived) -> None:
        """The peer settled deliveries."""

    def on_credit(self, link: SendingLink) -> None:
        """The peer changed our credit."""
        for waiter in self._take_credit_waiters():
            waiter.set_result(None)

    def on_detached(self, failure: Failure) -> None:
        """The link ended, and not because we wanted it."""
        for waiter in self._take_credit_waiters():
            waiter.set_exception(ConnectionFailed(failure))

    def on_drained(self) -> None:
        """Nothing more comes until credit is granted again."""
        self._is_drained.set()

    def _take_credit_waiters(self) -> list[asyncio.Future[None]]:
        waiters, self._credit_waiters = self._credit_waiters, []
        return [waiter for waiter in waiters if not waiter.done()]

    async def drain(self, link: ReceivingLink, flush: Callable[[], None], wait_s: float) -> None:
        """Take all credit back and wait, at most `wait_s`, until nothing more can be on its way to us."""
        self._is_drained.clear()
        link.keep_credit = 0
        link.grant(0)
        link.drain()
        flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._is_drained.wait()

    async def wait_for_credit(self, link: SendingLink, wait_s: float, path: str) -> None:
        """Wait until a message may be sent. Raises `ConnectionFailed` after `wait_s`, or if the link ends."""
        try:
            async with asyncio.timeout(wait_s):
                while not link.credit:
                    waiter = asyncio.get_running_loop().create_future()
                    self._credit_waiters.append(waiter)
                    await waiter
        except TimeoutError:
            raise ConnectionFailed(no_answer(f"{path} grants no credit at the moment")) from None
