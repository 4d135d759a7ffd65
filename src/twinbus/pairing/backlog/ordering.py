"""Order on the detour (P19): which backlog queue a message belongs to, and until when sends have to follow it there.

Messages with the same *key*, an entity and a session id (or none), keep their order. They all go to one backlog queue,
and while one of them is there a *fence* stands before the primary: later ones follow into the same queue, behind it.
The fence falls when the last of them has come home, or when the queue was looked at and found to be empty.

What is in the backlog from an earlier life of this process is known to nobody here. So until a queue was seen empty
once, a fence stands before every key that belongs to it.

Messages are recognised by a *mark*, their id. A mark alone could be in use twice, so messages are counted as well;
copies that nobody asked for come with numbers that were counted already, or bring the count forward and have no mark
that is waited for. No clock, no chance and no I/O here; whoever shares it between threads holds a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.message.sections import PropertyField, read_property, walk

KEYS_MAX = 100_000
"""Fences that are kept apart. Beyond that a queue as a whole has to be seen empty."""
HAND_OVER_MESSAGES_MAX = 100
"""With no more messages of a key than this on their way home, it is worth waiting for the last of them."""

Mark = bytes
"""The message id, encoded; empty if it has none."""


class Key(NamedTuple):
    """Within one key order is kept."""

    path: str
    """In lower case: names differ not by case alone."""
    session_id: str | None


class DepartedMessage(NamedTuple):
    """A message that has left the backlog: it is stored at home, or was refused for good."""

    path: str
    session_id: str | None
    sequence: int
    """Its number in the backlog queue."""
    mark: Mark


def key_of(path: str, session_id: str | None) -> Key:
    return Key(path.lower(), session_id)


def mark_of(encoded: bytes) -> Mark:
    """By what a message is recognised on both ends of the detour."""
    found = read_property(encoded, walk(encoded), PropertyField.MESSAGE_ID)
    return b"" if found is None else encode(found)


def session_id_of(encoded: bytes) -> str | None:
    """The session of a message that wears no envelope."""
    found = read_property(encoded, walk(encoded), PropertyField.GROUP_ID)
    return found if isinstance(found, str) else None


def queue_for(key: Key, queues: Sequence[int]) -> int:
    """The backlog queue of a key: always the same one, in every process."""
    session = "" if key.session_id is None else f"\0{key.session_id}"
    return queues[crc32(f"{key.path}{session}".encode()) % len(queues)]


@dataclass(slots=True, eq=False)
class Crossing:
    """Messages of one key on their way into their queue, in one batch."""

    key: Key
    queue: int
    count: int
    last: Mark
    began: int
    is_home: bool = False
    """Its last message has come home, perhaps before anybody heard that the queue had taken it."""


@dataclass(slots=True)
class Fence:
    queue: int
    touched: int
    """When a message was last on its way into the queue."""
    accepted: int = 0
    home: int = 0
    highest: int = 0
    """The highest number of a message that came home. At first that of any message of the queue, since later ones
    have a higher one: messages that came home before the fence stood, and come again, are not counted."""
    under_way: list[Crossing] = field(default_factory=list)
    tail: dict[Mark, int] = field(default_factory=dict)
    """Messages of which none is known to be in front of another, and when they were taken: all of them must come home.
    One that began after another was taken stands behind it, so of messages sent one by one only the last is in here."""

    @property
    def can_fall(self) -> bool:
        return not self.under_way and not self.tail and self.home >= self.accepted

    @property
    def left(self) -> int:
        """About how many messages are on their way home."""
        return max(self.accepted - self.home, len(self.tail))

    def add(self, crossing: Crossing, now: int) -> None:
        self.tail = {mark: taken for mark, taken in self.tail.items() if taken > crossing.began}
        if not crossing.is_home:
            self.tail[crossing.last] = now


class Fences:
    def __init__(self) -> None:
        self._queues: tuple[int, ...] = ()
        self._unseen: dict[int, int] = {}
        """Queues that have to be seen empty, and since when."""
        self._fences: dict[Key, Fence] = {}
        self._per_path: dict[str, int] = {}
        self._highest: dict[int, int] = {}
        """Of each queue, the highest number of a message that came home."""
        self._waiting: dict[Key, set[int]] = {}
        self._impatient: dict[Key, float] = {}
        """Keys for which it is of no use to wait, and until when."""
        self._time = 0
        self.falls = 0
        """How often something fell."""

    def use(self, queues: Iterable[int]) -> None:
        """The queues over which keys are spread. Said once: with other queues a key would find another one."""
        if not self._queues:
            self._queues = tuple(queues)
            self._unseen = dict.fromkeys(self._queues, 0)

    def queue_of(self, key: Key) -> int | None:
        """The only queue in which messages of this key may lie; None: there are no queues."""
        return queue_for(key, self._queues) if self._queues else None

    # --- what stands ---

    def stands_before(self, key: Key) -> bool:
        """Whether a message of this key must not go to the primary though that takes messages."""
        return key in self._fences or self.queue_of(key) in self._unseen

    def is_clear(self, path: str) -> bool:
        """Whether no fence stands before any key of an entity."""
        return not self._unseen and path.lower() not in self._per_path

    def is_nearly_home(self, key: Key, at: float) -> bool:
        """Whether the fence may fall any moment, so that it is worth waiting for."""
        fence = self._fences.get(key)
        is_near = fence is None or fence.left <= HAND_OVER_MESSAGES_MAX
        return is_near and self._impatient.get(key, at) <= at

    def waits_for(self, queue: int) -> bool:
        """Whether a fence stands that would fall if this queue was seen empty."""
        return queue in self._unseen or any(fence.queue == queue for fence in self._fences.values())

    def in_force(self) -> list[tuple[Key, int, int]]:
        """Every fence: its key, its queue, and about how many messages are on their way home."""
        return [(key, fence.queue, fence.left) for key, fence in list(self._fences.items())]

    @property
    def count(self) -> int:
        """How many keys are known to have a fence."""
        return len(self._fences)

    @property
    def unseen(self) -> tuple[int, ...]:
        """Queues whose keys all have one, until they were seen empty."""
        return tuple(self._unseen)

    # --- into the backlog ---

    def depart(self, key: Key, marks: Sequence[Mark]) -> Crossing:
        """A batch with these messages of a key is about to be sent to the key's queue."""
        queue = self.queue_of(key)
        assert queue is not None, "there are queues, or nothing departs"
        now = self._tick()
        crossing = Crossing(key, queue, len(marks), marks[-1], now)
        fence = self._fences.get(key)
        if fence is None:
            if len(self._fences) >= KEYS_MAX:
                self._unseen[queue] = now
                return crossing
            fence = self._fences[key] = Fence(queue, now, highest=self._highest.get(queue, 0))
            self._per_path[key.path] = self._per_path.get(key.path, 0) + 1
        fence.touched = now
        fence.under_way.append(crossing)
        return crossing

    def arrived(self, crossing: Crossing) -> tuple[int, ...]:
        """The queue has taken the batch. The tickets to rouse, if all of it is home already."""
        fence = self._ended(crossing)
        if fence is not None:
            fence.accepted += crossing.count
            fence.add(crossing, fence.touched)
        return self._fall_if_it_can(crossing.key, fence)

    def failed(self, crossing: Crossing, *, in_doubt: bool) -> tuple[int, ...]:
        """The queue has not taken the batch, or nobody knows; then it may come home all the same."""
        fence = self._ended(crossing)
        if fence is not None and in_doubt:
            fence.add(crossing, fence.touched)
        return self._fall_if_it_can(crossing.key, fence)

    def _ended(self, crossing: Crossing) -> Fence | None:
        fence = self._fences.get(crossing.key)
        if fence is None or crossing not in fence.under_way:
            self._unseen[crossing.queue] = self._tick()  # one of too many keys
            return None
        fence.under_way.remove(crossing)
        fence.touched = self._tick()
        return fence

    # --- home ---

    def came(self, queue: int, encoded_messages: Iterable[DepartedMessage]) -> list[int]:
        """Messages left a queue, those of a key in their order. The tickets to rouse."""
        roused: list[int] = []
        for path, session_id, sequence, mark in encoded_messages:
            self._highest[queue] = max(self._highest.get(queue, 0), sequence)
            key = key_of(path, session_id)
            fence = self._fences.get(key)
            if fence is None or fence.queue != queue:
                continue
            if sequence > fence.highest:
                fence.highest = sequence
                fence.home += 1
            fence.tail.pop(mark, None)
            for crossing in fence.under_way:
                crossing.is_home = crossing.is_home or crossing.last == mark
            roused += self._fall_if_it_can(key, fence)
        return roused

    @property
    def time(self) -> int:
        """Now, for a look into a queue that begins."""
        return self._time

    def seen_empty(self, queue: int, began: int) -> list[int]:
        """A look that began at this time found nothing in a queue: what was there is home. The tickets to rouse."""
        roused: list[int] = []
        if self._unseen.get(queue, began + 1) <= began:
            del self._unseen[queue]
            self.falls += 1
        for key, fence in list(self._fences.items()):
            if fence.queue == queue and fence.touched <= began and not fence.under_way:
                roused += self._fall(key)
        if queue not in self._unseen:
            roused += [ticket for key in self._keys_waiting_for(queue) for ticket in self._waiting.get(key, ())]
        return roused

    def _keys_waiting_for(self, queue: int) -> list[Key]:
        return [key for key in self._waiting if key not in self._fences and self.queue_of(key) == queue]

    def _fall_if_it_can(self, key: Key, fence: Fence | None) -> tuple[int, ...]:
        return self._fall(key) if fence is not None and fence.can_fall else ()

    def _fall(self, key: Key) -> tuple[int, ...]:
        del self._fences[key]
        self._impatient.pop(key, None)
        self.falls += 1
        self._per_path[key.path] -= 1
        if not self._per_path[key.path]:
            del self._per_path[key.path]
        return tuple(self._waiting.get(key, ()))

    # --- sends that wait ---

    def wait(self, keys: Iterable[Key], ticket: int) -> None:
        """A send wants to be roused when one of these fences falls."""
        for key in keys:
            self._waiting.setdefault(key, set()).add(ticket)

    def waited_in_vain(self, keys: Iterable[Key], until: float) -> None:
        """It did not fall: nobody waits for it again before this time."""
        if len(self._impatient) < KEYS_MAX:
            self._impatient.update(dict.fromkeys(keys, until))

    def leave(self, keys: Iterable[Key], ticket: int) -> None:
        """It waits no longer."""
        for key in keys:
            waiting = self._waiting.get(key, set())
            waiting.discard(ticket)
            if not waiting:
                self._waiting.pop(key, None)

    def _tick(self) -> int:
        self._time += 1
        return self._time
