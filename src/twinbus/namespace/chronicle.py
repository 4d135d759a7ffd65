"""What a namespace tells its ledger: what became of messages, once it is durable, and what it refused for being busy.

Called in the loop's thread, so it only puts together values; the ledger writes elsewhere. Backlog queues are named in
`queue` and not in `entity`: only whoever sends or brings home knows for which entity their messages are.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from twinbus.errors import NamespaceError
from twinbus.ledger.events import Event, Recorder
from twinbus.ledger.kinds import Kind
from twinbus.namespace.entities.shelf import Shelf
from twinbus.namespace.happenings import Happened, Happening, Story
from twinbus.pairing.backlog_queues import is_backlog_path

MESSAGES_PER_EVENT_MAX = 2_000
TEXT_PER_EVENT_MAX = 2 * 1024 * 1024
"""A line of the ledger has a largest size, and ids may be long."""
REASON_LENGTH_MAX = 1_000
"""Receivers write the reasons of dead letters, at any length."""
PATH_LENGTH_MAX = 300
"""An entity's path is shorter; a link may name one that does not exist."""
BUSY_MS = 10_000
"""How long whoever is told that the namespace is busy has to wait, as the error says."""


class Chronicle:
    def __init__(self, recorder: Recorder, namespace: str) -> None:
        self._record = recorder.record
        self._namespace = namespace

    def began(self, entities: Iterable[Shelf]) -> None:
        """The namespace works from now on, with this in it: whatever a crash kept from the ledger is made up for."""
        for entity in entities:
            held = entity.active + entity.deferred + entity.scheduled
            if held:
                place = _place(entity.row.path)
                self._record(
                    Event(Kind.INVENTORY, place[0], self._namespace, place[1], count=held, bytes=entity.payload_bytes)
                )

    def tell(self, story: Story) -> None:
        """This has happened and cannot be undone."""
        for happened in story.happened():
            if happened.what is Happening.LONG_POLL and is_backlog_path(happened.path):
                continue  # it is paid for once, and a syphon tells of its own
            for first, end in _pieces(happened, 0, len(happened.message_ids)):
                self._record(self._event(happened, first, end))

    def _event(self, happened: Happened, first: int, end: int) -> Event:
        entity, queue = _place(happened.path)
        sessions = happened.session_ids[first:end]
        return Event(
            Kind(happened.what.value),
            entity,
            self._namespace,
            queue,
            message_ids=tuple(happened.message_ids[first:end]),
            sizes=tuple(happened.sizes[first:end]),
            session_ids=tuple(sessions) if any(sessions) else (),
            sequence_numbers=tuple(happened.sequences[first:end]),
            count=happened.count,
            bytes=happened.bytes,
            outcome=str(happened.cause),
            reason=happened.reason[:REASON_LENGTH_MAX],
            until_ms=happened.until_ms,
        )

    def refused(self, path: str, error: NamespaceError, now_ms: int) -> None:
        """An operation was turned away because the namespace is busy."""
        entity, queue = _place(path[:PATH_LENGTH_MAX])
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


@lru_cache(maxsize=4096)
def _place(path: str) -> tuple[str, str]:
    """What stands in `entity`, and what in `queue`."""
    return ("", path) if is_backlog_path(path) else (path, "")


def _pieces(happened: Happened, first: int, end: int) -> list[tuple[int, int]]:
    """Ranges of messages that fit into one event each."""
    count = end - first
    if count <= 1 or (count <= MESSAGES_PER_EVENT_MAX and _text(happened, first, end) <= TEXT_PER_EVENT_MAX):
        return [(first, end)]
    middle = first + count // 2
    return _pieces(happened, first, middle) + _pieces(happened, middle, end)


def _text(happened: Happened, first: int, end: int) -> int:
    return sum(map(len, happened.message_ids[first:end])) + sum(map(len, happened.session_ids[first:end]))
