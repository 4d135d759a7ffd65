"""Fences at one moment (P19): which sessions still go through the backlog, and how much of them is not home yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import nlargest

from twinbus.pairing.backlog.ordering import Fences

FENCES_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceStatus:
    """One session of an entity, or its messages without one, that go on into the backlog though the primary is up."""

    entity: str
    """In lower case."""
    session_id: str | None
    """None: the messages without a session."""
    backlog_queue: str
    messages_left: int
    """About how many of them are not home yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderStatus:
    """What keeps messages behind those that were sent before them."""

    fences: int = 0
    """Sessions, and entities without any, that have one."""
    messages_left: int = 0
    """About how many messages have to come home until all of them have fallen."""
    unseen_queues: tuple[str, ...] = ()
    """Backlog queues that were not seen empty yet: all sessions that belong to them go through the backlog."""
    largest: tuple[FenceStatus, ...] = ()
    """Those with the most messages, at most 20."""
    by_entity: tuple[tuple[str, int, int], ...] = ()
    """Of each entity that has any: its name in lower case, fences, messages left."""


def order_status(fences: Fences, path_of: Callable[[int], str]) -> OrderStatus:
    """`path_of` gives the path of a backlog queue."""
    fenced = fences.in_force()
    sums: dict[str, tuple[int, int]] = {}
    for key, _, left in fenced:
        count, messages = sums.get(key.path, (0, 0))
        sums[key.path] = count + 1, messages + left
    largest = nlargest(FENCES_SHOWN, fenced, key=lambda each: each[2])
    return OrderStatus(
        fences=len(fenced),
        messages_left=sum([left for _, _, left in fenced]),
        unseen_queues=tuple(map(path_of, fences.unseen)),
        largest=tuple(
            FenceStatus(entity=key.path, session_id=key.session_id, backlog_queue=path_of(queue), messages_left=left)
            for key, queue, left in largest
        ),
        by_entity=tuple((path, *numbers) for path, numbers in sorted(sums.items())),
    )
