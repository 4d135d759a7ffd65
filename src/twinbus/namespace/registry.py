"""The entities of a namespace by name."""

from __future__ import annotations

from collections.abc import Iterator

from twinbus.errors import EntityAlreadyExists, EntityNotFound, NotAllowed, QuotaExceeded, StoreDamaged
from twinbus.namespace.entities.queue import Queue, QueueContext
from twinbus.namespace.entities.settings import QueueSettings, check_queue_path
from twinbus.namespace.replies import QueueDescription
from twinbus.namespace.store.api import EntityRow, EntitySummary, StoredNamespace

DEAD_LETTER_SUFFIX = "/$deadletterqueue"
QUEUE, DEAD_LETTER_QUEUE = "queue", "dead-letter-queue"
QUEUES_MAX = 10_000
_EMPTY = EntitySummary(0, 0, 0, 0, None, None, None, 1)


class Registry:
    """Queues by path and by id. Paths keep the case they were created with and are found in any."""

    def __init__(self, stored: StoredNamespace, context: QueueContext) -> None:
        self._context = context
        self._by_path: dict[str, Queue] = {}
        self._by_id: dict[int, Queue] = {}
        self._next_id = stored.next_entity_id
        dead_letters = {row.parent_id: row for row in stored.entities if row.kind == DEAD_LETTER_QUEUE}
        for row in stored.entities:
            if row.kind == QUEUE:
                if row.entity_id not in dead_letters:
                    raise StoreDamaged(f"the queue '{row.path}' has no dead-letter queue")
                dead_letter = self._open(dead_letters[row.entity_id], stored.summaries, stored.last_number, None)
                self._open(row, stored.summaries, stored.last_number, dead_letter)

    def _open(
        self, row: EntityRow, summaries: dict[int, EntitySummary], committed: int, dead_letter: Queue | None
    ) -> Queue:
        summary = summaries.get(row.entity_id, _EMPTY)
        queue = Queue(row, summary, self._context, committed=committed, dead_letter=dead_letter)
        self._by_path[row.path.lower()] = queue
        self._by_id[row.entity_id] = queue
        return queue

    def find(self, path: str) -> Queue:
        queue = self._by_path.get(path.lower())
        if queue is None:
            # The first words are the ones by which the JS client recognises a missing entity.
            raise EntityNotFound(f"The messaging entity '{path}' could not be found.")
        return queue

    def find_queue(self, path: str) -> tuple[Queue, Queue]:
        """A queue and its dead-letter queue; the latter's own path will not do."""
        queue = self.find(path)
        if queue.dead_letter is None:
            raise NotAllowed(f"'{path}' is a dead-letter queue: it comes and goes with its queue")
        return queue, queue.dead_letter

    def by_id(self, entity_id: int) -> Queue | None:
        """The entity, or None if it was deleted meanwhile."""
        return self._by_id.get(entity_id)

    def queues(self) -> Iterator[Queue]:
        """The queues themselves, without their dead-letter queues."""
        return (queue for queue in self._by_id.values() if queue.row.kind == QUEUE)

    def create(self, path: str, settings: QueueSettings, committed: int, now_ms: int) -> tuple[EntityRow, EntityRow]:
        """A new queue and its dead-letter queue, as rows to write."""
        check_queue_path(path)
        if path.lower() in self._by_path:
            raise EntityAlreadyExists(f"the queue '{path}' exists already")
        if len(self._by_id) >= 2 * QUEUES_MAX:
            raise QuotaExceeded(f"a namespace has at most {QUEUES_MAX} queues: delete one first")
        queue_id, dead_letter_id = self._next_id, self._next_id + 1
        self._next_id += 2
        text = settings.to_text()
        queue_row = EntityRow(queue_id, path, QUEUE, None, text, now_ms, now_ms)
        dead_path = path + DEAD_LETTER_SUFFIX
        dead_row = EntityRow(dead_letter_id, dead_path, DEAD_LETTER_QUEUE, queue_id, text, now_ms, now_ms)
        self._open(queue_row, {}, committed, self._open(dead_row, {}, committed, None))
        return queue_row, dead_row

    def update(self, path: str, settings: QueueSettings, now_ms: int) -> tuple[Queue, Queue]:
        """Give a queue and its dead-letter queue other settings; their rows have to be written."""
        both = self.find_queue(path)
        text = settings.to_text()
        for queue in both:
            queue.configure(queue.row._replace(settings=text, updated_at_ms=now_ms))
            queue.accessed_at_ms = now_ms
        return both

    def page(self, skip: int, top: int) -> tuple[list[Queue], bool]:
        """Queues by name after the first `skip`, and whether there are more."""
        by_name = sorted(self.queues(), key=lambda queue: queue.row.path.lower())
        return by_name[skip : skip + top], skip + top < len(by_name)

    def remove(self, queue: Queue) -> None:
        del self._by_path[queue.row.path.lower()]
        del self._by_id[queue.entity_id]


def description(queue: Queue) -> QueueDescription:
    """A queue as it stands now."""
    return QueueDescription(
        queue.row.path,
        queue.settings,
        queue.active,
        queue.deferred,
        queue.scheduled,
        queue.dead_letter.active + queue.dead_letter.deferred if queue.dead_letter else 0,
        queue.stored_bytes,
        queue.row.created_at_ms,
        queue.row.updated_at_ms,
        queue.accessed_at_ms,
    )
