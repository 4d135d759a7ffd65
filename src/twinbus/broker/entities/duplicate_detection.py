"""Duplicate detection: within a time window, a second message with the same id is accepted and dropped.

The ids are on disk, and each send looks up its own there before anything is stored. Sends wait in order for that, so
messages keep their order. Ids that were accepted since the moment of a read are remembered here until every read has
seen them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from twinbus.broker.core.commands import SendMessages
from twinbus.broker.core.replies import Step
from twinbus.broker.entities.recent_changes import RecentChanges
from twinbus.broker.message import Arrival
from twinbus.broker.operations import Refused
from twinbus.broker.store.api import IdsRead, KnownIds, MessageRow, RememberMessageIds
from twinbus.errors import NamespaceError

if TYPE_CHECKING:
    from twinbus.broker.entities.queue import Queue


class PendingForward(NamedTuple):
    """A message that another entity forwards here; it stays there until it is known to be new or a duplicate."""

    source: Queue
    row: MessageRow
    arrivals: tuple[Arrival, ...]
    """The one message."""


class PendingSend:
    __slots__ = ("command", "known", "request", "request_id")

    def __init__(self, command: SendMessages | PendingForward, request_id: int, request: KnownIds) -> None:
        self.command = command
        self.request_id = request_id
        self.request = request
        self.known: frozenset[str] | None = None
        """Those of its ids that are on disk; None: not read yet."""


class DuplicateDetector:
    """The duplicate detection of one entity."""

    def __init__(self, entity_id: int, recent: RecentChanges) -> None:
        self._entity_id = entity_id
        self._recent = recent
        self._pending: deque[PendingSend] = deque()
        self._accepted: dict[str, int] = {}
        """Ids, with the change set that stores them."""
        self._order: deque[tuple[int, str]] = deque()

    def check(self, command: SendMessages | PendingForward, ids: tuple[str, ...], now_ms: int, step: Step) -> None:
        """Look up the ids of a send; `take` returns it."""
        request = KnownIds(self._entity_id, ids, now_ms)
        self._pending.append(PendingSend(command, step.request_id, request))
        step.reads.append(request)

    def take(self, read: IdsRead) -> Iterator[PendingSend]:
        """The sends that can be carried out now, in order."""
        for pending in self._pending:
            if pending.request == read.request and pending.known is None:
                pending.known = read.known
                break
        while self._pending and self._pending[0].known is not None:
            yield self._pending.popleft()

    def new_ones(self, known: frozenset[str] | None, keys: tuple[str, ...]) -> list[bool]:
        """For each key whether it is new; one that appears twice is new once. `known` are those that are on disk."""
        seen = set(known or ()) | {key for key in keys if key in self._accepted}
        found = []
        for key in keys:
            found.append(key not in seen)
            seen.add(key)
        return found

    def remember(self, keys: tuple[str, ...], until_ms: int, now_ms: int, step: Step) -> None:
        """Remember accepted keys."""
        step.changes.append(RememberMessageIds(self._entity_id, keys, until_ms, now_ms))
        for key in keys:
            self._accepted[key] = step.number
            self._order.append((step.number, key))

    def forget(self) -> None:
        """Forget keys that every read has seen."""
        seen_by_all = self._recent.seen_by_all
        while self._order and self._order[0][0] <= seen_by_all:
            number, key = self._order.popleft()
            if self._accepted.get(key) == number:
                del self._accepted[key]

    def refuse(self, error: NamespaceError, step: Step) -> None:
        """Refuse all waiting sends; messages that were to be forwarded here stay in their source."""
        waiting, self._pending = self._pending, deque()
        for pending in waiting:
            command = pending.command
            if isinstance(command, PendingForward):
                command.source.cancel_transfer(command.row, step)
            else:
                step.reply_to(pending.request_id, Refused(error))
