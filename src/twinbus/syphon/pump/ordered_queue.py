"""The messages that wait for one destination if order is kept: one queue per key, one batch of a key in flight.

Keys do not wait for each other. A batch takes messages of as many keys as fit; those keys then wait for its outcome.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from twinbus.pairing.backlog.ordering import Key
from twinbus.pairing.sending.encoded_messages import HEAD_BYTES_MAX, SECTION_BYTES
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump.backlog_message import HeldMessage
from twinbus.syphon.pump.destination import Destination

QueueKey = tuple[int, Key]
"""A key in one backlog queue: there is no order between two queues."""


def queue_key(held: HeldMessage) -> QueueKey:
    return held.lock_batch.queue.index, held.position.key


def _sequence(held: HeldMessage) -> int:
    return held.position.sequence


class KeyQueue:
    __slots__ = ("is_busy", "messages", "singles_to")

    def __init__(self) -> None:
        self.messages: list[HeldMessage] = []
        """By sequence number, lowest first."""
        self.is_busy = False
        """Whether a batch with messages of this key is in flight."""
        self.singles_to = 0
        """Messages up to this number were in a refused batch: each is sent alone, to find the one to blame."""

    def add(self, held: HeldMessage) -> None:
        sequence = held.position.sequence
        if not self.messages or self.messages[-1].position.sequence < sequence:
            self.messages.append(held)
        else:
            self.messages.insert(bisect_left(self.messages, sequence, key=_sequence), held)


class OrderedQueue:
    def __init__(self) -> None:
        self._keys: dict[QueueKey, KeyQueue] = {}
        self._free: dict[QueueKey, None] = {}
        """Keys with messages that may be sent, first come, first served."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[HeldMessage]:
        for queue in self._keys.values():
            yield from queue.messages

    def append(self, held: HeldMessage, /) -> None:
        key = queue_key(held)
        queue = self._keys.get(key)
        if queue is None:
            queue = self._keys[key] = KeyQueue()
        queue.add(held)
        self._count += 1
        if not queue.is_busy:
            self._free[key] = None

    def extend(self, messages: Iterable[HeldMessage], /) -> None:
        for held in messages:
            self.append(held)

    def clear(self) -> None:
        """Drop all messages; keys with a batch in flight stay busy."""
        self._keys = {key: queue for key, queue in self._keys.items() if queue.is_busy}
        for queue in self._keys.values():
            queue.messages = []
        self._free.clear()
        self._count = 0

    @property
    def can_send(self) -> bool:
        return bool(self._free)

    def take(self, limit_bytes: int, most: int) -> list[HeldMessage]:
        """Take the next messages that fit together, at least one if any may go. `sent` must follow."""
        room = limit_bytes - HEAD_BYTES_MAX
        taken: list[HeldMessage] = []
        for key in self._free:
            queue = self._keys[key]
            if queue.messages[0].position.sequence <= queue.singles_to:
                if not taken:
                    taken = self._pull(queue, 1)
                break
            count, room = _count_fitting(queue.messages, room, most - len(taken), is_first=not taken)
            taken += self._pull(queue, count)
            if queue.messages or len(taken) >= most:
                break
        return taken

    def _pull(self, queue: KeyQueue, count: int) -> list[HeldMessage]:
        messages = queue.messages[:count]
        del queue.messages[:count]
        self._count -= len(messages)
        return messages

    def sent(self, taken: Iterable[HeldMessage], going: Iterable[HeldMessage]) -> None:
        """Of the messages that were taken, `going` are in flight; the others left in some other way."""
        for key in {queue_key(held) for held in going}:
            self._keys.setdefault(key, KeyQueue()).is_busy = True
            self._free.pop(key, None)
        for key in {queue_key(held) for held in taken}:
            self._update(key)

    def settled(self, messages: Iterable[HeldMessage]) -> None:
        """A batch with these messages is no longer in flight."""
        for key in {queue_key(held) for held in messages}:
            if key in self._keys:
                self._keys[key].is_busy = False
                self._update(key)

    def put_back(self, messages: Iterable[HeldMessage]) -> None:
        """These are still to be sent, each alone."""
        for held in messages:
            self.append(held)
            queue = self._keys[queue_key(held)]
            queue.singles_to = max(queue.singles_to, held.position.sequence)

    def take_key(self, key: QueueKey) -> list[HeldMessage]:
        queue = self._keys.get(key)
        if queue is None:
            return []
        messages = self._pull(queue, len(queue.messages))
        self._update(key)
        return messages

    def take_one(self, key: QueueKey, sequence: int) -> HeldMessage | None:
        """Take the message with this sequence number; None if it is not here."""
        queue = self._keys.get(key)
        if queue is None:
            return None
        at = bisect_left(queue.messages, sequence, key=_sequence)
        if at == len(queue.messages) or queue.messages[at].position.sequence != sequence:
            return None
        held = queue.messages.pop(at)
        self._count -= 1
        self._update(key)
        return held

    def _update(self, key: QueueKey) -> None:
        queue = self._keys.get(key)
        if queue is None or queue.is_busy:
            return
        if queue.messages:
            self._free[key] = None
        else:
            self._free.pop(key, None)
            del self._keys[key]


def _count_fitting(messages: list[HeldMessage], room: int, most: int, *, is_first: bool) -> tuple[int, int]:
    """How many of these messages fit, and the room that is left. The first of a batch always fits."""
    count = 0
    for held in messages[:most]:
        need = len(held.payload) + SECTION_BYTES
        if need > room and not (is_first and not count):
            break
        room -= need
        count += 1
    return count, room


class OrderedDestination(Destination):
    def __init__(self, path: str, options: SyphonOptions) -> None:
        super().__init__(path, options)
        self.waiting = self.ordered = OrderedQueue()

    def take(self, most: int) -> list[HeldMessage]:
        return self.ordered.take(self.batch_bytes, most)

    def room(self) -> int:
        return super().room() if self.ordered.can_send else 0
