"""Attempts: a request on its way to a namespace, its answer on the way back, and a client that waits only so long.

An attempt is *in doubt* once the request has left and nothing came back, as for a real client. Requests that are late
still arrive, and are stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from sim.pair_conditions import Conditions, Spell, Trouble
from sim.pair_loop import Signal, VirtualLoop
from sim.pair_namespace import SimulatedNamespace
from twinbus.broker.operations import Done, Refused, SenderOpened
from twinbus.client.sdk.failures import KINDS
from twinbus.errors import ConditionError, NamespaceError
from twinbus.pairing.sending.failure import Failure, FailureKind

TRAVEL_S = 0.01
DOOR_CONDITIONS = {
    Trouble.BUSY: "com.microsoft:server-busy",
    Trouble.UNAUTHORISED: "amqp:unauthorized-access",
}


class SimulatedError(Exception):
    """What the SDK would have raised."""


def failure(kind: FailureKind, text: str, **details: Any) -> Failure:
    return Failure(kind, text, error=SimulatedError(text), **details)


def refused(error: NamespaceError) -> Failure:
    """What a client makes of a refusal; of conditions that nobody knows too."""
    kind = KINDS.get(error.condition, FailureKind.INTERNAL)
    return failure(kind, str(error), condition=error.condition)


Outcome = tuple[int, ...] | Failure
"""The sequence numbers of what was stored, or why it was not."""


class Road:
    """The way to one namespace."""

    def __init__(self, namespace: SimulatedNamespace, loop: VirtualLoop, random: Random, seen: Counter[str]) -> None:
        self.namespace = namespace
        self.conditions = Conditions()
        self.seen = seen
        self.loop = loop
        self.random = random

    def attempt(self, command: Any, timeout_s: float) -> Signal[Outcome]:
        """Ask the namespace for something about a queue; set at the latest when the time is over."""
        return Attempt(self, command, timeout_s).outcome

    def travel_s(self, spells: list[Spell]) -> float:
        is_slow = any(spell.trouble is Trouble.SLOW and self.meets(spell) for spell in spells)
        return self.random.random() * (5.0 if is_slow else TRAVEL_S)

    def meets(self, spell: Spell) -> bool:
        return spell.share >= 1 or self.random.random() < spell.share

    def met(self, spells: list[Spell], *troubles: Trouble) -> Spell | None:
        """The first of these troubles that the attempt runs into."""
        return next((spell for spell in spells if spell.trouble in troubles and self.meets(spell)), None)


class Attempt:
    def __init__(self, road: Road, command: Any, timeout_s: float) -> None:
        self.outcome: Signal[Outcome] = Signal()
        self._road, self._command, self._timeout_s = road, command, timeout_s
        self._has_left = False
        road.loop.call_in(timeout_s, self._no_answer)
        self._knock()

    def _knock(self) -> None:
        road = self._road
        spells = road.conditions.over(self._command.path)
        if not road.namespace.is_up or road.met(spells, Trouble.REFUSED):
            self._later(road.travel_s([]), self._not_reached)
        elif not road.met(spells, Trouble.SILENT):
            self._leave(spells)

    def _leave(self, spells: list[Spell]) -> None:
        road = self._road
        self._has_left = True
        if road.met(spells, Trouble.RESET):
            self._later(road.random.random() * self._timeout_s, self._cut)
        if not road.met(spells, Trouble.REQUESTS_LOST):
            self._later(road.travel_s(spells), self._arrive)

    def _arrive(self) -> None:
        road = self._road
        spells = road.conditions.over(self._command.path)
        refusal = road.met(spells, Trouble.BUSY, Trouble.UNAUTHORISED, Trouble.CONDITION)
        if not road.namespace.is_up:
            self._later(road.travel_s([]), self._cut)
        elif refusal is not None:
            condition = DOOR_CONDITIONS.get(refusal.trouble, refusal.condition)
            error = ConditionError(condition, refusal.trouble.value)
            self._later(road.travel_s(spells), lambda: self._end(refused(error)))
        else:
            road.namespace.ask(self._command, self._answered, self._cut)

    def _answered(self, reply: Done | Refused | SenderOpened) -> None:
        road = self._road
        spells = road.conditions.over(self._command.path)
        if not road.met(spells, Trouble.ANSWERS_LOST):
            result = refused(reply.error) if isinstance(reply, Refused) else getattr(reply, "sequences", ())
            self._later(road.travel_s(spells), lambda: self._end(result))

    def _not_reached(self) -> None:
        self._end(failure(FailureKind.UNREACHABLE, "connection refused", is_connection=True))

    def _cut(self) -> None:
        is_connection = self._road.random.random() < 0.5
        self._end(failure(FailureKind.UNREACHABLE, "connection lost", in_doubt=True, is_connection=is_connection))

    def _no_answer(self) -> None:
        if self._has_left:
            self._end(failure(FailureKind.NO_ANSWER, "no acknowledgement", in_doubt=True))
        else:
            self._end(failure(FailureKind.NO_ANSWER, "nobody answered", is_connection=True))

    def _end(self, outcome: Outcome) -> None:
        if not self.outcome.is_set:
            if isinstance(outcome, Failure):
                self._road.seen[f"{self._road.namespace.name}: {outcome.kind.value}"] += 1
            self.outcome.set(outcome)

    def _later(self, seconds: float, job: Callable[[], None]) -> None:
        self._road.loop.call_in(seconds, job)
