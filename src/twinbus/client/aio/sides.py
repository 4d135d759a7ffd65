"""The two sides of a paired client, `bus.primary` and `bus.secondary`, and what the end of one means for the other.

`pairing.closing` decides; here that is carried out.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Protocol, assert_never

from twinbus.pairing.closing import BothOpen, DeadlinePassed, EndPair, Event, OneOpen, SideClosed, SideName
from twinbus.pairing.effects import ForgetWake, WakeMe

if TYPE_CHECKING:
    from twinbus.client.aio.pair_runner import PairRunner
    from twinbus.client.namespace import Namespace

PARTNER = "partner"
"""The key of the timer that ends the time in which the other side has to be closed too."""


class PairSide:
    """One of the two namespaces of a pair."""

    def __init__(self, name: SideName, namespace: Namespace, sides: PairSides) -> None:
        self.name = name
        self.namespace = namespace
        self._state = sides.state
        self._sides = sides

    @property
    def is_open(self) -> bool:
        """Whether calls that need this side may still be made."""
        return not self._state.has_ended and not self._state.has_side_ended(self.name)

    @property
    def fault(self) -> str | None:
        """Why it ended, if it was not closed."""
        return self._state.side_fault(self.name)

    async def close(self) -> None:
        """End this side: whatever needs it raises `PairClosed` from now on. When both are closed, the pair is.

        Where the client runs a syphon the other side has to be closed within 5 seconds, or the pair faults.
        """
        await self._sides.happened(SideClosed(monotonic(), self.name))

    def __repr__(self) -> str:
        return f"<{self.name} {self.namespace!r}, {'open' if self.is_open else 'closed'}>"


class PairOwner(Protocol):
    """Who has a pair and can end it."""

    async def close(self) -> None: ...

    async def fault(self, reason: str) -> None: ...

    async def let_go(self, side: SideName) -> None:
        """One side has ended: what is open on it is closed."""


class PairSides:
    def __init__(self, client: PairOwner, runner: PairRunner) -> None:
        self.state = runner.state
        self._client = client
        self._runner = runner

    async def broke(self, reason: str) -> None:
        """Something between the sides can never be used again: the pair faults at once."""
        await self._client.fault(reason)

    async def happened(self, event: Event) -> None:
        with self._runner.lock:
            was, effects = self.state.sides, self.state.side_event(event)
            now = self.state.sides
        end: EndPair | None = None
        for effect in effects:  # timers first: letting go takes its time
            match effect:
                case WakeMe(at):
                    self._runner.schedule(PARTNER, at, self._time_came)
                case ForgetWake():
                    self._runner.cancel(PARTNER)
                case EndPair():
                    end = effect
                case _:
                    assert_never(effect)
        if isinstance(was, BothOpen) and isinstance(now, OneOpen):
            how = "was closed" if now.fault is None else f"has ended: {now.fault}"
            self._runner.event_log.report(
                "side_closed", f"the {now.ended} {how}", namespace=self.state.name_of(now.ended)
            )
            await self._runner.let_go(now.ended)
            await self._client.let_go(now.ended)
        if end is not None:
            await (self._client.close() if end.fault is None else self._client.fault(end.fault))

    def _time_came(self) -> None:
        self._runner.begin_apart(PARTNER, lambda: self.happened(DeadlinePassed(monotonic())))
