"""The quarantine: messages that could not go home, in the dead-letter queues of the backlog queues.

People list them, send them home again or discard them, chosen by number or reason; nothing happens by itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from twinbus.amqp.codec.types import Value, text_of
from twinbus.amqp.events import TransferArrived
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Layout, PropertyField
from twinbus.errors import DecodeError, EnvelopeError
from twinbus.ledger.kinds import Kind
from twinbus.ledger.schema import Recorder
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.backlog.envelope import Aliases, read_aliases
from twinbus.syphon.home_sender import HomeSender
from twinbus.syphon.ledger_events import QuarantineEventLog
from twinbus.syphon.pump.dead_letter_reasons import DEAD_LETTER_PROPERTIES
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.annotations import enqueued_ms, sequence_of
from twinbus.transport.links.peek import DEAD_LETTER_QUEUE, pages, peek
from twinbus.transport.links.selective_receive import SelectiveReceive

if TYPE_CHECKING:
    from twinbus.transport.dial import Dial

_Field = TypeVar("_Field")

MessageNumber = tuple[int, int]
"""Identifies a message: the index of its queue, and its sequence number there."""


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    queue: int
    sequence: int
    message_id: str | None
    path: str | None
    """Its destination; None if it has none."""
    session_id: str | None
    reason: str | None
    description: str | None
    size: int
    enqueued_ms: int | None
    encoded: bytes = field(repr=False)
    """The whole message."""

    @property
    def number(self) -> MessageNumber:
        return self.queue, self.sequence


@dataclass(slots=True)
class QuarantineResult:
    """What became of the chosen messages."""

    done: list[MessageNumber] = field(default_factory=list)
    """Sent home, or discarded."""
    kept: dict[MessageNumber, str] = field(default_factory=dict)
    """Still in quarantine, and why."""


QuarantineFilter = Callable[[QuarantinedMessage], bool]


class Quarantine:
    """The dead-letter queues of one primary's backlog, in an `async with` block. Raises `ConnectionFailed`."""

    def __init__(
        self,
        secondary: Dial,
        primary_name: str,
        queue_count: int,
        *,
        queues: Sequence[int] | None = None,
        attempt_s: float = 15.0,
        ledger: Recorder | None = None,
    ) -> None:
        """`queues` are the indexes of the queues, all of them by default."""
        indexes = range(queue_count) if queues is None else queues
        self._paths = {index: backlog_path(primary_name, index) + DEAD_LETTER_QUEUE for index in indexes}
        self._attempt_s = attempt_s
        self._event_log = QuarantineEventLog(ledger, primary_name, secondary.ledger_name)
        self._connection = self._new_connection(secondary)

    async def __aenter__(self) -> Quarantine:
        await self._connection.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._connection.close()

    async def list(self) -> AsyncIterator[QuarantinedMessage]:
        """Everything in quarantine, queue by queue, the oldest first."""
        for queue, path in self._paths.items():
            async for found in self._messages_in(queue, path):
                yield found

    async def show(self, queue: int, sequence: int) -> QuarantinedMessage | None:
        """One message; None if it is not there."""
        path = self._paths.get(queue)
        messages = [] if path is None else await peek(self._connection, path, sequence, 1)
        found = [describe(queue, message) for message in messages]
        return found[0] if found and found[0].sequence == sequence else None

    async def redrive(self, primary: Dial, wanted: QuarantineFilter) -> QuarantineResult:
        """Send the chosen messages home, with their full time to live; those refused again stay."""
        async with self._new_connection(primary) as connection:
            return await self._remove(wanted, Kind.REDRIVEN, HomeSender(connection, self._attempt_s))

    async def discard(self, wanted: QuarantineFilter) -> QuarantineResult:
        return await self._remove(wanted, Kind.DISCARDED, None)

    async def _remove(self, wanted: QuarantineFilter, kind: Kind, sender: HomeSender | None) -> QuarantineResult:
        result = QuarantineResult()
        for queue, path in self._paths.items():
            chosen = {found.sequence async for found in self._messages_in(queue, path) if wanted(found)}
            if chosen:
                removal = QuarantineRemoval(self._connection, path, kind, sender, self._event_log, self._attempt_s)
                await removal.run(queue, chosen, result)
        return result

    async def _messages_in(self, queue: int, path: str) -> AsyncIterator[QuarantinedMessage]:
        async for messages in pages(self._connection, path):
            for message in messages:
                yield describe(queue, message)

    def _new_connection(self, dial: Dial) -> NamespaceConnection:
        return NamespaceConnection(dial, attempt_s=self._attempt_s, on_peek=self._event_log.record_peek)


