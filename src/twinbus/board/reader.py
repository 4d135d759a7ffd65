"""Reads the board of a pair: needs Listen on that queue, takes nothing, and never raises for what lies there.

    reader = BoardReader(secondary.dial(5.0), "contoso")
    fleet = await reader.look()       # again and again: only what is new is read
    await reader.close()

`read_board` is the same for one look, without an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic, time
from typing import Self

from twinbus.board.board_peek import BoardLook, Look, PostedReport, look
from twinbus.board.fleet import NO_BOARD, Fleet, FleetMemory
from twinbus.board.message import read_post
from twinbus.board.queue import board_path
from twinbus.board.report import said
from twinbus.errors import DecodeError
from twinbus.pairing.sending.failure import FailureKind
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.dial import Dial
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.annotations import enqueued_ms, sequence_of
from twinbus.transport.links.peek import peek
from twinbus.transport.shared_connection import SharedConnection

ABSENT = frozenset((FailureKind.NOT_FOUND, FailureKind.DELETED))
READER_NAME = "board-reader"
LOOK_ATTEMPTS = 6
"""A look has several requests; so many times the limit of one is the limit of all."""


class BoardReader:
    """For one event loop; one look at a time."""

    def __init__(
        self,
        dial: Dial,
        primary_name: str,
        *,
        attempt_s: float = 5.0,
        on_peek: Callable[[str, Sequence[bytes]], None] = lambda _path, _messages: None,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
    ) -> None:
        """`dial`: the secondary. `attempt_s` limits a request; `on_peek` gets every peek, because peeks are charged."""
        self.path = board_path(primary_name)
        self._attempt_s = attempt_s
        self._clock, self._wall_clock = clock, wall_clock
        self._memory = FleetMemory()
        self._shared = SharedConnection(
            lambda: NamespaceConnection(dial, attempt_s=attempt_s, name=READER_NAME, on_peek=on_peek)
        )

    async def look(self) -> Fleet:
        """The fleet as it is known now. If the board cannot be read, what is remembered, and why it is not known."""
        try:
            async with asyncio.timeout(LOOK_ATTEMPTS * self._attempt_s):
                found = await self._look()
        except TimeoutError:
            return self._as_remembered("the board cannot be read: no answer in time")
        except ConnectionFailed as error:
            if error.failure.kind in ABSENT:
                self._memory = self._memory.anew()
                return NO_BOARD
            return self._as_remembered(f"the board cannot be read: {error.failure}")
        except DecodeError as error:
            return self._as_remembered(f"the board cannot be read: {error}")
        self._memory.add(found, self._clock())
        return self._memory.fleet(self._clock(), self._wall_clock())

    async def _look(self) -> BoardLook:
        return await run_look(await self._shared.get(), self.path, look(self._memory.next_sequence))

    def _as_remembered(self, why: str) -> Fleet:
        remembered = self._memory.fleet(self._clock(), self._wall_clock())
        return replace(remembered, has_board=None, problem=said(why))

    async def close(self) -> None:
        await self._shared.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


def read_board(
    dial: Dial,
    primary_name: str,
    *,
    attempt_s: float = 5.0,
    on_peek: Callable[[str, Sequence[bytes]], None] = lambda _path, _messages: None,
) -> Fleet:
    """One look, from a thread without an event loop; bounded in time, because peeks are."""

    async def once() -> Fleet:
        async with BoardReader(dial, primary_name, attempt_s=attempt_s, on_peek=on_peek) as reader:
            return await reader.look()

    return asyncio.run(once())


async def run_look(connection: NamespaceConnection, path: str, flow: Look) -> BoardLook:
    """What a look finds. Raises `ConnectionFailed` and `DecodeError`."""
    ask = next(flow)
    try:
        while True:
            messages = await peek(connection, path, ask.from_sequence, ask.most)
            ask = flow.send([_read(message) for message in messages])
    except StopIteration as done:
        found: BoardLook = done.value
        return found


def _read(message: bytes) -> PostedReport:
    return read_post(message, sequence_of(message), enqueued_ms(message))
