"""Messages for entities that are not among those a syphon was told: they stay in the backlog.

Whoever may send to a backlog queue writes on a message where it is to go, and the syphon delivers it with rights of its
own. A list of entities bounds what others can reach through it.
"""

from __future__ import annotations

from collections.abc import Callable

from twinbus.amqp import sections
from twinbus.syphon.effects import Alert
from twinbus.syphon.reasons import path_problem
from twinbus.syphon.tally import Tally

COUNTED_MAX = 100_000
"""So many are told apart; further ones are not counted."""
NAMED_MAX = 100
"""So many entities are named in alerts: a stranger can make up any number."""
TEXT = "is not among the entities that this syphon may bring messages to: they stay in the backlog"


class Outside:
    """Counts each such message once, however often it comes again."""

    def __init__(self, allows: Callable[[str], bool], tally: Tally) -> None:
        self._allows = allows
        self._tally = tally
        self._met: set[tuple[int, int]] = set()
        self._named: set[str] = set()

    def meet(self, queue: int, letter: bytes, path: str) -> list[Alert]:
        """A letter came from a queue; what is to be said of it, once for each entity."""
        if self._allows(path) or path_problem(path) is not None:  # what has no place at all goes to the quarantine
            return []
        number = sections.read_annotation(letter, sections.walk(letter), "x-opt-sequence-number")
        if isinstance(number, int) and len(self._met) < COUNTED_MAX:
            self._met.add((queue, int(number)))
            self._tally.outside = len(self._met)
        name = path.casefold()
        if name in self._named or len(self._named) >= NAMED_MAX:
            return []
        self._named.add(name)
        return [Alert("not_listed", path, TEXT)]
