"""What is done for each effect of the pairing core, for threads, tasks, the simulator and scripted tests alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol, assert_never

from twinbus.pairing.effects import ForgetWake, PingPrimary, ReportEvent, StopPings, TrySecondary, WakeMe, WakeWaiter
from twinbus.pairing.entity import Entity
from twinbus.pairing.pair import Order, Pair


class TimerKey(NamedTuple):
    """At most one timer runs for each key."""

    kind: Literal["wake", "ping", "trial"]
    entity: Entity | None = None


TRIAL = TimerKey("trial")


class EffectPorts(Protocol):
    """What a client does when the core wants it."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Guards the core."""

    def schedule(self, key: TimerKey, at: float, job: Callable[[], None]) -> None:
        """Do a short job at that time; replaces the timer that has this key."""

    def cancel(self, key: TimerKey) -> None: ...

    def wake(self, ticket: int) -> None:
        """End the wait of the send that has this ticket, or the next one that it begins; called with the lock held."""

    def report(self, entity: Entity | None, event: ReportEvent) -> None:
        """Publish what happened."""

    def time_came(self, entity: Entity) -> None:
        """Report `TimeCame` to the entity."""

    def ping(self, entity: Entity) -> None:
        """Begin a ping."""

    def try_secondary(self) -> None:
        """Begin a trial of the secondary."""


def run_effects(pair: Pair, orders: Iterable[Order], ports: EffectPorts) -> None:
    """Carry out what `pair.take_orders` returned, in its order."""
    for entity, effect in orders:
        match effect:
            case ReportEvent():
                ports.report(entity, effect)
            case WakeWaiter(ticket):
                with ports.lock:  # whoever leaves does so under it, and forgets the wake-up afterwards
                    if pair.is_awaited(entity, ticket):
                        ports.wake(ticket)
            case TrySecondary(at):
                ports.schedule(TRIAL, at, ports.try_secondary)
            case WakeMe(at):
                ports.schedule(_key("wake", entity), at, _job(ports.time_came, entity))
            case ForgetWake():
                ports.cancel(_key("wake", entity))
            case PingPrimary(at):
                ports.schedule(_key("ping", entity), at, _job(ports.ping, entity))
            case StopPings():
                ports.cancel(_key("ping", entity))
            case _:
                assert_never(effect)


def _key(kind: Literal["wake", "ping"], entity: Entity | None) -> TimerKey:
    assert entity is not None, f"a {kind} is about an entity"
    return TimerKey(kind, entity)


def _job(act: Callable[[Entity], None], entity: Entity | None) -> Callable[[], None]:
    assert entity is not None
    return lambda: act(entity)
