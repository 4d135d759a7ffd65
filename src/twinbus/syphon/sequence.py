"""What is known of the numbers in one backlog queue: may a letter go home, or could an earlier one hide before it?

A queue delivers in the order of its numbers, but not what somebody else has under lock: a link that was lost, or a
process that died, keeps letters for a minute, and later ones would overtake them. So a number that follows the last
one directly is fine; over a gap the queue is looked into, which shows locked letters too. If there is one in the gap,
everything behind it is given back and tried again later.

Letters that we gave back ourselves are known by number and key, and nothing of their key goes before they came again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Many
from enum import Enum
from heapq import heappop, heappush

from twinbus.pairing.order import Key
from twinbus.syphon.letters import Held

LOOK_LETTERS_MAX = 250


class Entry(Enum):
    """What may be done with a letter that came."""

    GO = "it is the next of its key"
    WAIT = "nobody knows yet what is before it"
    EARLY = "one before it was given back and has not come again"
    ASIDE = "one of its key before it did not go"


class Numbers:
    """Numbers of which the lowest is wanted."""

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


class Sequence:
    """One link's view of a queue; a new link begins a new one, because what the old one had is under lock."""

    def __init__(self, era: int) -> None:
        self.era = era
        self.known_to = 0
        """Everything up to this number is gone, in our hands, or given back by us."""
        self.unproven: deque[Held] = deque()
        """Letters behind a gap that nobody has looked into."""
        self.is_looking = False
        self._missing: int | None = None
        """A letter that was given back and should have come again before a later one of its key."""
        self._back: dict[Key, Numbers] = {}
        """Letters that we gave back and that have not come again."""
        self._skipped: set[int] = set()
        """Letters in our hands that belong to no key."""
        self._blocked: set[Key] = set()
        """Keys of which a letter was set aside: until the sweep is over no other one may go."""
        self.stopped: set[str] = set()
        """The entities for whose rest those letters wait."""

    # --- letters come ---

    def enter(self, held: Held) -> Entry:
        """A letter has come from the queue."""
        sequence = held.place.sequence
        if sequence > self.known_to:
            if self.unproven or sequence != self.known_to + 1:
                self.unproven.append(held)
                return Entry.WAIT
            self.known_to = sequence
        else:
            self._came_again(held.place.key, sequence)
        return self.judge(held)

    def skip(self, sequence: int) -> None:
        """A letter has come that belongs to no key: nobody waits for it, and it hides nothing."""
        if sequence == self.known_to + 1 and not self.unproven:
            self.known_to = sequence
        elif sequence > self.known_to:
            self._skipped.add(sequence)

    def is_repeat(self, held: Held) -> bool:
        """Whether we believe to have it already: its lock ended, and it was lent to us again."""
        key, sequence = held.place.key, held.place.sequence
        return 0 < sequence <= self.known_to and sequence not in self._back.get(key, ())

    def judge(self, held: Held) -> Entry:
        """What may be done with a letter before which nothing unknown is."""
        key, sequence = held.place.key, held.place.sequence
        if key in self._blocked:
            return Entry.ASIDE
        back = self._back.get(key)
        lowest = None if back is None else back.lowest
        if lowest is None or lowest > sequence:
            return Entry.GO
        self._missing = lowest if self._missing is None else min(self._missing, lowest)
        self._back.setdefault(key, Numbers()).add(sequence)  # it will be given back too, and those before it may go
        return Entry.EARLY

    def _came_again(self, key: Key, sequence: int) -> None:
        back = self._back.get(key)
        if back is not None:
            back.discard(sequence)
            if not back:
                del self._back[key]

    # --- letters go back ---

    def block(self, key: Key) -> None:
        """A letter of this key does not go now: those behind it do not go either."""
        self._blocked.add(key)

    def given_back(self, letters: Many[Held]) -> None:
        """The sweep is over, and the queue has these letters again."""
        self._blocked.clear()
        self.stopped.clear()
        for held in letters:
            key, sequence = held.place.key, held.place.sequence
            if sequence <= self.known_to:
                self._back.setdefault(key, Numbers()).add(sequence)

    # --- looks ---

    def wanted_look(self) -> tuple[int, int] | None:
        """From which number on to look into the queue, and at how many letters; None: no need to."""
        if self.unproven:
            return self.known_to + 1, min(len(self.unproven), LOOK_LETTERS_MAX)
        return None if self._missing is None else (self._missing, 1)

    def looked(self, asked: int, found: Many[int], seen_to: int | None) -> tuple[list[Held], list[Held]]:
        """The queue holds these letters, locked or not, from `asked` up to `seen_to` (None: to its end).

        Letters that may be judged now, and letters that have to be given back.
        """
        self._forget_missing(asked, found, seen_to)
        if asked != self.known_to + 1 or not self.unproven:
            return [], []
        proven: list[Held] = []
        there = deque([number for number in found if number >= asked and number not in self._skipped])
        while self.unproven:
            sequence = self.unproven[0].place.sequence
            if there and there[0] == sequence:
                there.popleft()
                proven.append(self._next_proven())
            elif (there and there[0] < sequence) or seen_to is None or sequence <= seen_to:
                return proven, self._all_unproven()  # an earlier one hides, or this one is not ours any more
            else:
                break
        if seen_to is not None:
            self.known_to = max(self.known_to, there[0] - 1 if there else seen_to)
        while self.unproven and self.unproven[0].place.sequence == self.known_to + 1:
            proven.append(self._next_proven())
        return proven, []

    def _next_proven(self) -> Held:
        held = self.unproven.popleft()
        self.known_to = held.place.sequence
        return held

    def look_failed(self) -> list[Held]:
        """Nothing is known: letters that have to be given back."""
        self._missing = None
        return self._all_unproven()

    def _all_unproven(self) -> list[Held]:
        letters = list(self.unproven)
        self.unproven.clear()
        return letters

    def _forget_missing(self, asked: int, found: Many[int], seen_to: int | None) -> None:
        """Letters that we gave back and that are not there any more: somebody took them."""
        self._missing = None
        if asked > self.known_to:
            return
        end = self.known_to if seen_to is None else seen_to
        for key, back in list(self._back.items()):
            for number in [each for each in back if asked <= each <= end and each not in found]:
                back.discard(number)
            if not back:
                del self._back[key]
