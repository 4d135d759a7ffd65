"""Who is heard when: no peer's bytes keep the others waiting.

What a peer sends is heard in steps. A step is done at once while there is time left in this turn of the event loop
and its peer has not taken much lately; otherwise the peer stands in line. Who has taken least of the last seconds comes
first: somebody who asks for little does not wait for those who ask for much, however many connections they have. Those
that have not shown who they are have a line of their own, with less time, and are never heard at once: however many
they are, the others hardly notice.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

TURN_S = 0.004
"""Steps of known peers in one turn of the loop; the last one may be longer."""
STRANGERS_TURN_S = 0.002
STEP_S = 0.002
"""One step; what is begun is ended."""
MUCH_S = 0.1
"""Who has taken more of the last seconds waits for the next turn, when all who spoke meanwhile are in line."""
HALVED_S = 1.0
"""Of what somebody took, half is forgotten after this."""


class DecayingSum:
    """How much somebody has taken in the last seconds, of time or of anything else."""

    __slots__ = ("_amount", "_at")

    def __init__(self) -> None:
        self._amount = self._at = 0.0

    def add(self, amount: float, now: float) -> None:
        self._amount = self.at(now) + amount
        self._at = now

    def at(self, now: float) -> float:
        return self._amount * math.pow(0.5, max(0.0, now - self._at) / HALVED_S)

    @property
    def rank(self) -> float:
        """The lower, the less was taken. Who waits keeps it: what all have taken is forgotten at the same pace.

        So those who come later have to have taken less and less to be heard before him.
        """
        return math.log2(self._amount) + self._at / HALVED_S if self._amount > 0 else -math.inf


class Speaker(Protocol):
    """Somebody who has something to say."""

    time_taken: DecayingSum

    @property
    def is_known(self) -> bool: ...

    def step(self, until: float) -> bool:
        """Hear a part of it, until about that time; whether it is to be heard again."""


class Turns:
    def __init__(
        self,
        clock: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        between_steps: Callable[[], None] = lambda: None,
    ) -> None:
        """`clock` in seconds; `call_soon` calls in the next turn of the loop or a little later, after everybody was
        looked at.

        `between_steps` does what should not wait until the turn is over.
        """
        self.clock = clock
        self._call_soon = call_soon
        self._between_steps = between_steps
        self._known: list[tuple[float, int, Speaker]] = []
        """A heap: by rank, then in the order in which they came."""
        self._numbers = count()
        self._strangers: deque[Speaker] = deque()
        self._ends_at: float | None = None
        """When the time of this turn is over; None: nobody has used any of it."""

    def hear(self, speaker: Speaker) -> bool:
        """Let somebody speak who was silent: now, or soon. Whether there is more to come."""
        if speaker.is_known and not self._known and self._may_go_first(speaker) and not self._step(speaker):
            return False
        self.line_up(speaker)
        return True

    def line_up(self, speaker: Speaker) -> None:
        """Let somebody speak soon."""
        if speaker.is_known:
            heappush(self._known, (speaker.time_taken.rank, next(self._numbers), speaker))
        else:
            self._strangers.append(speaker)
        self._begin_turn()

    def _step(self, speaker: Speaker) -> bool:
        began = self.clock()
        has_more = speaker.step(began + STEP_S)
        ended = self.clock()
        speaker.time_taken.add(ended - began, ended)
        return has_more

    def _may_go_first(self, speaker: Speaker) -> bool:
        """Whether there is time left in this turn, and the speaker has not taken much of the last ones."""
        self._begin_turn()
        now = self.clock()
        return self._ends_at is not None and now < self._ends_at and speaker.time_taken.at(now) < MUCH_S

    def _begin_turn(self) -> None:
        if self._ends_at is None:
            self._ends_at = self.clock() + TURN_S
            self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._ends_at = None
        if self._known or self._strangers:
            self._begin_turn()
            self._hear_known()
            self._hear_strangers()

    def _hear_known(self) -> None:
        until = self.clock() + TURN_S
        while self._known:
            self._hear_one(heappop(self._known)[2])
            if self.clock() >= until:
                return

    def _hear_strangers(self) -> None:
        until = self.clock() + STRANGERS_TURN_S
        while self._strangers:
            self._hear_one(self._strangers.popleft())
            if self.clock() >= until:
                return

    def _hear_one(self, speaker: Speaker) -> None:
        if self._step(speaker):
            self.line_up(speaker)  # who has shown who he is meanwhile changes lines
        self._between_steps()
