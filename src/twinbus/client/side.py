"""The two sides of a paired client, `bus.primary` and `bus.secondary`, and what the end of one means for the other.

The decisions are in `pairing.closing`; here they are carried out, on threads and on tasks.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Protocol

from twinbus.client.standing import Standing
from twinbus.pairing.closing import BothOpen, EndPair, Event, OneOpen, SideClosed, SideFaulted, SideName, TimeCame
from twinbus.pairing.effects import ForgetWake, WakeMe

if TYPE_CHECKING:
    from twinbus.client.aio_shell import TaskShell
    from twinbus.client.namespace import Namespace
    from twinbus.client.shell import ThreadShell

PARTNER = "partner"
"""The key under which the end of patience is ordered."""


class Client(Protocol):
    """What a paired client does when one of its sides has ended."""

    def close(self) -> None: ...

    def fault(self, reason: str) -> None: ...

    def let_go(self, side: SideName) -> None: ...


class AioClient(Protocol):
    async def close(self) -> None: ...

    async def fault(self, reason: str) -> None: ...

    async def let_go(self, side: SideName) -> None: ...


class AnySide:
    """One of the two namespaces of a pair."""

    def __init__(self, name: SideName, namespace: Namespace, standing: Standing) -> None:
        self.name = name
        self.namespace = namespace
        self._standing = standing

    @property
    def is_open(self) -> bool:
        """Whether calls that need this side may still be made."""
        standing = self._standing
        return not standing.has_ended and not standing.has_side_ended(self.name)

    @property
    def fault(self) -> str | None:
        """Why it ended, if it was not closed."""
        return self._standing.side_fault(self.name)

    def __repr__(self) -> str:
        return f"<{self.name} {self.namespace!r}, {'open' if self.is_open else 'closed'}>"


# --- threads ---


class Side(AnySide):
    def __init__(self, name: SideName, namespace: Namespace, sides: Sides) -> None:
        super().__init__(name, namespace, sides.standing)
        self._sides = sides

    def close(self) -> None:
        """End this side: whatever needs it raises `PairClosed` from now on. When both are closed, the pair is.

        Where the client runs a syphon the other side has to be closed within 5 seconds, or the pair faults.
        """
        self._sides.closed(self.name)


class Sides:
    def __init__(self, client: Client, shell: ThreadShell) -> None:
        self.standing = shell.standing
        self._client = client
        self._shell = shell

    def closed(self, side: SideName) -> None:
        self._tell(SideClosed(monotonic(), side))

    def faulted(self, side: SideName, reason: str) -> None:
        """A side can never be used again."""
        self._tell(SideFaulted(monotonic(), side, reason))

    def broke(self, reason: str) -> None:
        """Something between the sides can never be used again: that leaves nobody time."""
        self._client.fault(reason)

    def _tell(self, event: Event) -> None:
        with self._shell.lock:
            was, effects = self.standing.sides, self.standing.side_event(event)
            now = self.standing.sides
        for effect in effects:
            if not isinstance(effect, EndPair):
                self._order(effect)  # first: letting go takes its time
        if isinstance(was, BothOpen) and isinstance(now, OneOpen):
            self._shell.news.tell("side_closed", said(now), namespace=self.standing.name_of(now.ended))
            self._shell.let_go(now.ended)
            self._client.let_go(now.ended)
        for effect in effects:
            if isinstance(effect, EndPair):
                self._client.close() if effect.fault is None else self._client.fault(effect.fault)

    def _order(self, effect: WakeMe | ForgetWake) -> None:
        if isinstance(effect, WakeMe):
            self._shell.call_at(PARTNER, effect.at, lambda: self._tell(TimeCame(monotonic())))
        else:
            self._shell.cancel(PARTNER)


def said(state: OneOpen) -> str:
    return f"the {state.ended} was closed" if state.fault is None else f"the {state.ended} has ended: {state.fault}"


# --- tasks ---


class AioSide(AnySide):
    """The twin of `Side`."""

    def __init__(self, name: SideName, namespace: Namespace, sides: AioSides) -> None:
        super().__init__(name, namespace, sides.standing)
        self._sides = sides

    async def close(self) -> None:
        """End this side: whatever needs it raises `PairClosed` from now on. When both are closed, the pair is.

        Where the client runs a syphon the other side has to be closed within 5 seconds, or the pair faults.
        """
        await self._sides.closed(self.name)


class AioSides:
    def __init__(self, client: AioClient, shell: TaskShell) -> None:
        self.standing = shell.standing
        self._client = client
        self._shell = shell

    async def closed(self, side: SideName) -> None:
        await self._tell(SideClosed(monotonic(), side))

    async def faulted(self, side: SideName, reason: str) -> None:
        """A side can never be used again."""
        await self._tell(SideFaulted(monotonic(), side, reason))

    async def broke(self, reason: str) -> None:
        """Something between the sides can never be used again: that leaves nobody time."""
        await self._client.fault(reason)

    async def _tell(self, event: Event) -> None:
        was, effects = self.standing.sides, self.standing.side_event(event)
        now = self.standing.sides
        for effect in effects:
            if not isinstance(effect, EndPair):
                self._order(effect)  # first: letting go takes its time
        if isinstance(was, BothOpen) and isinstance(now, OneOpen):
            self._shell.news.tell("side_closed", said(now), namespace=self.standing.name_of(now.ended))
            await self._shell.let_go(now.ended)
            await self._client.let_go(now.ended)
        for effect in effects:
            if isinstance(effect, EndPair):
                await (self._client.close() if effect.fault is None else self._client.fault(effect.fault))

    def _order(self, effect: WakeMe | ForgetWake) -> None:
        if isinstance(effect, WakeMe):
            self._shell.call_at(PARTNER, effect.at, lambda: self._shell.begin(self._tell(TimeCame(monotonic()))))
        else:
            self._shell.cancel(PARTNER)
