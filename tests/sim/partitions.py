"""A partitioned queue: what tells messages apart is id and partition key together, and a key keeps its order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

from sim.concern import Asking, Concern, Place, arrival
from sim.invariants import Violation, check
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.core.commands import CreateQueue, SendMessages
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Reply
from twinbus.broker.entities.settings import DUPLICATE_WINDOW_MS_MAX, QueueSettings
from twinbus.broker.message import PARTITION_KEY
from twinbus.broker.operations import Done, Refused
from twinbus.broker.store.api import MessageRow
from twinbus.errors import NotAllowed

QUEUE = "Shelves"
IDS, KEYS = 12, ("north", "south", None)


class Identity(NamedTuple):
    message_id: str
    key: str | None


class Partitions(Concern):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._sent: set[Identity] = set()
        self._stored: set[Identity] = set()

    def begin(self) -> None:
        settings = QueueSettings(
            partitioned=True, requires_duplicate_detection=True, duplicate_window_ms=DUPLICATE_WINDOW_MS_MAX
        )
        self.place.ask(self, CreateQueue(QUEUE, settings), None)

    def actions(self) -> dict[Callable[[], None], float]:
        return {self.send: 8, self.contradict: 1}

    def send(self) -> None:
        random = self.place.random
        names = [
            Identity(f"p{random.randrange(IDS)}.", random.choice(KEYS)) for _ in range(random.choice((1, 1, 2, 4)))
        ]
        self._sent.update(names)
        arrivals = [arrival(each.message_id, label=str(next(self.place.numbers)), key=each.key) for each in names]
        self.place.ask(self, SendMessages(QUEUE, tuple(arrivals)), names)

    def contradict(self) -> None:
        """A message whose session belongs to another partition than its key."""
        self.place.ask(self, SendMessages(QUEUE, (arrival("torn", session="a", key="north"),)), None)

    def answered(self, command: Asking, note: list[Identity] | None, reply: Reply) -> None:
        match command, reply:
            case SendMessages(), Done() if note is not None:
                self._stored.update(note)
            case SendMessages(), Refused(error=NotAllowed()) if note is None:
                self.place.seen["torn between partitions"] += 1
            case CreateQueue(), Done():
                pass
            case _:
                raise Violation(f"{command!r:.200} was answered with {reply!r:.200}")

    def look(self, machine: NamespaceMachine) -> None:
        """Everything that was stored is there once, and every key in its order."""
        rows = self.place.disk.rows_of(machine.registry.find_queue(QUEUE).entity_id)
        found = Counter(map(_identity, rows))
        check(self._stored <= set(found), f"accepted and lost: {self._stored - set(found)}")
        check(set(found) <= self._sent, f"nobody sent {set(found) - self._sent}")
        check(max(found.values(), default=1) == 1, f"there twice: {found}")
        self._stored = set(found)  # what was in doubt is there
        lines: dict[str | None, list[int]] = defaultdict(list)
        for row in rows:
            lines[_identity(row).key].append(_number(row))
        for key, numbers in lines.items():
            check(numbers == sorted(numbers), f"the messages of {key} are in the order {numbers}")
            self.place.seen["kept in order"] += len(numbers)


def _identity(row: MessageRow) -> Identity:
    layout = sections.walk(row.payload)
    key = sections.read_annotation(row.payload, layout, PARTITION_KEY) if layout.message_annotations else None
    return Identity(row.message_id or "", None if key is None else str(key))


def _number(row: MessageRow) -> int:
    return int(sections.read_property(row.payload, sections.walk(row.payload), PropertyField.SUBJECT))
