"""A dry run: what a syphon would do with a backlog, found by peeking."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from twinbus.errors import DecodeError, EnvelopeError
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.backlog.envelope import read_aliases
from twinbus.pairing.sending.failure import Failure
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.peeking.backlog_scan import Wants
from twinbus.syphon.peeking.queue_discovery import doubts
from twinbus.syphon.pump.backlog_message import expiry_ms
from twinbus.syphon.pump.dead_letter_reasons import path_problem
from twinbus.syphon.pump.pace import Pace
from twinbus.syphon.pump.placement import placement_problem
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.annotations import enqueued_ms, is_waiting
from twinbus.transport.links.peek import pages

if TYPE_CHECKING:
    from twinbus.transport.dial import Dial

SESSIONS_MAX = 10_000


@dataclass(slots=True)
class MessageGroup:
    messages: int = 0
    size: int = 0
    """In bytes, in the backlog."""
    oldest_ms: int | None = None
    """When the first of them was enqueued."""
    newest_ms: int | None = None

    def add(self, size: int, enqueued_at_ms: int | None) -> None:
        self.messages += 1
        self.size += size
        if enqueued_at_ms is not None:
            self.oldest_ms = enqueued_at_ms if self.oldest_ms is None else min(self.oldest_ms, enqueued_at_ms)
            self.newest_ms = enqueued_at_ms if self.newest_ms is None else max(self.newest_ms, enqueued_at_ms)


@dataclass(slots=True)
class DryRun:
    """What would move where. The names of the fields are keys of its JSON."""

    destinations: dict[str, MessageGroup] = field(default_factory=dict)
    malformed: MessageGroup = field(default_factory=MessageGroup)
    """Would be dead-lettered: it did not come from a paired client."""
    expired: MessageGroup = field(default_factory=MessageGroup)
    """Would be dead-lettered: its time to live has ended."""
    unwanted: MessageGroup = field(default_factory=MessageGroup)
    """Stays where it is, by these options."""
    kept: MessageGroup = field(default_factory=MessageGroup)
    """Stays where it is: its queue cannot be emptied, and `doubts` says why."""
    set_aside: MessageGroup = field(default_factory=MessageGroup)
    """Scheduled or deferred in the backlog queue itself: no receiver gets it."""
    sessions: dict[str, dict[str, int]] = field(default_factory=dict)
    """By entity and session (empty: without one), how many messages would move; at most 10,000 sessions."""
    session_count: int = 0
    queues: tuple[int, ...] = ()
    """The backlog queues that were peeked, by index."""
    doubts: list[str] = field(default_factory=list)
    """Why it is uncertain that this is all, and that all of it would come home; a line each."""
    order_problem: str | None = None
    """With `order_over`: why order cannot be promised."""

    @property
    def doubt(self) -> str | None:
        """The same in one line; None: it is certain."""
        return "; ".join(self.doubts) or None

    def add(self, message: bytes, options: SyphonOptions, wants: Wants, now_ms: int) -> None:
        since_ms = enqueued_ms(message)
        self._group_of(message, since_ms, options, wants, now_ms).add(len(message), since_ms)

    def check_order(self, message: bytes, queue: int, path: str, options: SyphonOptions, wants: Wants) -> None:
        """Keep the first reason why order cannot be promised."""
        if options.order_over is not None and self.order_problem is None:
            problem = placement_problem(message, queue, options.order_over, wants)
            self.order_problem = None if problem is None else f"{path}: {problem}"

    def largest_sessions(self, most: int) -> list[tuple[str, str, int]]:
        every = [(path, name, count) for path, names in self.sessions.items() for name, count in names.items()]
        return nlargest(most, every, key=lambda each: each[2])

    def _group_of(
        self, message: bytes, since_ms: int | None, options: SyphonOptions, wants: Wants, now_ms: int
    ) -> MessageGroup:
        try:
            if not is_waiting(message):
                return self.set_aside
            aliases = read_aliases(message)
        except (EnvelopeError, DecodeError):
            return self.malformed
        if path_problem(aliases.path) is not None:
            return self.malformed
        if not wants(aliases.path, since_ms):
            return self.unwanted
        ends_ms = expiry_ms(aliases, now_ms if since_ms is None else since_ms)
        if options.ttl == "remaining" and ends_ms is not None and ends_ms <= now_ms:
            return self.expired
        self._count_session(aliases.path, aliases.session_id or "")
        return self.destinations.setdefault(aliases.path, MessageGroup())

    def _count_session(self, path: str, session_id: str) -> None:
        names = self.sessions.setdefault(path, {})
        if session_id not in names:
            if self.session_count >= SESSIONS_MAX:
                return
            self.session_count += 1
        names[session_id] = names.get(session_id, 0) + 1

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"doubt": self.doubt}


async def run_dry(
    secondary: Dial,
    primary_name: str,
    queue_count: int,
    options: SyphonOptions,
    *,
    queues: Sequence[int] | None = None,
    shut: Collection[int] = (),
) -> DryRun:
    """Peek through all backlog queues; `doubts` names those that could not be read. Raises `ConnectionFailed`.

    Messages in queues that are `shut` would not move.
    """
    now_ms = int(time.time() * 1000)
    wants = Pace(options, now_ms).wants
    found, unread = DryRun(queues=tuple(range(queue_count) if queues is None else queues)), dict[int, Failure]()
    async with NamespaceConnection(secondary, attempt_s=options.attempt_s) as connection:
        for index in found.queues:
            path = backlog_path(primary_name, index)
            try:
                async for messages in pages(connection, path):
                    for message in messages:
                        if index in shut:
                            found.kept.add(len(message), enqueued_ms(message))
                            continue
                        found.add(message, options, wants, now_ms)
                        found.check_order(message, index, path, options, wants)
            except ConnectionFailed as error:
                if not connection.is_open:
                    raise
                unread[index] = error.failure
    found.doubts += doubts(unread)
    return found
