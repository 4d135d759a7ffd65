"""Looking for canaries, at home and in the backlog, by peeking: nothing is taken and nobody is disturbed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from twinbus.amqp import sections
from twinbus.amqp.sections import PropertyField
from twinbus.amqp.types import Value, text_of
from twinbus.dial import Dial
from twinbus.drill.canaries import MARK
from twinbus.syphon.failures import failure_of
from twinbus.syphon.line import Line
from twinbus.syphon.linked import LineFailed
from twinbus.syphon.look import PAGE, last_number, pages, peek, sequence_of
from twinbus.syphon.requests import peek_body, peeked


class Sight:
    """One place at home where the canaries of one drill come to. Raises `LineFailed`."""

    def __init__(
        self, dial: Dial, path: str, drill: str, session: str | None, attempt_s: float, *, rereads: bool = False
    ) -> None:
        """`path` is a queue, or a subscription as `topic/Subscriptions/name`.

        `rereads`: every look is at everything, because numbers do not grow there (the service has a range of them for
        each partition).
        """
        self._dial = dial
        self._path = path
        self._drill = drill
        self._session = session
        self._attempt_s = attempt_s
        self._rereads = rereads
        self._next = 1

    async def skip_what_is_there(self) -> None:
        """Look only at what comes from now on: a deep queue is not read from its beginning at every look."""
        if self._rereads:
            return
        async with _line(self._dial, self._attempt_s) as line:
            first = await peek(line, self._path, 1, 1)
            if first:
                self._next = 1 + await last_number(line, self._path, sequence_of(first[0]))

    async def look(self) -> list[tuple[str, int]]:
        """Canaries that have not been told yet, each copy with its sequence number."""
        found: list[tuple[str, int]] = []
        if self._rereads:
            self._next = 1
        async with _line(self._dial, self._attempt_s) as line:
            while letters := await self._peek(line):
                named = [(name_of(letter, self._drill), sequence_of(letter)) for letter in letters]
                found += [(name, sequence) for name, sequence in named if name is not None]
                self._next = named[-1][1] + 1
        return found

    async def at_head(self) -> int:
        """How many canaries lie in front of everybody else's messages."""
        count = 0
        async with _line(self._dial, self._attempt_s) as line:
            async for letters in pages(line, self._path):
                for letter in letters:
                    if name_of(letter, self._drill) is None:
                        return count
                    count += 1
        return count

    async def _peek(self, line: Line) -> list[bytes]:
        session: dict[str, Value] = {} if self._session is None else {"session-id": self._session}
        answer = await line.ask(self._path, "peek-message", peek_body(self._next, PAGE) | session)
        if not answer.is_good:
            raise LineFailed(failure_of(answer.error))
        return peeked(answer)


async def canaries_in(dial: Dial, paths: list[str], drill: str, attempt_s: float) -> set[str]:
    """The canaries that lie in these queues. Raises `LineFailed`."""
    found: set[str] = set()
    async with _line(dial, attempt_s) as line:
        for path in paths:
            async for letters in pages(line, path):
                found |= {name for letter in letters if (name := name_of(letter, drill)) is not None}
    return found


def name_of(letter: bytes, drill: str) -> str | None:
    """The id of a canary of this drill; None for any other message."""
    layout = sections.walk(letter)
    if sections.read_application_property(letter, layout, MARK) != drill:
        return None
    return text_of(sections.read_property(letter, layout, PropertyField.MESSAGE_ID))


@asynccontextmanager
async def _line(dial: Dial, attempt_s: float) -> AsyncIterator[Line]:
    line = Line(dial, attempt_s=attempt_s, clock=lambda: int(time.monotonic() * 1000))
    await line.open()
    try:
        yield line
    finally:
        await line.close()
