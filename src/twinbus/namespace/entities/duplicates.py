"""Messages that were sent before: within a time, a second one with the same id is accepted and dropped.

The ids are on disk, and each send asks for its own there before anything is stored. Sends wait in line for that, so
that messages keep the order in which they came. What was accepted since a read's moment is remembered here until every
read has seen it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus.errors import NamespaceError
from twinbus.namespace.commands import Send
from twinbus.namespace.entities.recent import RecentChanges
from twinbus.namespace.message import Arrival
from twinbus.namespace.replies import Refused, Step
from twinbus.namespace.store.api import IdsRead, KnownIds, MessageRow, NoteMessageIds

if TYPE_CHECKING:
    from twinbus.namespace.entities.queue import Queue


class Transfer(NamedTuple):
    """A message that another entity forwards here; it stays there until it is known whether it is new."""

    source: Queue
    row: MessageRow
    arrivals: tuple[Arrival, ...]
    """The one message."""
    origin: None = None


class PendingSend:
    __slots__ = ("command", "known", "request")

    def __init__(self, command: Send | Transfer, request: KnownIds) -> None:
        self.command = command
        self.request = request
        self.known: frozenset[str] | None = None
        """The ids that are on disk; None: not read yet."""


class DuplicateGuard:
    """Of one entity."""

    def __init__(self, entity_id: int, recent: RecentChanges) -> None:
        self._entity_id = entity_id
        self._recent = recent
        self._pending: deque[PendingSend] = deque()
        self._accepted: dict[str, int] = {}
        """Ids, with the change set that notes them."""
        self._order: deque[tuple[int, str]] = deque()

    def origins(self) -> Iterator[Any]:
        """Who waits."""
        return (pending.command.origin for pending in self._pending)

    def ask(self, command: Send | Transfer, ids: tuple[str, ...], now_ms: int, step: Step) -> None:
        """Look for the ids of a send; `take` gives it back."""
        request = KnownIds(self._entity_id, ids, now_ms)
        self._pending.append(PendingSend(command, request))
        step.reads.append(request)

    def take(self, read: IdsRead) -> Iterator[PendingSend]:
        """The ids are here: the sends that can be carried out now, in the order in which they came."""
        for pending in self._pending:
            if pending.request == read.request and pending.known is None:
                pending.known = read.known
                break
        while self._pending and self._pending[0].known is not None:
            yield self._pending.popleft()

    def new_ones(self, pending: PendingSend, keys: tuple[str, ...]) -> list[bool]:
        """For each of these keys whether it is new; one that comes twice is new once."""
        seen = set(pending.known or ()) | {key for key in keys if key in self._accepted}
        found = []
        for key in keys:
            found.append(key not in seen)
            seen.add(key)
        return found

    def note(self, keys: tuple[str, ...], until_ms: int, now_ms: int, step: Step) -> None:
        """These were accepted."""
        step.changes.append(NoteMessageIds(self._entity_id, keys, until_ms, now_ms))
        for key in keys:
            self._accepted[key] = step.number
            self._order.append((step.number, key))

    def forget(self) -> None:
        """Forget what every read has seen."""
        seen_by_all = self._recent.seen_by_all
        while self._order and self._order[0][0] <= seen_by_all:
            number, key = self._order.popleft()
            if self._accepted.get(key) == number:
                del self._accepted[key]

    def refuse(self, error: NamespaceError, step: Step) -> None:
        """Refuse everybody who waits; what was to be forwarded here is its source's again."""
        waiting, self._pending = self._pending, deque()
        for pending in waiting:
            command = pending.command
            if isinstance(command, Transfer):
                command.source.keep(command.row, step)
            else:
                step.replies.append(Refused(command.origin, error))


def keys_of(arrivals: tuple[Arrival, ...], *, with_partitions: bool) -> tuple[str, ...]:
    """What tells messages apart: their ids; in a partitioned entity together with their partition."""
    if not with_partitions:
        return tuple([arrival.message_id or "" for arrival in arrivals])
    return tuple([_key_in_partition(arrival) for arrival in arrivals])


def _key_in_partition(arrival: Arrival) -> str:
    # With the length in front no partition and id can be read as another partition and another id.
    partition = arrival.partition_key or arrival.session_id or ""
    return f"{len(partition)}/{partition}/{arrival.message_id}"
