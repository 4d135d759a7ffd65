"""Looking into backlog queues without taking anything: what is left in them, and about how much."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import TYPE_CHECKING

from twinbus.amqp import sections
from twinbus.errors import DecodeError, EnvelopeError
from twinbus.pairing.backlog_queues import backlog_path
from twinbus.pairing.envelope import read_aliases
from twinbus.syphon.failures import failure_of
from twinbus.syphon.letters import enqueued_ms
from twinbus.syphon.linked import LineFailed
from twinbus.syphon.requests import peek_body, peeked

if TYPE_CHECKING:
    from twinbus.syphon.line import Line

PAGE = 250
OTHERS_MAX = 10_000
DEAD_LETTERS = "/$DeadLetterQueue"
"""Behind the path of a queue: the path of its dead letters."""
_ACTIVE = 0

Wants = Callable[[str, int | None], bool]


async def peek(line: Line, path: str, from_sequence: int, most: int) -> list[bytes]:
    """Up to `most` messages from a sequence number on, whatever their state. Raises `LineFailed`."""
    answer = await line.ask(path, "peek-message", peek_body(from_sequence, most))
    if not answer.is_good:
        raise LineFailed(failure_of(answer.error))
    letters = peeked(answer)
    line.peeked(path, letters)
    return letters


def sequence_of(letter: bytes) -> int:
    value = sections.read_annotation(letter, sections.walk(letter), "x-opt-sequence-number")
    if not isinstance(value, int):
        raise DecodeError("a peeked message has no sequence number")
    return int(value)


def is_waiting(letter: bytes) -> bool:
    """Whether a receiver will get the message some day: it is neither scheduled nor deferred."""
    return sections.read_annotation(letter, sections.walk(letter), "x-opt-message-state") in (None, _ACTIVE)


async def pages(line: Line, path: str) -> AsyncIterator[list[bytes]]:
    """All messages of a queue, in pages."""
    at = 1
    while letters := await peek(line, path, at, PAGE):
        yield letters
        at = sequence_of(letters[-1]) + 1


async def left_in(line: Line, path: str, wants: Wants) -> bool:
    """Whether a queue holds a message, locked or not, that is to be moved."""
    async for letters in pages(line, path):
        if any(is_waiting(letter) and _is_wanted(letter, wants) for letter in letters):
            return True
    return False


async def count_wanted(line: Line, path: str, wants: Wants, most: int) -> int:
    """How many messages of a queue are for us; not counted beyond `most`, for there may be millions."""
    count = 0
    async for letters in pages(line, path):
        count += sum([_is_wanted(letter, wants) for letter in letters])
        if count >= most:
            return most
    return count


async def count_others(line: Line, primary_name: str, queues: Iterable[int], allows: Callable[[str], bool]) -> int:
    """How many messages wait for entities that are not allowed. Raises `LineFailed`.

    Not counted beyond `OTHERS_MAX`: each 250 of them cost a peek.
    """
    count = 0
    for index in queues:
        async for letters in pages(line, backlog_path(primary_name, index)):
            count += sum([is_waiting(letter) and _is_outside(letter, allows) for letter in letters])
            if count >= OTHERS_MAX:
                return OTHERS_MAX
    return count


def _is_outside(letter: bytes, allows: Callable[[str], bool]) -> bool:
    try:
        return not allows(read_aliases(letter).path)
    except (EnvelopeError, DecodeError):
        return False  # it will be put aside


def _is_wanted(letter: bytes, wants: Wants) -> bool:
    try:
        return wants(read_aliases(letter).path, enqueued_ms(letter))
    except (EnvelopeError, DecodeError):
        return True  # it will be put aside, and that is to be done too


# --- about how many -------------------------------------------------------------------------------


async def rough_depth(line: Line, path: str) -> int:
    """About how many messages a queue holds: from its first to its last number, as if none between were gone."""
    first = await peek(line, path, 1, 1)
    if not first:
        return 0
    low = sequence_of(first[0])
    return await last_number(line, path, low) - low + 1


async def last_number(line: Line, path: str, low: int) -> int:
    """The last number that a queue has in use; `low` is one of them."""
    search = last_sequence(low)
    asked = next(search)
    try:
        while True:
            found = await peek(line, path, asked, 1)
            asked = search.send(sequence_of(found[0]) if found else None)
    except StopIteration as done:
        return int(done.value)


def last_sequence(low: int) -> Generator[int, int | None, int]:
    """Find the last number in use, of which `low` is one: ask for the first at or after a number, be told it or None.

    Steps double until nothing is found, and halve from there: some 40 questions for a million messages.
    """
    step = 1
    high: int | None = None
    while high is None or high - low > 1:
        asked = low + step if high is None else (low + high) // 2
        found = yield asked
        if found is None:
            high = asked
        else:
            low = found
            step *= 2
    return low
