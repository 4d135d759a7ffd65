"""The tally of a soak: what senders were answered, against what is stored at the end.

Everything is written to a file at once: a journal in memory would look like a leak.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from azure.servicebus.exceptions import ServiceBusError

from twinbus import SendReceipt
from twinbus.errors import SendError

ANY_NUMBER = 1_000_000


class Entry(NamedTuple):
    """What the sender of one message was answered."""

    message_id: str
    place: str | None
    """Where it is stored: `queue`, or the path of a backlog queue; None: it was not accepted."""
    queue: str
    """Where it belongs."""
    doubts: int
    """How many copies more may be stored."""


class Journal:
    """Written by all senders, read when they are done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("w", encoding="utf-8")
        self._lock = threading.Lock()
        self.answers: Counter[str] = Counter()
        """How many messages had which fate so far."""

    def note_receipt(self, queue: str, receipt: SendReceipt) -> None:
        """A send that returned, or said in its error what was accepted."""
        for message_id, place in zip(receipt.message_ids, receipt.places, strict=True):
            is_stored = place != "not accepted"
            stored_in = (queue if place == "primary" else place) if is_stored else None
            kind = (receipt.side.value if is_stored else "raised") + (", in doubt" if receipt.in_doubt else "")
            self._note(Entry(message_id, stored_in, queue, receipt.copies_in_doubt), kind)

    def note_error(self, queue: str, message_ids: Iterable[str], error: Exception) -> None:
        """A send that raised. An error of the SDK does not say whether something was stored."""
        if isinstance(error, SendError) and error.receipt is not None:
            self.note_receipt(queue, error.receipt)
            return
        is_known = isinstance(error, SendError | ServiceBusError)
        for message_id in message_ids:
            doubts = ANY_NUMBER if isinstance(error, ServiceBusError) else 0
            self._note(Entry(message_id, None, queue, doubts), "raised" if is_known else f"!{type(error).__name__}")

    def entries(self) -> Iterator[Entry]:
        """All of them; nothing can be noted afterwards."""
        self._file.close()
        with self._path.open(encoding="utf-8") as lines:
            for line in lines:
                yield Entry(*json.loads(line))

    def _note(self, entry: Entry, kind: str) -> None:
        with self._lock:
            self._file.write(json.dumps(entry) + "\n")
            self.answers[kind] += 1


@dataclass(slots=True)
class Found:
    """What is stored at the end: the places of each message, and where those in the backlog belong."""

    places: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    homes: dict[str, str] = field(default_factory=dict)

    def note(self, place: str, message_id: str, home: str | None) -> None:
        self.places[message_id].append(place)
        if home is not None:
            self.homes[message_id] = home


@dataclass(slots=True)
class SoakResult:
    """What does not add up; a few examples of each."""

    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    messages: int = 0
    accepted: int = 0
    copies: int = 0
    """Copies beyond the first of a message, all of them announced as being in doubt."""

    def blame(self, what: str, example: str) -> None:
        self.wrong[what].append(example)

    @property
    def lines(self) -> list[str]:
        return [f"{what}: {len(cases):,}, as {', '.join(cases[:5])}" for what, cases in self.wrong.items()]


def judge(entries: Iterable[Entry], found: Found) -> SoakResult:
    """Nothing accepted is lost, and is where it was said to be; no copy that nobody announced; nothing from nowhere."""
    result, known = SoakResult(), set[str]()
    for entry in entries:
        known.add(entry.message_id)
        _judge_one(entry, found, result)
    for message_id in found.places.keys() - known:
        result.blame("stored, and nobody knows of having sent it", message_id)
    return result


def _judge_one(entry: Entry, found: Found, result: SoakResult) -> None:
    places = found.places.get(entry.message_id, [])
    result.messages += 1
    result.accepted += entry.place is not None
    result.copies += max(0, len(places) - 1)
    if entry.place is not None and not places:
        result.blame("LOST", entry.message_id)
    elif entry.place is not None and entry.place not in places:
        result.blame("not where the receipt says", f"{entry.message_id} ({entry.place}, found in {places})")
    if len(places) > (entry.place is not None) + entry.doubts:
        result.blame("more copies than were in doubt", f"{entry.message_id} ({len(places)}, {entry.doubts} in doubt)")
    if found.homes.get(entry.message_id, entry.queue) != entry.queue:
        result.blame("addressed to the wrong queue", entry.message_id)
