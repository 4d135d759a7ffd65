"""What the syphon records in the ledger: one event for all messages to which the same happened at once.

Message ids are read only here, so a syphon without a ledger does not look for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from twinbus.amqp.codec.types import text_of
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.errors import DecodeError
from twinbus.ledger.kinds import Kind
from twinbus.ledger.schema import Event, NoLedger, Recorder
from twinbus.pairing.backlog.backlog_queues import is_backlog_path
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.pump.backlog_message import HeldMessage, RecordedMessage
from twinbus.transport.links.peek import DEAD_LETTER_QUEUE

if TYPE_CHECKING:
    from twinbus.syphon.pump.destination import Batch
    from twinbus.syphon.quarantine import QuarantinedMessage


class SyphonEventLog:
    """Keeps what is recorded of messages from their arrival until they have left us.

    A batch may be settled long after the link of its messages was lost, when the next link counts from the start
    again: so a message in flight carries its own record.
    """

    def __init__(self, recorder: Recorder | None, paths: Sequence[str], primary: str, secondary: str) -> None:
        """Without a `recorder` nothing is kept and nothing is recorded."""
        self._is_on = recorder is not None
        self._record = (recorder or NoLedger()).record
        self._paths = list(paths)
        self._primary = primary
        self._secondary = secondary
        self._held: list[dict[int, RecordedMessage]] = [{} for _ in paths]
        """By queue and number, the messages that we hold."""
        self._arrived: list[RecordedMessage] = []

    # --- the backlog ---

    def queue_added(self, path: str) -> None:
        if self._is_on:
            self._paths.append(path)
            self._held.append({})

    def record_listing(self, requests: int) -> None:
        self._record(Event(Kind.QUEUE_CHECKED, namespace=self._secondary, count=requests))

    def add_received(self, queue: int, held: HeldMessage, raw: bytes) -> None:
        """A message arrived; `record_received` records it with the others that arrived together."""
        if self._is_on:
            aliases = held.aliases
            recorded = RecordedMessage(aliases.path, _message_id(raw), aliases.session_id or "", len(raw))
            held.recorded = self._held[queue][held.number] = recorded
            self._arrived.append(recorded)

    def record_received(self, queue: int) -> None:
        arrived, self._arrived = self._arrived, []
        self._record_by_entity(Kind.RECEIVED_FROM_BACKLOG, arrived, queue)

    def record_gone(self, kind: Kind, queue: int, numbers: Iterable[int], reason: str = "") -> None:
        """We no longer hold these messages."""
        if self._is_on:
            held = self._held[queue]
            gone = [held.pop(number) for number in numbers if number in held]
            self._record_by_entity(kind, gone, queue, reason)

    def link_lost(self, queue: int) -> None:
        if self._is_on:
            self.record_gone(Kind.LOCK_LOST, queue, list(self._held[queue]), "the link was lost")

    def record_long_poll(self, queue: int) -> None:
        """An idle queue was granted credit."""
        if self._is_on:
            self._record(Event(Kind.LONG_POLL, namespace=self._secondary, queue=self._paths[queue], count=1))

    def record_peek(self, path: str, messages: Sequence[bytes]) -> None:
        if self._is_on:
            self._record(peek_event(self._secondary, path, messages))

    def record_renewed(self, queue: int, locks: int) -> None:
        if self._is_on:
            self._record(Event(Kind.LOCK_RENEWED, namespace=self._secondary, queue=self._paths[queue], count=locks))

    def record_paused(self, reason: str) -> None:
        self._record(Event(Kind.PAUSED, namespace=self._secondary, reason=reason))

    def record_resumed(self) -> None:
        self._record(Event(Kind.RESUMED, namespace=self._secondary))

    # --- the primary ---

    def record_sent(self, kind: Kind, batch: Batch, failure: Failure | None = None) -> None:
        """A batch was stored, is in doubt, or was refused."""
        if self._is_on:
            messages = [held.recorded for held in batch.messages]
            self._record(_event(kind, messages, self._primary, failure=failure, sizes=batch.sizes))

    def record_backlogged(self, path: str, batch: Batch) -> None:
        """A backlog queue of the secondary has stored a batch of messages that were elsewhere before."""

    def record_destination_skipped(self, path: str, failure: Failure, until_ms: int) -> None:
        kind = Kind.THROTTLED if failure.kind is FailureKind.BUSY else Kind.DESTINATION_SKIPPED
        self._record(_event(kind, [], self._primary, entity=path, failure=failure, until_ms=until_ms))

    def record_destination_back(self, path: str) -> None:
        self._record(Event(Kind.DESTINATION_BACK, entity=path, namespace=self._primary))

    def _record_by_entity(self, kind: Kind, messages: list[RecordedMessage], queue: int, reason: str = "") -> None:
        for group in _by_entity(messages):
            self._record(_event(kind, group, self._secondary, queue=self._paths[queue], reason=reason))


IN_SPOOL: Mapping[Kind, Kind] = {
    Kind.COMPLETED: Kind.LEFT_SPOOL,
    Kind.DEAD_LETTERED: Kind.SPOOL_DEAD_LETTERED,
    Kind.EXPIRED: Kind.SPOOL_EXPIRED,
}
"""What becomes of messages in a spool; the rest is not recorded: it costs nothing, and nobody else sees it."""


class SpoolEventLog(SyphonEventLog):
    """The same for a syphon that empties a spool. Work on the spool is not recorded as operations of a service."""

    def __init__(self, recorder: Recorder, paths: Sequence[str], primary: str, secondary: str) -> None:
        """`secondary`: the one to whose backlog queues messages may go."""
        super().__init__(recorder, paths, primary, primary)
        self._detour = secondary

    def record_sent(self, kind: Kind, batch: Batch, failure: Failure | None = None) -> None:
        path = batch.messages[0].detour
        if path is None:
            super().record_sent(kind, batch, failure)
        else:
            self._record_detour(kind, path, batch, failure)

    def record_backlogged(self, path: str, batch: Batch) -> None:
        self._record_detour(Kind.MOVED_TO_BACKLOG, path, batch)

    def _record_detour(self, kind: Kind, path: str, batch: Batch, failure: Failure | None = None) -> None:
        """A batch for a backlog queue may have messages of several entities."""
        by_entity: dict[str, list[tuple[RecordedMessage, int]]] = {}
        for held, size in zip(batch.messages, batch.sizes, strict=True):
            by_entity.setdefault(held.recorded.path, []).append((held.recorded, size))
        for group in by_entity.values():
            messages, sizes = zip(*group, strict=True)
            self._record(_event(kind, list(messages), self._detour, queue=path, failure=failure, sizes=sizes))

    def record_listing(self, requests: int) -> None: ...

    def record_long_poll(self, queue: int) -> None: ...

    def record_peek(self, path: str, messages: Sequence[bytes]) -> None: ...

    def record_renewed(self, queue: int, locks: int) -> None: ...

    def record_paused(self, reason: str) -> None: ...

    def record_resumed(self) -> None: ...

    def record_destination_skipped(self, path: str, failure: Failure, until_ms: int) -> None:
        if not is_backlog_path(path):
            super().record_destination_skipped(path, failure, until_ms)

    def record_destination_back(self, path: str) -> None:
        if not is_backlog_path(path):
            super().record_destination_back(path)

    def _record_by_entity(self, kind: Kind, messages: list[RecordedMessage], queue: int, reason: str = "") -> None:
        instead = IN_SPOOL.get(kind)
        if instead is not None:
            for group in _by_entity(messages):
                self._record(_event(instead, group, self._primary, reason=reason))


NO_EVENT_LOG = SyphonEventLog(None, (), "", "")


def _by_entity(messages: Iterable[RecordedMessage]) -> Iterable[list[RecordedMessage]]:
    by_path: dict[str, list[RecordedMessage]] = {}
    for message in messages:
        by_path.setdefault(message.path, []).append(message)
    return by_path.values()


class QuarantineEventLog:
    """What happens to quarantined messages: sent home after all, discarded, or kept."""

    def __init__(self, recorder: Recorder | None, primary: str, secondary: str) -> None:
        self._record = (recorder or NoLedger()).record
        self._primary = primary
        self._secondary = secondary

    def record_peek(self, path: str, messages: Sequence[bytes]) -> None:
        self._record(peek_event(self._secondary, path, messages))

    def record(self, kind: Kind, found: QuarantinedMessage, queue: str, reason: str = "") -> None:
        """Something happened to a message in its dead-letter queue."""
        self._record(_event(kind, [_record_of(found)], self._secondary, queue=queue, reason=reason))

    def record_sent(self, found: QuarantinedMessage, size: int) -> None:
        """`size`: as it goes home, which is smaller."""
        self._record(_event(Kind.SENT_HOME, [_record_of(found)], self._primary, sizes=(size,)))

    def record_not_sent(self, found: QuarantinedMessage, error: Exception, failure: Failure | None) -> None:
        kind = Kind.IN_DOUBT if failure is not None and failure.in_doubt else Kind.ATTEMPT_FAILED
        self._record(_event(kind, [_record_of(found)], self._primary, reason=str(error), failure=failure))


def _record_of(found: QuarantinedMessage) -> RecordedMessage:
    return RecordedMessage(found.path or "", found.message_id or "", found.session_id or "", found.size)


def peek_event(namespace: str, path: str, messages: Sequence[bytes]) -> Event:
    """A queue or its dead-letter queue was peeked. An empty answer costs as much as one message."""
    size, queue = sum(map(len, messages)), path.removesuffix(DEAD_LETTER_QUEUE)
    return Event(Kind.PEEKED, namespace=namespace, queue=queue, count=max(1, len(messages)), bytes=size)


def _event(
    kind: Kind,
    messages: list[RecordedMessage],
    namespace: str,
    *,
    entity: str = "",
    queue: str = "",
    reason: str = "",
    failure: Failure | None = None,
    until_ms: int = 0,
    sizes: tuple[int, ...] | None = None,
) -> Event:
    """`sizes`: of the messages at this stage, if not as they came from the backlog."""
    has_sessions = any(message.session_id for message in messages)
    return Event(
        kind,
        entity=messages[0].path if messages else entity,
        namespace=namespace,
        queue=queue,
        message_ids=tuple([message.message_id for message in messages]),
        sizes=tuple([message.size for message in messages]) if sizes is None else sizes,
        session_ids=tuple([message.session_id for message in messages]) if has_sessions else (),
        condition="" if failure is None else failure.condition or "",
        reason=reason if failure is None else str(failure),
        until_ms=until_ms,
    )


def _message_id(message: bytes) -> str:
    found = _message_id_at_start(message)
    if found is not None:
        return found
    try:
        return text_of(sections.read_property(message, sections.walk(message), PropertyField.MESSAGE_ID))
    except DecodeError:
        return ""


_BEFORE_PROPERTIES = (b"\x00\x53\x70", b"\x00\x53\x71", b"\x00\x53\x72")
_NARROW, _WIDE = (0xC0, 0xC1), (0xD0, 0xD1)
_NARROW_PROPERTIES = b"\x00\x53\x73\xc0"
_SHORT_TEXT = 0xA1


def _message_id_at_start(message: bytes) -> str | None:
    """The id, if it is a short string where it usually is; None: decode the message.

    Decoding costs as much as everything else that is recorded, and the id lies near the start.
    """
    try:
        at = 0
        while message[at : at + 3] in _BEFORE_PROPERTIES:
            kind = message[at + 3]
            if kind in _NARROW:
                at += 5 + message[at + 4]
            elif kind in _WIDE:
                at += 8 + int.from_bytes(message[at + 4 : at + 8])
            else:
                return None
        if not message.startswith(_NARROW_PROPERTIES, at) or message[at + 6] != _SHORT_TEXT:
            return None
        end = at + 8 + message[at + 7]
        return message[at + 8 : end].decode() if end <= at + 5 + message[at + 4] <= len(message) else None
    except (IndexError, UnicodeDecodeError):
        return None
