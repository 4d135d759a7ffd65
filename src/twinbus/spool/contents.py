"""What is in one folder of a spool: a queue for each entity, so that one that stays down does not hold up others.

The queues are called like backlog queues and hold the same envelopes: a syphon does not see a difference. Nothing here
waits or does I/O: commands go to the commit gate of a namespace, and replies come when they are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar
from zlib import crc32

from twinbus.amqp.codec.outcomes import Error
from twinbus.broker.core.commands import Command, CreateQueue, SendMessages
from twinbus.broker.core.registry import QUEUE, Registry
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.settings import DELIVERY_COUNT_LIMIT, SIZE_MB_MAX, QueueSettings
from twinbus.broker.message import Arrival, MessageReader
from twinbus.broker.operations import Done, Refused
from twinbus.errors import AmqpError, NamespaceError, QuotaExceeded, StoreDamaged
from twinbus.pairing.backlog.backlog_queues import backlog_path, index_of
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.peeking.queue_discovery import QUEUES_MAX
from twinbus.transport.failures import failure_of
from twinbus.units import size_text

R = TypeVar("R")

MESSAGE_BYTES_MAX = 100 * 1024 * 1024
"""As large as the largest message of a premium namespace."""
QUEUE_SETTINGS = QueueSettings(
    max_size_mb=SIZE_MB_MAX, max_delivery_count=DELIVERY_COUNT_LIMIT, dead_letter_on_expiration=True
)


def entity_of_settings(settings: str) -> str:
    """The entity that a queue of a spool is for, from the settings as they are stored."""
    return QueueSettings.from_text(settings, "a queue of a spool").user_metadata or ""


class AskNamespace(Protocol):
    def __call__(self, command: Command[R], on_reply: Callable[[R | Refused], None], /) -> None:
        """Carry out a command; `on_reply` is called when the reply is durable."""


class SpoolCounts(NamedTuple):
    messages: int = 0
    """Waiting to go on."""
    size_bytes: int = 0
    """Of all messages in it, dead letters too."""
    dead_letters: int = 0
    """Messages that expired or were refused permanently."""


class SpoolContents:
    def __init__(
        self,
        primary_name: str,
        name: str,
        *,
        bytes_max: int,
        registry: Callable[[], Registry],
        ask: AskNamespace,
        new_id: Callable[[], str],
        on_queue: Callable[[int], None],
    ) -> None:
        """`name`: of the folder, for people. `bytes_max`: of messages, dead letters too.

        `registry` is asked each time: it is another one after the store has failed. `on_queue` gets the index of every
        queue that is made.
        """
        self._primary_name = primary_name
        self._name = name
        self._bytes_max = bytes_max
        self._registry = registry
        self._ask = ask
        self._on_queue = on_queue
        self._reader = MessageReader(MESSAGE_BYTES_MAX, new_id)
        self._indexes: dict[str, int] = {}
        """The queue of each entity, by its name in lower case."""
        self._lacking_bytes = 0
        """Of the messages that found no room; 0: the last ones did. What could never fit does not count."""

    def read_queues(self) -> None:
        """Take up what is stored. Raises `StoreDamaged` if it is for another primary."""
        for entity in self._registry().all():
            if entity.row.kind != QUEUE or not isinstance(entity, Queue):
                continue
            path = entity.row.path
            index = index_of(path, self._primary_name)
            if index is None:
                raise StoreDamaged(
                    f"the spool {self._name} is of another pair: it has messages for {path.partition('/')[0]}, not for "
                    f"{self._primary_name}; move it into the spool of that pair"
                )
            self._indexes[(entity.settings.user_metadata or path).lower()] = index

    @property
    def indexes(self) -> list[int]:
        """Of its queues."""
        return sorted({*self._indexes.values()})

    def counts(self) -> SpoolCounts:
        """Any thread may ask."""
        registry, messages, size, dead = self._registry(), 0, 0, 0
        for index in self.indexes:
            queue = registry.get(backlog_path(self._primary_name, index))
            if isinstance(queue, Queue):
                messages += queue.active + queue.deferred + queue.scheduled
                size += queue.stored_bytes
                dead += 0 if queue.dead_letter is None else queue.dead_letter.active
        return SpoolCounts(messages, size, dead)

    @property
    def fullness(self) -> str | None:
        """That it is full: messages found no room, and would not find it now. None: it is not. Any thread may ask."""
        lacking, has = self._lacking_bytes, self.counts().size_bytes
        return f"it is full: {self._held(has)}" if lacking and has + lacking > self._bytes_max else None

    def put(self, entity: str, encoded: Sequence[bytes], on_done: Callable[[Failure | None], None]) -> None:
        """Store messages in their envelopes, all or none; `on_done` is called once they are durable, or refused."""
        try:
            arrivals = tuple([self._read(message) for message in encoded])
            self._check_room(sum([len(arrival.payload) for arrival in arrivals]))
        except (NamespaceError, AmqpError) as error:
            on_done(self._failure_of(error))
            return

        def answer(reply: Done | Refused) -> None:
            on_done(self._failure_of(reply.error) if isinstance(reply, Refused) else None)

        self._ask(SendMessages(self._queue_of(entity), arrivals), answer)

    def _read(self, message: bytes) -> Arrival:
        return self._reader.read(message)._replace(is_ping=False)  # what is accepted is stored

    def _check_room(self, more: int) -> None:
        has = self.counts().size_bytes
        has_room = has + more <= self._bytes_max
        self._lacking_bytes = 0 if has_room or more > self._bytes_max else more
        if not has_room:
            raise QuotaExceeded(self._held(has))

    def _held(self, has: int) -> str:
        return f"it holds {size_text(has)} of at most {size_text(self._bytes_max)} (spool_max)"

    def _queue_of(self, entity: str) -> str:
        """The queue for an entity, made if there is none: its creation is durable before the messages are."""
        key = entity.lower()
        index = self._indexes.get(key)
        if index is None:
            used = len(self.indexes)
            index = self._indexes[key] = used if used < QUEUES_MAX else crc32(key.encode()) % QUEUES_MAX
        path = backlog_path(self._primary_name, index)
        if self._registry().get(path) is None:
            self._ask(CreateQueue(path, replace(QUEUE_SETTINGS, user_metadata=entity)), lambda _: None)
            self._on_queue(index)
        return path

    def _failure_of(self, error: NamespaceError | AmqpError) -> Failure:
        if isinstance(error, QuotaExceeded):
            return Failure(FailureKind.FULL, f"the spool {self._name} is full: {error}")
        found = failure_of(Error(error.condition, str(error)))
        return Failure(found.kind, f"the spool {self._name}: {error}", found.condition)
