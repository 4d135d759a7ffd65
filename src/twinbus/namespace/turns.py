"""Who is heard when: no peer's bytes keep the others waiting.

What a peer sends is heard in steps. A step is done at once while there is time left in this turn of the event loop;
otherwise its peer stands in line. Those that have not shown who they are have a line of their own, with less time, and
are never heard at once: however many they are, the others hardly notice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

TURN_S = 0.010
"""Steps of known peers in one turn of the loop; the last one may be longer."""
STRANGERS_TURN_S = 0.003


class Speaker(Protocol):
    """Somebody who has something to say."""

    @property
    def is_known(self) -> bool: ...

    def step(self) -> bool:
        """Hear a part of it; whether there is more."""


class Turns:
    def __init__(self, clock: Callable[[], float], call_soon: Callable[[Callable[[], None]], object]) -> None:
        """`clock` in seconds; `call_soon` calls in the next turn of the loop, after everybody was looked at."""
        self._clock = clock
        self._call_soon = call_soon
        self._known: deque[Speaker] = deque()
        self._strangers: deque[Speaker] = deque()
        self._ends_at: float | None = None
        """When the time of this turn is over; None: nobody has used any of it."""

    def hear(self, speaker: Speaker) -> bool:
        """Let somebody speak who was silent: now, or soon. Whether there is more to come."""
        if speaker.is_known and not self._known and self._has_time() and not speaker.step():
            return False
        line = self._known if speaker.is_known else self._strangers
        line.append(speaker)
        self._begin_turn()
        return True

    def _has_time(self) -> bool:
        self._begin_turn()
        return self._ends_at is not None and self._clock() < self._ends_at

    def _begin_turn(self) -> None:
        if self._ends_at is None:
            self._ends_at = self._clock() + TURN_S
            self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._ends_at = None
        if self._known or self._strangers:
            self._begin_turn()
            self._hear_line(self._known, TURN_S)
            self._hear_line(self._strangers, STRANGERS_TURN_S)

    def _hear_line(self, line: deque[Speaker], seconds: float) -> None:
        until = self._clock() + seconds
        while line:
            speaker = line.popleft()
            if speaker.step():
                # Who has shown who he is meanwhile changes lines.
                (self._known if speaker.is_known else self._strangers).append(speaker)
            if self._clock() >= until:
                return
