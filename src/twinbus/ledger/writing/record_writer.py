"""Numbers events, turns them into lines and gets them onto the disk. Used by one thread only.

Numbers are given when lines are made, so a file has them in order. What the disk refuses is kept, with its numbers,
and tried again. What never got this far because memory was full has its numbers skipped, and a `gap` record behind
them says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twinbus.ledger.kinds import Kind
from twinbus.ledger.lines import LineWriter
from twinbus.ledger.schema import Event
from twinbus.ledger.writing.segment import Segments

CHUNK_BYTES = 256 * 1024
OWN_KINDS = (Kind.OPENED, Kind.CLOSED, Kind.GAP)
RESERVED = Event(Kind.REJECTED, reason="opened, closed and gap are recorded by the ledger only: readers rely on them")

EventDraft = tuple[Callable[..., Event], tuple[Any, ...]]
"""What makes an event, and of what: made when there is time."""
QueuedEvent = tuple[int, int, int, Event | EventDraft]
"""UTC and monotonic nanoseconds, weight in memory, and the event. A plain tuple: it is made on the way of a send."""


@dataclass(slots=True)
class DroppedEvents:
    """Events that were dropped, and when."""

    count: int = 0
    first_ns: int = 0
    last_ns: int = 0

    def add(self, count: int, first_ns: int, last_ns: int) -> None:
        if count:
            self.first_ns = self.first_ns if self.count else first_ns
            self.count += count
            self.last_ns = last_ns


def _make(draft: EventDraft) -> Event:
    make, arguments = draft
    try:
        return make(*arguments)
    except Exception as error:  # its number must not be missing
        return Event(Kind.REJECTED, reason=f"{type(error).__name__}: {error}"[:500])


class RecordWriter:
    def __init__(
        self,
        lines: LineWriter,
        segments: Segments,
        *,
        release: Callable[[int], None],
        clock_ns: Callable[[], int],
        monotonic_ns: Callable[[], int],
    ) -> None:
        """`release` is called with the weight of what no longer waits in memory."""
        self._lines = lines
        self.segments = segments
        self._release = release
        self._clock_ns = clock_ns
        self._monotonic_ns = monotonic_ns
        self._number = 0
        self._chunk = bytearray()  # lines that have their numbers but are not on disk yet
        self._chunk_first = 1
        self._chunk_weight = 0
        self._chunk_since_ns = 0
        self._lost = DroppedEvents()
        self.written = 0
        """How many records are in files."""
        self.given_up = 0
        """How many numbers were given up when the ledger was closed."""

    @property
    def number(self) -> int:
        """The number of the last line that was made."""
        return self._number

    @property
    def now_ms(self) -> int:
        return self._clock_ns() // 1_000_000

    def open(self, *, wait_us: int, sync_us: int, boot: str) -> None:
        """Note the first record of the process; it is on disk with the next one."""
        self._note(Event(Kind.OPENED, duration_us=wait_us, sync_us=sync_us, boot=boot))

    def lose(self, lost: DroppedEvents) -> None:
        """Events were dropped: record a gap after what has been queued."""
        self._lost.add(lost.count, lost.first_ns, lost.last_ns)

    def write(self, queue: deque[QueuedEvent], why_lost: str) -> None:
        """Everything that was in `queue` is in a file; on `OSError` the rest is kept for the next call."""
        self._push()
        for _ in range(len(queue)):
            at_ns, monotonic_ns, weight, queued = queue.popleft()
            event = queued if isinstance(queued, Event) else _make(queued)
            self._line(event if event.kind not in OWN_KINDS else RESERVED, at_ns, monotonic_ns)
            self._chunk_weight += weight
            if len(self._chunk) >= CHUNK_BYTES:
                self._push()
        self._push()
        self._note_gap(why_lost)  # now that the disk has been tried its reason is the true one
        self._push()

    def close(self, queue: deque[QueuedEvent], why_lost: str) -> None:
        """Write what can be written, then the end. Raises `OSError` if not even the end can be."""
        try:
            self.write(queue, why_lost)
        except OSError as error:
            why_lost = f"{error}"
            self._give_up(queue)
        self._note_gap(why_lost)
        self._note(Event(Kind.CLOSED))
        self._push(is_end=True)
        self.segments.retire()

    def _note(self, event: Event) -> None:
        self._line(event, self._clock_ns(), self._monotonic_ns())

    def _note_gap(self, why_lost: str) -> None:
        """The dropped events keep their numbers, which nothing else will ever have."""
        if not self._lost.count:
            return
        lost, self._lost = self._lost, DroppedEvents()
        first = self._number + 1
        self._number += lost.count
        gap = Event(
            Kind.GAP,
            reason=why_lost,
            since_ms=lost.first_ns // 1_000_000,
            until_ms=lost.last_ns // 1_000_000,
            missing_first=first,
            missing_last=self._number,
        )
        self._chunk_since_ns = self._chunk_since_ns or lost.first_ns
        self._note(gap)

    def _line(self, event: Event, at_ns: int, monotonic_ns: int) -> None:
        self._number += 1
        if not self._chunk:
            self._chunk_since_ns = self._chunk_since_ns or at_ns
        self._chunk += self._lines.line(event, number=self._number, at_ns=at_ns, monotonic_ns=monotonic_ns)

    def _push(self, *, is_end: bool = False) -> None:
        if not self._chunk:
            return
        self.segments.append(bytes(self._chunk), monotonic_ns=self._monotonic_ns(), is_end=is_end)
        self.written += self._chunk.count(b"\n")
        self._empty_chunk()

    def _empty_chunk(self) -> None:
        self._release(self._chunk_weight)
        self._chunk_weight = self._chunk_since_ns = 0
        self._chunk_first = self._number + 1
        self._chunk.clear()

    def _give_up(self, queue: deque[QueuedEvent]) -> None:
        """What waits for the disk is lost: its numbers, and those of `queue`, become part of the gap to record."""
        since_ns = self._chunk_since_ns or (queue[0][0] if queue else 0)
        count = self._number - self._chunk_first + 1
        self._number = self._chunk_first - 1
        self._empty_chunk()
        while queue:
            queue.popleft()
            count += 1
        self.given_up += count
        now_ns = self._clock_ns()
        self._lost, later = DroppedEvents(count, since_ns or now_ns, now_ns), self._lost
        self.lose(later)
