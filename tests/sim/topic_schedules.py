"""Messages that are scheduled on a topic: at their time, and not before, each subscription gets what its rules say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from sim.concern import Asking, Concern, Place, arrival
from sim.invariants import Violation, check
from twinbus.broker.core.commands import CancelScheduled, CreateSubscription, CreateTopic, SendMessages
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Reply
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.entities.topics.rules import CorrelationFilter, Rule, TrueFilter
from twinbus.broker.operations import Done, Refused
from twinbus.broker.store.api import MessageState
from twinbus.errors import MessageNotFound

TOPIC = "Diary"
WANTS: dict[str, Callable[[str], bool]] = {"all": lambda _: True, "red": lambda label: label == "red"}


@dataclass(slots=True)
class Entry:
    """One scheduled message, or one that is due at once, and what its sender knows of it."""

    label: str
    due_at_ms: int
    sequence: int = 0
    """0: not answered."""
    must: bool = False
    """Its sender was answered that it is stored, and has not asked to cancel it."""
    may: bool = True
    """False: its sender was answered that it is not, or no more."""


class TopicSchedules(Concern):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._entries: dict[str, Entry] = {}
        self._asked: list[tuple[str, ...]] = []
        """Whom the open questions are about."""

    def begin(self) -> None:
        self.place.ask(self, CreateTopic(TOPIC, TopicSettings()), ())
        for name, given in (("all", TrueFilter()), ("red", CorrelationFilter(label="red"))):
            self.place.ask(self, CreateSubscription(TOPIC, name, QueueSettings(), Rule("first", given)), ())

    def actions(self) -> dict[Callable[[], None], float]:
        return {self.schedule: 12, self.cancel: 5}

    def schedule(self) -> None:
        random, now_ms = self.place.random, self.place.clock()
        entries = {
            f"d{next(self.place.numbers)}.": Entry(
                random.choice(("red", "blue")), now_ms + random.choice((0, 1, 500, 9_000))
            )
            for _ in range(random.choice((1, 1, 3)))
        }
        self._entries |= entries
        arrivals = [arrival(name, label=each.label, due_at_ms=each.due_at_ms) for name, each in entries.items()]
        self._ask(SendMessages(TOPIC, tuple(arrivals)), tuple(entries))

    def cancel(self) -> None:
        known = [name for name, entry in self._entries.items() if entry.sequence and entry.must]
        if known:
            name = self.place.random.choice(known[-8:])
            self._entries[name].must = False
            self._ask(CancelScheduled(TOPIC, (self._entries[name].sequence,)), (name,))

    def _ask(self, command: Asking, names: tuple[str, ...]) -> None:
        self._asked.append(names)
        self.place.ask(self, command, names)

    def answered(self, command: Asking, note: tuple[str, ...], reply: Reply) -> None:
        names = note
        self.lost(command, note)
        match command, reply:
            case SendMessages(), Done(sequences=sequences):
                for name, sequence in zip(names, sequences, strict=True):
                    self._entries[name].must, self._entries[name].sequence = True, sequence
            case CancelScheduled(), Done():
                self.place.seen["cancelled"] += 1
                self._entries[names[0]].may = False
            case CancelScheduled(), Refused(error=MessageNotFound()):
                entry = self._entries[names[0]]
                check(entry.due_at_ms <= self.place.clock(), f"{names[0]} could not be cancelled before its time")
                entry.must = True
            case _, Done():
                pass
            case _:
                raise Violation(f"{command!r:.200} was answered with {reply!r:.200}")

    def lost(self, command: Asking, note: tuple[str, ...]) -> None:
        if note in self._asked:
            self._asked.remove(note)

    def look(self, machine: NamespaceMachine) -> None:
        """What waits, waits in the topic; what does not is in every subscription that wants it, and only there."""
        now_ms = self.place.clock()
        places: dict[str, Counter[str]] = {}
        for entity in self.place.disk.entities().values():
            if entity.path.startswith(TOPIC):
                for row in self.place.disk.rows_of(entity.entity_id):
                    name = row.message_id or ""
                    places.setdefault(name, Counter())[entity.path] += 1
                    entry = self._entries[name]
                    is_early = row.state is MessageState.ACTIVE and row.enqueued_at_ms < entry.due_at_ms
                    check(not is_early, f"{name} is awake before its time")
        for name, entry in self._entries.items():
            found = places.get(name, Counter())
            check(bool(found) or not entry.must, f"{name} was scheduled and is lost")
            check(entry.may or not found, f"{name} was cancelled and is in {dict(found)}")
            if found:
                entry.must = entry.may  # what was in doubt is there
                self._check_place(name, entry, found, now_ms)
            elif not any(name in names for names in self._asked):
                entry.may = False

    def _check_place(self, name: str, entry: Entry, found: Counter[str], now_ms: int) -> None:
        is_awake = entry.due_at_ms <= now_ms
        self.place.seen["awake" if is_awake else "asleep"] += 1
        wanted = [f"{TOPIC}/Subscriptions/{each}" for each, wants in WANTS.items() if wants(entry.label)]
        right = Counter(wanted) if is_awake else Counter([TOPIC])
        check(found == right, f"{name} is in {dict(found)} and not in {dict(right)}")
