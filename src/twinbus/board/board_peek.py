"""Reading the board by peeking, from the last number that was seen; bounded, whatever lies there.

A service may keep messages that are over until somebody receives, so a first look does not read from the head: it finds
the end, then the first report that is not over. Every question is a peek; the answers come in as values.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from twinbus.board.queue import LIFE_S

READ_MAX = 5_000
"""Reports of one look: 200 processes that post every 20 s leave 3,000 in the time to live."""
BYTES_MAX = 16 * 1024 * 1024
"""Of one look. One answer may exceed it, because sizes are known only when messages have come."""
PAGE_MAX, FIRST_PAGE = 250, 16
PEEKS_MAX = 200
"""Of one look; a search takes about 40."""


class PostedReport(NamedTuple):
    """A message on the board."""

    sequence: int
    enqueued_ms: int | None
    """When the secondary stored it, by its clock."""
    body: bytes
    """Encoded report, if it is one; empty if the message is too large for one."""
    size: int
    signature: str = ""


class BoardPeek(NamedTuple):
    """Peek from a sequence number on. Answer: up to `most` messages, in order; none only if there are none."""

    from_sequence: int
    most: int


class BoardLook(NamedTuple):
    """What one look has found."""

    posts: tuple[PostedReport, ...]
    next_sequence: int
    """Where the next look begins."""
    is_all: bool
    """Whether it has read to the end."""


Look = Generator[BoardPeek, Sequence[PostedReport], BoardLook]


def look(from_sequence: int | None = None, read_max: int = READ_MAX, life_s: float = LIFE_S) -> Look:
    """Read what is new. `from_sequence`: where the look before has ended; None: this is the first one, which
    reads what is younger than `life_s`."""
    posts: list[PostedReport] = []
    peeks, is_skipping = 0, False
    start = 1 if from_sequence is None else from_sequence
    if from_sequence is None:
        page = yield BoardPeek(1, FIRST_PAGE)
        peeks = 1
        if len(page) >= FIRST_PAGE:
            start, last, asked = yield from _first_fresh(page[0], page[-1], life_s)
            peeks += asked
            is_skipping = last - start >= read_max  # every process posts often: the newest say most
            start = max(start, last - read_max + 1)
        else:
            posts += page
            start = page[-1].sequence + 1 if page else 1
    size = sum([post.size for post in posts])
    while True:
        if len(posts) >= read_max or size >= BYTES_MAX or peeks >= PEEKS_MAX:
            return BoardLook(tuple(posts), start, is_all=False)
        mean = max(1, size // len(posts)) if posts else BYTES_MAX // FIRST_PAGE
        most = max(1, min(PAGE_MAX, read_max - len(posts), (BYTES_MAX - size) // mean))
        page = yield BoardPeek(start, most)
        peeks += 1
        if not page:
            return BoardLook(tuple(posts), start, is_all=not is_skipping)
        posts += page
        size += sum([post.size for post in page])
        start = page[-1].sequence + 1


def _first_fresh(
    first: PostedReport, known: PostedReport, life_s: float
) -> Generator[BoardPeek, Sequence[PostedReport], tuple[int, int, int]]:
    """From which number on reports are younger than that, counted from the newest; its number; peeks it took."""
    last, peeks = yield from _last(known)
    if last.enqueued_ms is None:
        return first.sequence, last.sequence, peeks
    oldest_ms = last.enqueued_ms - life_s * 1000
    low, high = first.sequence, last.sequence  # what begins at high is fresh
    if first.enqueued_ms is None or first.enqueued_ms >= oldest_ms:
        return first.sequence, last.sequence, peeks
    while high - low > 1 and peeks < PEEKS_MAX // 2:
        middle = (low + high) // 2
        page = yield BoardPeek(middle, 1)
        peeks += 1
        found = page[0] if page else last
        if found.enqueued_ms is None or found.enqueued_ms >= oldest_ms:
            high = middle
        else:
            low = max(middle, found.sequence)
    return min(high, last.sequence), last.sequence, peeks


def _last(known: PostedReport) -> Generator[BoardPeek, Sequence[PostedReport], tuple[PostedReport, int]]:
    """The newest message; steps double until nothing is found, then halve."""
    step, peeks = 1, 0
    high: int | None = None
    while (high is None or high - known.sequence > 1) and peeks < PEEKS_MAX // 4:
        asked = known.sequence + step if high is None else (known.sequence + high) // 2
        page = yield BoardPeek(asked, 1)
        peeks += 1
        if page:
            known, step = page[0], 2 * step
        else:
            high = asked
    return known, peeks
