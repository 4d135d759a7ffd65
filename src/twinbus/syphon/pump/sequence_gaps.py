"""What is known of the sequence numbers of one backlog queue: may a message go home, or could an earlier one be hidden?

A queue delivers in the order of its sequence numbers, but not what another receiver has under lock: after a lost link
or a killed process messages stay locked for a minute, and later ones would overtake them. So a number that directly
follows the last one is fine; over a gap the queue is peeked, which shows locked messages too. If there is one in the
gap, everything behind it is released and tried again later.

Messages that we released ourselves are known by number and key; nothing of their key goes before they came again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum
from heapq import heappop, heappush

from twinbus.pairing.backlog.ordering import Key
from twinbus.syphon.pump.backlog_message import HeldMessage

PEEK_MESSAGES_MAX = 250


class OrderDecision(Enum):
    """What may be done with a message that arrived."""

    GO = "it is the next of its key"
    WAIT = "it is unknown what is before it"
    RELEASE = "one before it was released and has not come again"
    PARK = "one of its key before it did not go"


class SequenceSet:
    """Sequence numbers of which the lowest is wanted."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def add(self, number: int) -> None:
        if number not in self._numbers:
            self._numbers.add(number)
            heappush(self._heap, number)

    def discard(self, number: int) -> None:
        self._numbers.discard(number)

    @property
    def lowest(self) -> int | None:
        while self._heap and self._heap[0] not in self._numbers:
            heappop(self._heap)
        return self._heap[0] if self._heap else None


class SequenceTracker:
    """One link's view of a queue; a new link begins a new one, because what the old one had is under lock."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.known_to = 0
        """Everything up to this number is gone, held by us, or released by us."""
        self.unproven: deque[HeldMessage] = deque()
        """Messages behind a gap that was not peeked yet."""
        self.is_peeking = False
        self._missing: int | None = None
        """A message that was released and should have come again before a later one of its key."""
        self._released: dict[Key, SequenceSet] = {}
        """Messages that we released and that have not come again."""
        self._skipped: set[int] = set()
        """Messages that we hold and that belong to no key."""
        self._blocked: set[Key] = set()
        """Keys of which a message is parked: until the sweep is over no other one may go."""
        self.resting_paths: set[str] = set()
        """The resting entities for which those messages wait."""

    # --- messages arrive ---

    def enter(self, held: HeldMessage) -> OrderDecision:
        """A message arrived from the queue."""
        sequence = held.position.sequence
        if sequence > self.known_to:
            if self.unproven or sequence != self.known_to + 1:
                self.unproven.append(held)
                return OrderDecision.WAIT
            self.known_to = sequence
        else:
            self._came_again(held.position.key, sequence)
        return self.decide(held)

    def skip(self, sequence: int) -> None:
        """A message arrived that belongs to no key: nothing waits for it, and it hides nothing."""
        if sequence == self.known_to + 1 and not self.unproven:
            self.known_to = sequence
        elif sequence > self.known_to:
            self._skipped.add(sequence)

    def is_repeat(self, held: HeldMessage) -> bool:
        """Whether we believe to hold it already: its lock ended, and it was delivered to us again."""
        key, sequence = held.position.key, held.position.sequence
        return 0 < sequence <= self.known_to and sequence not in self._released.get(key, ())

    def decide(self, held: HeldMessage) -> OrderDecision:
        """What may be done with a message before which nothing unknown is."""
        key, sequence = held.position.key, held.position.sequence
        if key in self._blocked:
            return OrderDecision.PARK
        released = self._released.get(key)
        lowest = None if released is None else released.lowest
        if lowest is None or lowest > sequence:
            return OrderDecision.GO
        self._missing = lowest if self._missing is None else min(self._missing, lowest)
        self._released.setdefault(key, SequenceSet()).add(sequence)  # it is released too, and those before it may go
        return OrderDecision.RELEASE

    def _came_again(self, key: Key, sequence: int) -> None:
        released = self._released.get(key)
        if released is not None:
            released.discard(sequence)
            if not released:
                del self._released[key]

    # --- messages are released ---

    def block(self, key: Key) -> None:
        """A message of this key does not go now: those behind it do not go either."""
        self._blocked.add(key)

    def released(self, messages: Sequence[HeldMessage]) -> None:
        """The sweep is over, and the queue has these messages again."""
        self._blocked.clear()
        self.resting_paths.clear()
        for held in messages:
            key, sequence = held.position.key, held.position.sequence
            if sequence <= self.known_to:
                self._released.setdefault(key, SequenceSet()).add(sequence)

    # --- peeks ---

    def wanted_peek(self) -> tuple[int, int] | None:
        """From which number on to peek, and how many messages; None: no need to."""
        if self.unproven:
            return self.known_to + 1, min(len(self.unproven), PEEK_MESSAGES_MAX)
        return None if self._missing is None else (self._missing, 1)

    def peeked(
        self, asked: int, found: Sequence[int], seen_to: int | None
    ) -> tuple[list[HeldMessage], list[HeldMessage]]:
        """The queue holds `found`, locked or not, from `asked` up to `seen_to` (None: to its end).

        Returns messages on which can be decided now, and messages that have to be released.
        """
        self._forget_missing(asked, found, seen_to)
        if asked != self.known_to + 1 or not self.unproven:
            return [], []
        proven: list[HeldMessage] = []
        there = deque([number for number in found if number >= asked and number not in self._skipped])
        while self.unproven:
            sequence = self.unproven[0].position.sequence
            if there and there[0] == sequence:
                there.popleft()
                proven.append(self._next_proven())
            elif (there and there[0] < sequence) or seen_to is None or sequence <= seen_to:
                return proven, self._take_unproven()  # an earlier one is hidden, or this one is no longer ours
            else:
                break
        if seen_to is not None:
            self.known_to = max(self.known_to, there[0] - 1 if there else seen_to)
        while self.unproven and self.unproven[0].position.sequence == self.known_to + 1:
            proven.append(self._next_proven())
        return proven, []

    def _next_proven(self) -> HeldMessage:
        held = self.unproven.popleft()
        self.known_to = held.position.sequence
        return held

    def peek_failed(self) -> list[HeldMessage]:
        """Nothing is known; returns messages that have to be released."""
        self._missing = None
        return self._take_unproven()

    def _take_unproven(self) -> list[HeldMessage]:
        messages = list(self.unproven)
        self.unproven.clear()
        return messages

    def _forget_missing(self, asked: int, found: Sequence[int], seen_to: int | None) -> None:
        """Messages that we released and that are no longer there: another receiver took them."""
        self._missing = None
        if asked > self.known_to:
            return
        end = self.known_to if seen_to is None else seen_to
        for key, released in list(self._released.items()):
            for number in [each for each in released if asked <= each <= end and each not in found]:
                released.discard(number)
            if not released:
                del self._released[key]
