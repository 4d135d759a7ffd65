"""Trouble for a simulated pair: spells that begin and end, on either side or on both, for all or for one queue."""

from __future__ import annotations

from functools import partial
from random import Random

from sim.pair_conditions import NEEDS_A_QUEUE, Spell, Trouble
from sim.pair_network import Road
from twinbus.broker.entities.settings import QueueStatus

CONDITIONS = (
    "amqp:internal-error",
    "com.microsoft:timeout",
    "amqp:resource-deleted",
    "amqp:link:detach-forced",
    "com.example:never-heard-of",
    "com.microsoft:argument-error",
    "amqp:not-allowed",
    "amqp:link:message-size-exceeded",
)
DISK_FAILS_EVERY_S = 0.3


class Faults:
    def __init__(self, primary: Road, secondary: Road, random: Random) -> None:
        self._primary, self._secondary, self._random = primary, secondary, random
        self.are_over = False

    def plan(self, spells: int, until: float) -> None:
        """So many spells will come, at any time up to then."""
        random = self._random
        for _ in range(spells):
            begins = random.random() * until
            ends = begins + random.choice((0.05, 0.3, 1.0)) * random.random() * until
            roads = [self._primary] if random.random() < 0.7 else [self._secondary]
            if random.random() < 0.35:
                roads = [self._primary, self._secondary]  # both sides at once
            for road in roads:
                spell = self._draw(road)
                road.loop.call_at(begins, partial(self._begin, road, spell))
                road.loop.call_at(ends, partial(self._end, road, spell))

    def _draw(self, road: Road) -> Spell:
        random = self._random
        trouble = random.choice((*Trouble, Trouble.CONDITION, Trouble.CONDITION))  # of which there are many
        is_about_one = trouble in NEEDS_A_QUEUE or random.random() < 0.4
        path = random.choice(list(road.namespace.settings)) if is_about_one else None
        return Spell(trouble, path, random.choice((1.0, 1.0, 0.5, 0.2)), random.choice(CONDITIONS))

    def _begin(self, road: Road, spell: Spell) -> None:
        if self.are_over:
            return
        road.seen[f"trouble: {spell.trouble.name}"] += 1
        namespace, path = road.namespace, spell.path or ""
        match spell.trouble:
            case Trouble.CRASH:
                if namespace.is_up:
                    namespace.crash()
            case Trouble.DISK:
                self._fail_disk(road, spell)
            case Trouble.DISABLED:
                namespace.set_status(path, self._random.choice((QueueStatus.DISABLED, QueueStatus.SEND_DISABLED)))
            case Trouble.FULL:
                namespace.fill(path)
            case Trouble.DELETED:
                namespace.delete(path)
        road.conditions.begin(spell)

    def _fail_disk(self, road: Road, spell: Spell) -> None:
        road.namespace.fail_disk()
        if not self.are_over and spell in road.conditions.over(spell.path or ""):
            road.loop.call_in(self._random.random() * DISK_FAILS_EVERY_S, lambda: self._fail_disk(road, spell))

    def _end(self, road: Road, spell: Spell) -> None:
        road.conditions.end(spell)
        if self.are_over:
            return
        namespace, path = road.namespace, spell.path or ""
        match spell.trouble:
            case Trouble.CRASH:
                namespace.restart()
            case Trouble.DISABLED:
                namespace.set_status(path, QueueStatus.ACTIVE)
            case Trouble.FULL:
                namespace.enlarge(path)
            case Trouble.DELETED:
                namespace.create(path)

    def stop(self) -> None:
        """From now on all is well."""
        self.are_over = True
        for road in (self._primary, self._secondary):
            road.conditions.clear_up()
            road.namespace.put_right()
