"""Posts the reports of one process, on a connection of its own: no send ever waits for the board."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from time import monotonic, time
from typing import Protocol

import msgspec

from twinbus.amqp.codec.outcomes import RELEASED
from twinbus.amqp.events import TransferArrived
from twinbus.board.message import encode_post
from twinbus.board.queue import LIFE_S, board_path
from twinbus.board.quorum import SharedFindings
from twinbus.board.report import ProcessPhase, ProcessReport, encode_report
from twinbus.board.schedule import CLEAR_EVERY_S, PostSchedule, every_s
from twinbus.pairing.sending.failure import Failure
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.dial import Dial
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.annotations import enqueued_ms
from twinbus.transport.links.link_handler import LinkHandler
from twinbus.transport.links.peek import peek
from twinbus.transport.links.single_sender import SingleSender
from twinbus.transport.shared_connection import SharedConnection

logger = logging.getLogger("twinbus.board")

POSTER_NAME = "board"
GATHER_S = 0.2
"""Between a change and the look at it."""
LAST_WORD_S = 1.0
"""How long closing waits for the report that says so."""


class PostedCounts(Protocol):
    """Who counts what the board costs."""

    def posted(self, path: str, size: int) -> None: ...
    def peeked(self, path: str, messages: Sequence[bytes]) -> None: ...
    def cleared(self, path: str) -> None: ...


class NoCounts:
    """Nobody counts."""

    def posted(self, path: str, size: int) -> None: ...
    def peeked(self, path: str, messages: Sequence[bytes]) -> None: ...
    def cleared(self, path: str) -> None: ...


class BoardPoster:
    """For one event loop. `run` it in a task; cancel that, then `close`."""

    def __init__(
        self,
        dial: Dial,
        primary_name: str,
        instance: str,
        report: Callable[[], ProcessReport],
        *,
        attempt_s: float = 5.0,
        clears: bool = False,
        counts: PostedCounts | None = None,
        findings: SharedFindings | None = None,
        on_trouble: Callable[[str | None], None] = lambda _why: None,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`report` says how this process is now; its instance, number and `every_s` are filled in here.

        `clears`: this process has Listen, and sees to it now and then that nothing that is over is kept. `on_trouble`
        gets why nothing can be posted, and None when it can again. With `findings` reports are signed.
        """
        self.path = board_path(primary_name)
        self._instance, self._report = instance, report
        self._attempt_s, self._clears = attempt_s, clears
        self._counts = counts or NoCounts()
        self._findings = findings
        self._on_trouble = on_trouble
        self._clock, self._wall_clock, self._chance = clock, wall_clock, chance
        self._schedule = PostSchedule(clock())
        self._number = 0
        self._trouble: str | None = None
        self._woken = asyncio.Event()
        self._clear_at = clock() + CLEAR_EVERY_S * (0.5 + chance())
        self._shared = SharedConnection(
            lambda: NamespaceConnection(dial, attempt_s=attempt_s, name=POSTER_NAME, on_peek=self._counts.peeked)
        )
        self._sender: tuple[NamespaceConnection, SingleSender] | None = None

    def wake(self) -> None:
        """Something may have changed."""
        self._woken.set()

    async def run(self) -> None:
        """Post when it is due, until cancelled."""
        while True:
            await self._wait()
            is_woken = self._woken.is_set()
            if is_woken:
                await asyncio.sleep(GATHER_S)  # what comes thick and fast is looked at once
                self._woken.clear()
            report = self._report()
            if is_woken:
                self._schedule.changed(self._clock(), report.essence)
            if self._clock() >= self._schedule.due_at:
                await self._post(report)
            if self._clears and self._clock() >= self._clear_at:
                self._clear_at = self._clock() + CLEAR_EVERY_S
                await self._clear()

    async def end(self) -> None:
        """Say that this process ends, if that can be said at once, and close; when `run` has ended."""
        try:
            if self._number and self._shared.current is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LAST_WORD_S):
                        await self._post(_last_word(self._report()))
        finally:
            await self._shared.close()

    async def _wait(self) -> None:
        until = min(self._schedule.due_at, self._clear_at) if self._clears else self._schedule.due_at
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - self._clock())):
                await self._woken.wait()

    async def _post(self, report: ProcessReport) -> None:
        is_calm = report.is_calm
        self._number += 1
        report = msgspec.structs.replace(
            report,
            instance=self._instance,
            number=self._number,
            every_s=every_s(is_calm=is_calm),
            there_ms=None if self._findings is None else self._findings.there_ms(self._clock()),
        )
        body = encode_report(report)
        signature = "" if self._findings is None else self._findings.sign(body, self._clock())
        message = encode_post(report, body, signature)
        try:
            connection = await self._shared.get()
            if self._sender is None or self._sender[0] is not connection:
                self._sender = connection, SingleSender(connection, self._attempt_s)
            await self._sender[1].send(self.path, message)
        except ConnectionFailed as error:
            self._schedule.failed(self._clock())
            self._set_trouble(str(error.failure))
            return
        self._counts.posted(self.path, len(message))
        self._schedule.posted(self._clock(), report.essence, is_calm=is_calm, chance=self._chance())
        self._set_trouble(None)

    def _set_trouble(self, why: str | None) -> None:
        if (why is None) != (self._trouble is None):
            self._on_trouble(why)
        self._trouble = why

    # --- what is over ---

    async def _clear(self) -> None:
        """Receive once, if the first message is over: then the service removes whatever is."""
        connection = self._shared.current
        if connection is None:
            return
        try:
            first = await peek(connection, self.path, 1, 1)
            enqueued = enqueued_ms(first[0]) if first else None
            if enqueued is None or self._wall_clock() - enqueued / 1000 < LIFE_S:
                return
            clearing = ClearingLink()
            link = await connection.open_receiver(self.path, clearing)
            link.grant(1, drain=True)
            connection.flush()
            self._counts.cleared(self.path)
            await clearing.done(self._attempt_s)
            link.context = None
            link.detach()
            connection.flush()
        except ConnectionFailed as error:
            logger.debug("the board was not cleared: %s", error)


def _last_word(report: ProcessReport) -> ProcessReport:
    is_faulted = report.phase is ProcessPhase.FAULTED
    return report if is_faulted else msgspec.structs.replace(report, phase=ProcessPhase.CLOSED)


class ClearingLink(LinkHandler):
    """Asks for one message, so that the service removes those that are over, and gives back what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self._done = asyncio.Event()

    async def done(self, wait_s: float) -> None:
        """Returns when the service has answered, or after `wait_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._done.wait()

    def on_transfers(self, transfers: list[TransferArrived]) -> None:
        for transfer in transfers:
            transfer.link.settle(transfer.delivery_id, transfer.delivery_id, RELEASED)
        self._done.set()

    def on_drained(self) -> None:
        super().on_drained()
        self._done.set()

    def on_detached(self, failure: Failure) -> None:
        super().on_detached(failure)
        self._done.set()
