"""The roles around a pair, what each needs, and whether a credential has exactly that.

No I/O: what was tried comes in as `Trial`s (`rights_check.py` makes them), and a judgement goes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class PairRole(StrEnum):
    SENDER = "sender"
    """An application that sends."""
    SYPHON = "syphon"
    """Whoever brings messages home."""
    MONITOR = "monitor"
    """Whoever looks at a pair and changes nothing."""


class PairRight(StrEnum):
    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


class Place(StrEnum):
    PRIMARY = "primary"
    """Entities of the primary."""
    BACKLOG = "backlog"
    """Backlog queues, on the secondary."""
    BOARD = "board"
    """The board, on the secondary, where there is to be one."""


_SEND, _LISTEN = frozenset((PairRight.SEND,)), frozenset((PairRight.LISTEN,))
NEEDS: Mapping[PairRole, Mapping[Place, frozenset[PairRight]]] = {
    PairRole.SENDER: {Place.PRIMARY: _SEND, Place.BACKLOG: _SEND, Place.BOARD: _SEND},
    PairRole.SYPHON: {Place.PRIMARY: _SEND, Place.BACKLOG: _LISTEN, Place.BOARD: _SEND | _LISTEN},
    PairRole.MONITOR: {Place.PRIMARY: _LISTEN, Place.BACKLOG: _LISTEN, Place.BOARD: _LISTEN},
}
"""These rights in each place, and no others."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One right that was tried on one entity."""

    place: Place
    path: str
    right: PairRight
    is_allowed: bool | None
    """None: nobody can tell."""
    why: str | None = None
    """Why it is not allowed, or why nobody can tell."""


class RoleFit(StrEnum):
    EXACT = "exact"
    """All that the role needs, and nothing else."""
    MISSING = "missing"
    """The role lacks something."""
    EXCESS = "excess"
    """All that it needs, and more."""
    UNKNOWN = "unknown"
    """Nothing is known to be missing or too much, and not everything could be tried."""


@dataclass(frozen=True, slots=True)
class RoleCheck:
    """What became of a check."""

    role: PairRole
    trials: tuple[Trial, ...]
    places: tuple[Place, ...] = (Place.PRIMARY, Place.BACKLOG)
    """Where rights are needed."""

    @property
    def missing(self) -> tuple[Trial, ...]:
        return tuple([each for each in self.trials if self.is_needed(each) and each.is_allowed is False])

    @property
    def excess(self) -> tuple[Trial, ...]:
        return tuple([each for each in self.trials if not self.is_needed(each) and each.is_allowed])

    @property
    def unknown(self) -> tuple[Trial, ...]:
        return tuple([each for each in self.trials if each.is_allowed is None])

    @property
    def untried(self) -> tuple[Place, ...]:
        """Places of which no entity was named."""
        return tuple([place for place in self.places if not any(each.place is place for each in self.trials)])

    @property
    def verdict(self) -> RoleFit:
        if self.missing:
            return RoleFit.MISSING
        if self.excess:
            return RoleFit.EXCESS
        return RoleFit.UNKNOWN if self.unknown or self.untried else RoleFit.EXACT

    def is_needed(self, trial: Trial) -> bool:
        return trial.right in NEEDS[self.role][trial.place]


def by_right(trials: Iterable[Trial]) -> list[tuple[PairRight, list[Trial]]]:
    """Trials that share a line: the same right in the same place."""
    groups: dict[tuple[Place, PairRight], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.place, trial.right), []).append(trial)
    return [(right, group) for (_, right), group in groups.items()]
