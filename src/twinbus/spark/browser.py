"""Looking into queues from code that has no event loop: by peeking, so nothing is taken.

The connection lives on a thread of its own, is made when it is first needed and made again when it is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from twinbus.dial import Dial
from twinbus.errors import TwinbusError
from twinbus.pairing.failure import Failure
from twinbus.spark.loop_thread import LoopThread
from twinbus.syphon.line import Line
from twinbus.syphon.linked import LineFailed
from twinbus.syphon.look import Wants, count_others, is_waiting, last_number, left_in, peek, sequence_of
from twinbus.syphon.quarantine import count_quarantined

Result = TypeVar("Result")


class Extent(NamedTuple):
    """The first and the last number in a queue; numbers between them may be gone."""

    first: int
    last: int

    @property
    def depth(self) -> int:
        """About how many messages that are, and never fewer."""
        return self.last - self.first + 1


class Unreachable(TwinbusError):
    """A queue or a namespace did not answer, or did not let us in; `failure` says why."""

    def __init__(self, text: str, failure: Failure) -> None:
        super().__init__(text)
        self.failure = failure

    def __reduce__(self) -> tuple[type[Unreachable], tuple[str, Failure]]:
        # Between the processes of Spark exceptions are pickled, and what the failure holds on to may not be.
        failure = Failure(self.failure.kind, self.failure.text, self.failure.condition)
        return Unreachable, (str(self), failure)


class Browser:
    """Use it in a `with` block, or `close` it."""

    def __init__(self, dial: Dial, attempt_s: float = 15.0) -> None:
        self._dial = dial
        self._attempt_s = attempt_s
        self._line: Line | None = None
        self._loop = LoopThread("twinbus-browser")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave nothing behind; harmless when it is closed."""
        if not self._loop.is_closed and self._line is not None:
            self._loop.run(self._line.close())
        self._loop.close()

    # --- looks ---

    def peek(self, path: str, from_sequence: int, most: int) -> list[bytes]:
        """Up to `most` messages from a number on, in their order."""
        return self._ask(path, lambda line: peek(line, path, from_sequence, most))

    def first(self, path: str, from_sequence: int = 1) -> int | None:
        """The first number in use from a number on, which costs one peek; None: there is none."""
        found = self.peek(path, from_sequence, 1)
        return sequence_of(found[0]) if found else None

    def waiting(self, paths: Sequence[str]) -> dict[str, Extent]:
        """The queues with messages that a receiver gets some day, if only when locks have ended; all asked at once."""
        found = self._ask(", ".join(paths[:3]), lambda line: _gathered([_waiting(line, path) for path in paths]))
        return {path: extent for path, extent in zip(paths, found, strict=True) if extent is not None}

    def waiting_or_refused(self, paths: Sequence[str]) -> tuple[dict[str, Extent], dict[str, Failure]]:
        """The same, and the queues that cannot be looked into though the namespace can, and why. An empty queue costs
        one peek.
        """
        found = self._ask(", ".join(paths[:3]), lambda line: _gathered([_sight(line, path) for path in paths]))
        seen = dict(zip(paths, found, strict=True))
        waiting = {path: sight for path, sight in seen.items() if isinstance(sight, Extent)}
        return waiting, {path: sight for path, sight in seen.items() if isinstance(sight, Failure)}

    def quarantined(self, primary_name: str, queues: Sequence[int], wants: Wants) -> int:
        """How many messages of the backlog that are wanted are in quarantine; not counted beyond 10,000."""
        return self._ask("the quarantine", lambda line: count_quarantined(line, primary_name, queues, wants))

    def others(self, primary_name: str, queues: Sequence[int], allows: Callable[[str], bool]) -> int:
        """How many messages of the backlog are for entities that are not allowed; not counted beyond 10,000."""
        return self._ask("the backlog", lambda line: count_others(line, primary_name, queues, allows))

    def has_wanted(self, path: str, wants: Wants) -> bool:
        """Whether a queue holds a message that is to be moved."""
        return self._ask(path, lambda line: left_in(line, path, wants))

    def firsts(self, begins: Mapping[str, int]) -> dict[str, int]:
        """By queue the first number in use from a number on; queues that have none are left out. All asked at once."""
        asked = list(begins.items())
        found = self._ask(", ".join(list(begins)[:3]), lambda line: _gathered([peek(line, *each, 1) for each in asked]))
        return {path: sequence_of(letters[0]) for (path, _), letters in zip(asked, found, strict=True) if letters}

    def run(self, what: str, look: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """What a look has found that makes a connection of its own."""
        try:
            return self._loop.run(look())
        except LineFailed as error:
            raise Unreachable(f"{what} of {self._where}: {error.failure}", error.failure) from None

    # --- the connection ---

    @property
    def _where(self) -> str:
        return f"{self._dial.hostname or self._dial.host}:{self._dial.port}"

    def _ask(self, path: str, question: Callable[[Line], Awaitable[Result]]) -> Result:
        """Raises `Unreachable`. A connection that was lost since the last question is made again."""
        try:
            return self._loop.run(self._asked(question))
        except LineFailed as error:
            raise Unreachable(f"{path} of {self._where}: {error.failure}", error.failure) from None

    async def _asked(self, question: Callable[[Line], Awaitable[Result]]) -> Result:
        is_old = self._line is not None
        try:
            return await question(await self._opened())
        except LineFailed:
            if not is_old or (self._line is not None and self._line.is_open):
                raise
        return await question(await self._opened())

    async def _opened(self) -> Line:
        if self._line is None or not self._line.is_open:
            line = Line(self._dial, attempt_s=self._attempt_s, clock=lambda: int(time.monotonic() * 1000))
            await line.open()
            self._line = line
        return self._line


async def _gathered(looks: Iterable[Awaitable[Result]]) -> list[Result]:
    """All results; the first failure only when nothing is under way any more."""
    found = await asyncio.gather(*looks, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return [each for each in found if not isinstance(each, BaseException)]


async def _sight(line: Line, path: str) -> Extent | Failure | None:
    try:
        return await _waiting(line, path)
    except LineFailed as error:
        if not line.is_open:
            raise
        return error.failure


async def _waiting(line: Line, path: str) -> Extent | None:
    found = await peek(line, path, 1, 1)
    if not found:
        return None
    if not is_waiting(found[0]) and not await left_in(line, path, lambda _path, _since_ms: True):
        return None
    return await _extent_from(line, path, sequence_of(found[0]))


async def _extent_from(line: Line, path: str, first: int) -> Extent:
    """`first` is a number in use."""
    return Extent(first, await last_number(line, path, first))
