"""What simulated applications remember of their transactions: what was to happen, and what they were told."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from sim.invariants import check

Place = tuple[str, str]
"""Where a message is: the path of an entity, and its id."""


class Told(Enum):
    """What the application knows of a transaction."""

    OPEN = "nothing of it may be seen yet"
    ENDING = "a commit was asked for and is not answered: it may be seen"
    DONE = "committed"
    BACK = "rolled back"
    DOUBT = "the answer to the commit was lost"


@dataclass(eq=False, slots=True)
class Deal:
    number: int
    told: Told = Told.OPEN
    adds: list[Place] = field(default_factory=list)
    """Messages that are there afterwards; a copy of each subscription is one."""
    removes: list[Place] = field(default_factory=list)
    tokens: list[bytes] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    is_proven: bool = False
    """Something of it was seen, so all of it has happened."""

    @property
    def is_over(self) -> bool:
        return self.told in (Told.DONE, Told.BACK, Told.DOUBT)


class Deals:
    def __init__(self) -> None:
        self.all: dict[int, Deal] = {}
        self._adder: dict[Place, Deal] = {}

    def open(self) -> list[Deal]:
        return [deal for deal in self.all.values() if deal.told is Told.OPEN]

    def add(self, deal: Deal, places: list[Place]) -> None:
        deal.adds += places
        self._adder |= dict.fromkeys(places, deal)

    def seen(self, place: Place) -> None:
        """A message was delivered."""
        deal = self._adder[place]
        check(deal.told is not Told.OPEN, f"{place} was delivered before its transaction {deal.number} ended")
        check(deal.told is not Told.BACK, f"{place} was delivered though its transaction {deal.number} was rolled back")
        deal.is_proven = True

    def end_life(self) -> None:
        """The namespace has crashed: what had no answer gets none."""
        for deal in self.all.values():
            if deal.told is Told.OPEN:
                deal.told = Told.BACK
            elif deal.told is Told.ENDING:
                deal.told = Told.DOUBT

    def check_all(self, stored: set[Place], states: set[str]) -> None:
        """All of a transaction is on the disk, or nothing."""
        removers: dict[Place, list[Deal]] = {}
        for deal in self.all.values():
            for place in deal.removes:
                removers.setdefault(place, []).append(deal)
        for deal in self.all.values():
            self._check(deal, stored, states, removers)
        for place in stored:
            check(place in self._adder, f"{place} is stored, and nobody has sent it")

    def _check(self, deal: Deal, stored: set[Place], states: set[str], removers: dict[Place, list[Deal]]) -> None:
        signs = {place: place in stored for place in deal.adds}
        for place in [each for each in deal.adds if each not in stored]:
            takers = removers.get(place, ())
            if any(taker.told is Told.DONE or taker.is_proven for taker in takers):
                signs[place] = True
            elif deal.told is not Told.BACK and any(taker.told is Told.DOUBT for taker in takers):
                del signs[place]  # it may have been there
        if deal.told is not Told.BACK:  # another may have taken what a rolled back one gave up
            for place in deal.removes:
                others = [taker for taker in removers[place] if taker is not deal and taker.told is not Told.BACK]
                adder = self._adder[place]
                was_there = adder.told is Told.DONE or adder.is_proven
                if place in stored or (was_there and not others) or deal.told is Told.DONE:
                    signs["removed", place[1]] = place not in stored
        if deal.told is Told.DONE or deal.is_proven:
            check(all(signs.values()), f"transaction {deal.number} was committed, and not all of it happened: {signs}")
        elif deal.told is Told.BACK:
            check(
                not any(signs.values()), f"transaction {deal.number} was rolled back, and some of it is there: {signs}"
            )
            check(not states & set(deal.states), f"transaction {deal.number} was rolled back, and its state is kept")
        elif deal.told is Told.DOUBT:
            check(len(set(signs.values())) <= 1, f"transaction {deal.number} happened in part: {signs}")
