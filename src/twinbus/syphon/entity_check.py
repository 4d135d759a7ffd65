"""Whether the entities that somebody named exist at all: a mistyped name must not look like one with nothing to do."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinbus.errors import DecodeError, EnvelopeError
from twinbus.pairing.backlog_queues import backlog_path
from twinbus.pairing.envelope import read_aliases
from twinbus.pairing.failure import Failure, FailureKind
from twinbus.syphon.line import Line
from twinbus.syphon.linked import LineFailed
from twinbus.syphon.look import pages
from twinbus.syphon.queue_search import ABSENT, SAYS_NOTHING

if TYPE_CHECKING:
    from twinbus.dial import Dial

_SAYS_NOTHING = SAYS_NOTHING | {FailureKind.UNAUTHORISED}
"""Answers of the primary that tell neither that an entity is there nor that it is not; any other shows that it is."""


@dataclass(frozen=True, slots=True)
class EntityCheck:
    unknown: tuple[str, ...]
    """Neither on the primary nor named by a message of the backlog."""
    untold: dict[str, Failure]
    """Not named by a message of the backlog, and the primary did not say, and why."""


async def check_entities(
    primary: Dial,
    secondary: Dial,
    primary_name: str,
    queues: Sequence[int],
    names: Collection[str],
    *,
    attempt_s: float,
) -> EntityCheck:
    """Looks through the backlog only for names that the primary does not know. Raises `LineFailed` if nobody can."""
    absent = await _absent(primary, names, attempt_s)
    if absent:
        line = _line(secondary, attempt_s)
        await line.open()
        try:
            for index in queues:
                absent = await _not_named_in(line, backlog_path(primary_name, index), absent)
        finally:
            await line.close()
    unknown = tuple([name for name, why in absent.items() if why.kind in ABSENT])
    return EntityCheck(unknown, {name: why for name, why in absent.items() if name not in unknown})


async def _absent(primary: Dial, names: Collection[str], attempt_s: float) -> dict[str, Failure]:
    """The names that the primary does not know, or of which it does not say whether it does."""
    line = _line(primary, attempt_s)
    try:
        await line.open()
    except LineFailed as error:
        return dict.fromkeys(sorted(names), error.failure)
    try:
        answers = {name: await _answer(line, name) for name in sorted(names)}
    finally:
        await line.close()
    return {name: why for name, why in answers.items() if why is not None and why.kind in ABSENT | _SAYS_NOTHING}


async def _answer(line: Line, name: str) -> Failure | None:
    try:
        await line.try_sender(name)
    except LineFailed as error:
        return error.failure
    return None


async def _not_named_in(line: Line, path: str, names: dict[str, Failure]) -> dict[str, Failure]:
    """Those of these names that no message of a queue has."""
    left = dict(names)
    async for letters in pages(line, path):
        for letter in letters:
            named = _destination(letter)
            left = {name: why for name, why in left.items() if name.casefold() != named}
        if not left:
            break
    return left


def _destination(letter: bytes) -> str | None:
    try:
        return read_aliases(letter).path.casefold()
    except (EnvelopeError, DecodeError):
        return None


def _line(dial: Dial, attempt_s: float) -> Line:
    return Line(dial, attempt_s=attempt_s, clock=lambda: int(time.monotonic() * 1000))