class QuarantineRemoval:
    def __init__(
        self,
        connection: NamespaceConnection,
        path: str,
        kind: Kind,
        sender: HomeSender | None,
        event_log: QuarantineEventLog,
        attempt_s: float,
    ) -> None:
        """`kind` is the event to record; without a `sender` the messages are discarded."""
        self._queue = path.removesuffix(DEAD_LETTER_QUEUE)
        self._kind = kind
        self._sender = sender
        self._event_log = event_log
        self._search = SelectiveReceive(connection, path, attempt_s)

    async def run(self, queue: int, chosen: set[int], result: QuarantineResult) -> None:
        """Receive until all chosen messages have been seen; the others are given back at the end."""
        missing = await self._search.run(chosen, lambda transfer: self._take_out(queue, transfer, result))
        result.kept |= {(queue, each): why_not for each, why_not in missing.items()}

    async def _take_out(self, queue: int, transfer: TransferArrived, result: QuarantineResult) -> bool:
        found = describe(queue, transfer.payload)
        self._event_log.record(Kind.RECEIVED_FROM_BACKLOG, found, self._queue)
        try:
            if self._sender is not None:
                await self._send_home(found, self._sender)
            await self._search.complete(transfer)
        except (ConnectionFailed, EnvelopeError, DecodeError) as error:
            result.kept[found.number] = str(error)
            self._event_log.record(Kind.RELEASED, found, self._queue, str(error))
            return False
        self._event_log.record(self._kind, found, self._queue, found.reason or "")
        result.done.append(found.number)
        return True

    async def _send_home(self, found: QuarantinedMessage, sender: HomeSender) -> None:
        """Raises `ConnectionFailed`, `EnvelopeError` or `DecodeError` if the message is still there."""
        try:
            size = await sender.deliver(found.encoded)
        except (ConnectionFailed, EnvelopeError, DecodeError) as error:
            failure = error.failure if isinstance(error, ConnectionFailed) else None
            self._event_log.record_not_sent(found, error, failure)
            raise
        self._event_log.record_sent(found, size)


def describe(queue: int, message: bytes) -> QuarantinedMessage:
    layout = sections.walk(message)
    reason, description = [
        _read(sections.read_application_property, message, layout, name) for name in DEAD_LETTER_PROPERTIES
    ]
    message_id = _read(sections.read_property, message, layout, PropertyField.MESSAGE_ID)
    try:
        aliases: Aliases | None = read_aliases(message)
    except (EnvelopeError, DecodeError):
        aliases = None
    return QuarantinedMessage(
        queue=queue,
        sequence=sequence_of(message),
        message_id=None if message_id is None else text_of(message_id),
        path=None if aliases is None else aliases.path,
        session_id=None if aliases is None else aliases.session_id,
        reason=None if reason is None else str(reason),
        description=None if description is None else str(description),
        size=len(message),
        enqueued_ms=enqueued_ms(message),
        encoded=message,
    )


def _read(read: Callable[[bytes, Layout, _Field], Value], message: bytes, layout: Layout, name: _Field) -> Value:
    """None for what cannot be decoded: it must not hide the other messages."""
    try:
        return read(message, layout, name)
    except DecodeError:
        return None


def by_numbers(numbers: Collection[MessageNumber]) -> QuarantineFilter:
    wanted = set(numbers)
    return lambda found: found.number in wanted


def by_reason(reason: str) -> QuarantineFilter:
    return lambda found: found.reason == reason
