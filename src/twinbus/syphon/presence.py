"""Which backlog queues are there and may be read: asked first, so that a wrong name is told at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinbus.pairing.backlog_queues import backlog_path
from twinbus.pairing.failure import Failure, FailureKind
from twinbus.syphon.line import Line
from twinbus.syphon.linked import LineFailed
from twinbus.syphon.look import PAGE, Wants, peek
from twinbus.syphon.placement import problem_of_letter

if TYPE_CHECKING:
    from twinbus.dial import Dial

FOR_GOOD = frozenset((FailureKind.NOT_FOUND, FailureKind.DELETED, FailureKind.UNAUTHORISED))
"""What does not pass by itself: somebody has to make a queue, or to give a right."""


@dataclass(frozen=True, slots=True)
class Presence:
    queues: tuple[int, ...]
    """Those to work with: there and readable, or in a trouble that may pass."""
    missing: dict[int, Failure]
    """The others, and why."""


async def presence(secondary: Dial, primary_name: str, queue_count: int, *, attempt_s: float = 15.0) -> Presence:
    """Peek into every queue once. Raises `LineFailed` if the secondary cannot be reached."""
    line = Line(secondary, attempt_s=attempt_s, clock=lambda: int(time.monotonic() * 1000))
    await line.open()
    try:
        found = [await _failure(line, backlog_path(primary_name, index)) for index in range(queue_count)]
    finally:
        await line.close()
    missing = {index: each for index, each in enumerate(found) if each is not None and each.kind in FOR_GOOD}
    return Presence(tuple([index for index in range(queue_count) if index not in missing]), missing)


async def _failure(line: Line, path: str) -> Failure | None:
    try:
        await peek(line, path, 1, 1)
    except LineFailed as error:
        return error.failure
    return None


async def first_order_problem(
    secondary: Dial, primary_name: str, queues: Sequence[int], wants: Wants, *, attempt_s: float
) -> str | None:
    """Look at the head of every queue: why order cannot be promised there. Raises `LineFailed`."""
    line = Line(secondary, attempt_s=attempt_s, clock=lambda: int(time.monotonic() * 1000))
    await line.open()
    try:
        for queue in queues:
            path = backlog_path(primary_name, queue)
            for letter in await peek(line, path, 1, PAGE):
                problem = problem_of_letter(letter, queue, queues, wants)
                if problem is not None:
                    return f"{path}: {problem}"
    finally:
        await line.close()
    return None


def chosen(queue_count: int, queues: Sequence[int] | None) -> Sequence[int]:
    """The indexes of the queues to work with: all, unless some are named."""
    return range(queue_count) if queues is None else queues
