"""What a namespace writes to its ledger: what happened to messages, once it is durable, and what it refused as busy.

Called in the loop's thread, so it only builds values; the ledger writes in its own. Backlog queues are named in
`queue` and not in `entity`: only sender and syphon know for which entity their messages are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from twinbus.board.queue import is_board_path
from twinbus.broker.core.message_events import MessageEvent, MessageEventKind, MessageEvents
from twinbus.broker.entities.entity import MessagingEntity
from twinbus.errors import NamespaceError
from twinbus.ledger import Ledger, LedgerHealth
from twinbus.ledger.kinds import Kind
from twinbus.ledger.schema import Event, Recorder
from twinbus.pairing.backlog.backlog_queues import is_backlog_path

MESSAGES_PER_EVENT_MAX = 2_000
TEXT_PER_EVENT_MAX = 2 * 1024 * 1024
"""A line of the ledger has a largest size, and ids may be long."""
REASON_LENGTH_MAX = 1_000
"""Receivers write the reasons of dead letters, at any length."""
PATH_LENGTH_MAX = 300
"""An entity's path is shorter; a link may name one that does not exist."""
BUSY_MS = 10_000
"""How long a client that is refused as busy has to wait, as the error says."""


class MessageEventRecorder:
    def __init__(self, recorder: Recorder, namespace: str) -> None:
        self._record = recorder.record
        self._namespace = namespace

    def record_inventory(self, entities: Iterable[MessagingEntity]) -> None:
        """Record what is in the namespace at its start: that makes up for what a crash kept from the ledger."""
        for entity in entities:
            if is_board_path(entity.row.path):
                continue
            held = entity.active + entity.deferred + entity.scheduled
            if held:
                place = _entity_and_queue(entity.row.path)
                self._record(
                    Event(Kind.INVENTORY, place[0], self._namespace, place[1], count=held, bytes=entity.payload_bytes)
                )

    def record(self, events: MessageEvents) -> None:
        """Record what has become durable."""
        for event in events.all():
            if is_board_path(event.path):
                continue  # no messages of applications: whoever posts or reads records what that costs
            if event.what is MessageEventKind.LONG_POLL and is_backlog_path(event.path):
                continue  # it is paid for once, and a syphon records its own
            for first, end in _ranges(event, 0, len(event.message_ids)):
                self._record(self._event(event, first, end))

    def _event(self, event: MessageEvent, first: int, end: int) -> Event:
        entity, queue = _entity_and_queue(event.path)
        sessions = event.session_ids[first:end]
        return Event(
            Kind(event.what.value),
            entity,
            self._namespace,
            queue,
            message_ids=tuple(event.message_ids[first:end]),
            sizes=tuple(event.sizes[first:end]),
            session_ids=tuple(sessions) if any(sessions) else (),
            sequence_numbers=tuple(event.sequences[first:end]),
            count=event.count,
            bytes=event.bytes,
            outcome=str(event.cause),
            reason=event.reason[:REASON_LENGTH_MAX],
            until_ms=event.until_ms,
        )

    def refused(self, path: str, error: NamespaceError, now_ms: int) -> None:
        """An operation was refused because the namespace is busy."""
        entity, queue = _entity_and_queue(path[:PATH_LENGTH_MAX])
        until_ms = now_ms + BUSY_MS
        event = Event(
            Kind.THROTTLED,
            entity,
            self._namespace,
            queue,
            count=1,
            reason=str(error)[:REASON_LENGTH_MAX],
            until_ms=until_ms,
        )
        self._record(event)


class NamespaceLedger:
    """The ledger of a running namespace, and what records its events; without a directory there is none."""

    def __init__(self, directory: Path | None, ship_to: str | None, namespace: str) -> None:
        self._directory = directory
        self._ship_to = ship_to
        self._namespace = namespace
        self._made_directory = False
        self._ledger: Ledger | None = None
        self.events: MessageEventRecorder | None = None

    def open(self) -> None:
        """Raises a `TwinbusError` if the ledger cannot be written."""
        if self._directory is not None and self._ledger is None:
            self._made_directory = not self._directory.exists()
            self._ledger = Ledger.at(self._directory, self._namespace, self._ship_to)
            self.events = MessageEventRecorder(self._ledger, self._namespace)

    def record_inventory(self, entities: Iterable[MessagingEntity]) -> None:
        if self.events is not None:
            self.events.record_inventory(entities)

    def health(self) -> LedgerHealth | None:
        return None if self._ledger is None else self._ledger.health()

    def close(self) -> None:
        """Harmless when it is closed. A directory that was made for nothing is removed."""
        if self._ledger is not None:
            ledger, self._ledger, self.events = self._ledger, None, None
            ledger.close()
            if self._made_directory and not ledger.health().written:
                with contextlib.suppress(OSError):  # others may have written there by now
                    ledger.directory.rmdir()


@lru_cache(maxsize=4096)
def _entity_and_queue(path: str) -> tuple[str, str]:
    """What stands in `entity`, and what in `queue`."""
    return ("", path) if is_backlog_path(path) else (path, "")


def _ranges(event: MessageEvent, first: int, end: int) -> list[tuple[int, int]]:
    """Ranges of messages that fit into one event each."""
    count = end - first
    if count <= 1 or (count <= MESSAGES_PER_EVENT_MAX and _text(event, first, end) <= TEXT_PER_EVENT_MAX):
        return [(first, end)]
    middle = first + count // 2
    return _ranges(event, first, middle) + _ranges(event, middle, end)


def _text(event: MessageEvent, first: int, end: int) -> int:
    return sum(map(len, event.message_ids[first:end])) + sum(map(len, event.session_ids[first:end]))
