"""A simulated namespace whose entities forward to each other, in chains, trees and rings.

The shipping machine and gate on a simulated disk that is slow, fails and loses power. What must be true: chains end;
nothing that was acknowledged is lost, and nothing is there twice; everything is where the map says, in order; nothing
that could go on stays on the way.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from itertools import count
from random import Random

from sim.clock import VirtualClock
from sim.disk import Disk
from sim.forward_model import QUEUES, SUBSCRIPTIONS, TOPIC, Map, draw_settings
from sim.idle_check import check_counts
from sim.invariants import Violation, check
from sim.ledger_check import LedgerCheck
from sim.surroundings import Surroundings, draw_work
from sim.world import Parts
from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.core.commands import (
    Command,
    CreateQueue,
    CreateSubscription,
    CreateTopic,
    DeleteEntity,
    SendMessages,
    UpdateQueue,
    UpdateSubscription,
)
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Forwarded, Notice
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.message import SCHEDULED_TIME, Arrival, read_arrival
from twinbus.broker.operations import Done, Refused
from twinbus.broker.store.api import MessageRow, MessageState, Report, StoredNamespace
from twinbus.errors import (
    ArgumentError,
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    StoreError,
    StoreUnavailable,
)

ROUNDS_TO_REST_MAX = 3_000
WAKES_MAX = 500
_ALLOWED = (StoreUnavailable, EntityDisabled, EntityNotFound, EntityAlreadyExists, ArgumentError)


class Kind(Enum):
    """What a world is about; each has promises of its own."""

    STEADY = "nobody changes anything: everything is where the map says"
    CHANGING = "forwarding changes while messages are on their way, and time ends some: each is there once"
    DETECTING = "duplicates are detected, and queues are deleted: none is there twice"


class ForwardWorld(Surroundings):
    def __init__(self, seed: int, parts: Parts | None = None) -> None:
        self._random = Random(seed)
        self._parts = parts or Parts()
        self.kind = self._random.choice(list(Kind))
        rows_max, bytes_max = self._random.choice((1, 3, 50)), self._random.choice((200, 100_000))
        self._limits = WindowLimits(rows_max=rows_max, bytes_max=bytes_max)
        self._work_per_step = draw_work(self._random)
        self.clock = VirtualClock()
        self.disk = Disk()
        self.map = Map()
        self.seen: Counter[str] = Counter()
        self.trace: deque[tuple[int, object]] = deque(maxlen=200)
        self._numbers = count(1)
        self._asked: dict[int, tuple[Command[object], tuple[str, ...]]] = {}
        self._start: dict[str, str] = {}
        """Where each message was sent to."""
        self._stored: set[str] = set()
        """Messages whose senders were answered that they are stored."""
        self._unknown: set[str] = set()
        """Messages whose senders never got an answer."""
        self._excused: set[str] = set()
        """Messages that may have been in a queue that was deleted."""
        self._last: Counter[str] = Counter()
        """The last number that a sender was answered, by path."""
        self._in_line: set[str] = set()
        """Messages that were not scheduled."""
        self._has_failed = False
        self.ledger_check = LedgerCheck(self.seen)
        self._boot()

    def _boot(self) -> None:
        self.store = self._parts.store(self.disk)
        on_events = self.ledger_check.recorder.record
        self.gate = self._parts.gate(self.store, self._build, self._take, self._store_failed, on_events=on_events)
        self.store.start(self._report)
        self.ledger_check.begin(self.gate.machine)
        self._has_failed = False

    def _build(self, stored: StoredNamespace) -> NamespaceMachine:
        return self._parts.machine(
            stored,
            new_token=self._new_token,
            window_limits=self._limits,
            records_events=True,
            work_per_step=self._work_per_step,
        )

    def _new_token(self) -> bytes:
        return self._random.randbytes(16)

    # --- around the gate ---

    def _ask(self, command: Command[Done], *names: str) -> None:
        number = next(self._numbers)
        self._asked[number] = (command, names)
        self.trace.append((self.clock(), command))
        self.gate.ask(command, self.clock(), partial(self._answered, number))

    def _do(self, command: Command[object]) -> None:
        self.trace.append((self.clock(), command))
        self.gate.do(command, self.clock())

    def _report(self, report: Report) -> None:
        self.trace.append((self.clock(), report))
        self.gate.report(report, self.clock())

    def _take(self, notice: Notice) -> None:
        self.trace.append((self.clock(), notice))
        check(isinstance(notice, Forwarded), f"nobody asked for {notice!r:.200}")
        self.seen["forwarded"] += 1

    def _answered(self, number: int, reply: Done | Refused) -> None:
        self.trace.append((self.clock(), reply))
        command, names = self._asked.pop(number)
        if isinstance(reply, Done):
            self._stored.update(names)
            if (
                isinstance(command, SendMessages) and self.kind is not Kind.DETECTING
            ):  # there a new queue may have the name
                self._check_numbers(command.path, reply.sequences)
            return
        check(isinstance(reply.error, _ALLOWED), f"{command!r:.200} was refused: {reply.error}")
        self.seen[f"refused: {type(reply.error).__name__}"] += 1
        for name in names:
            del self._start[name]

    def _check_numbers(self, path: str, sequences: tuple[int, ...]) -> None:
        for sequence in sequences:
            check(sequence > self._last[path], f"'{path}' gave number {sequence} after {self._last[path]}")
            self._last[path] = sequence

    def _store_failed(self, reason: str) -> None:
        self.seen["store failed"] += 1
        check(not self._asked, f"nobody answered when the store failed: {self._asked!r:.300}")
        self._has_failed = True

    # --- what happens ---

    def run(self, steps: int) -> None:
        """Make a map, let things happen, and see that everything has come to rest where it belongs."""
        self._make_map()
        usual: dict[Callable[[], None], float] = {
            self.send: 30,
            self.commit_some: 20,
            self.report_commits: 20,
            self.read_some: 20,
            self.report_rows: 20,
            self.fail_commit: self._random.choice((0, 0.5)),
            self.recover: 3,
            self.crash: self._random.choice((0, 0.7)),
            self.tick: 12,
            self.let_time_pass: 5,
            self.change: 4 * (self.kind is Kind.CHANGING),
            self.delete_or_make: 1.5 * (self.kind is Kind.DETECTING),
            self.come_to_rest: 1,
        }
        for _ in range(steps):
            self._random.choices(list(usual), list(usual.values()))[0]()
        self.finish()

    def _make_map(self) -> None:
        detects = self.kind is Kind.DETECTING
        for path in QUEUES:
            self._ask(CreateQueue(path, QueueSettings(requires_duplicate_detection=detects)))
        self._ask(CreateTopic(TOPIC, TopicSettings()))
        for path in SUBSCRIPTIONS:
            self._ask(CreateSubscription(TOPIC, path.rpartition("/")[2], QueueSettings()))
        for path in (*QUEUES, *SUBSCRIPTIONS):
            self._update(path)
        if self.kind is Kind.STEADY and self._random.random() < 0.3:
            self._ask(DeleteEntity("q5"))
            del self.map.settings["q5"]
        self.come_to_rest()

    def _update(self, path: str) -> None:
        dies, detects = self.kind is Kind.CHANGING, self.kind is Kind.DETECTING
        targets = {Kind.STEADY: (*QUEUES, TOPIC), Kind.CHANGING: QUEUES, Kind.DETECTING: _behind(path)}[self.kind]
        settings = draw_settings(self._random, path, targets, dies=dies, detects=detects)
        self.map.settings[path] = settings
        if path in QUEUES:
            self._ask(UpdateQueue(path, settings))
        else:
            self._ask(UpdateSubscription(TOPIC, path.rpartition("/")[2], settings))

    def change(self) -> None:
        self._update(self._random.choice(QUEUES))

    def delete_or_make(self) -> None:
        path = self._random.choice(QUEUES)
        if self._random.random() < 0.4:
            self._excused.update(self._start)
            self._ask(DeleteEntity(path))
        else:
            self._ask(CreateQueue(path, QueueSettings(requires_duplicate_detection=True)))
            self._update(path)

    def send(self) -> None:
        path = self._random.choice((*QUEUES, *(() if self.kind is Kind.CHANGING else (TOPIC,))))
        names = [f"m{next(self._numbers)}." for _ in range(self._random.choice((1, 1, 2, 4)))]
        again = [name for name, start in self._start.items() if start == path and name in self._stored]
        if self.kind is Kind.DETECTING and again and self._random.random() < 0.2:
            self._ask(SendMessages(path, (_arrival(self._random.choice(again)),)))
            return
        due_at_ms = self.clock() + 500 if self._random.random() < 0.1 else None
        self._start |= dict.fromkeys(names, path)
        if due_at_ms is None:
            self._in_line.update(names)
        self._ask(SendMessages(path, tuple(_arrival(name, due_at_ms) for name in names)), *names)

    # --- the disk and time ---

    def fail_commit(self) -> None:
        if self.store.waiting:
            self.store.fail_commit()

    def recover(self) -> None:
        if self._has_failed:
            try:
                self.gate.recover()
            except StoreError:
                return
            self.ledger_check.compare(self.disk)  # what was written is recorded, also where all others were refused
            self.ledger_check.begin(self.gate.machine)
            self._has_failed = False

    def crash(self) -> None:
        """The power goes: some of what was submitted is durable, the rest is gone."""
        self.trace.append((self.clock(), "crash"))
        self.seen["crashes"] += 1
        self.commit_some()
        self._unknown.update(name for _, names in self._asked.values() for name in names)
        self._asked.clear()
        self._boot()

    def let_time_pass(self) -> None:
        self.clock.advance(self._random.choice((1, 10, 300, 1_500)))

    # --- rest ---

    def come_to_rest(self) -> None:
        """Let the disk finish everything, and look around."""
        for _ in range(ROUNDS_TO_REST_MAX):
            if self._is_at_rest():
                self._check_rest()
                return
            self._one_round()
        raise Violation("the namespace does not come to rest")

    def _check_rest(self) -> None:
        check(not self._asked, f"nobody answers: {self._asked!r:.300}")
        self.ledger_check.compare(self.disk)
        for entity in self.gate.machine.registry.all():
            rows = self.disk.rows_of(entity.entity_id)
            check_counts(entity, rows)
            is_through = not isinstance(entity, Queue) or entity.destination is None
            staying = [row.message_id for row in rows if row.state is MessageState.ACTIVE and not is_through]
            check(not staying, f"'{entity.row.path}' forwards and keeps {staying}")
            ids = Counter(row.message_id for row in rows)
            if entity.duplicates is not None and entity.row.path in QUEUES:
                check(max(ids.values(), default=0) <= 1, f"duplicates are in '{entity.row.path}': {ids}")

    def finish(self) -> None:
        """Faults stop, and time ends what it can: chains and rings have ended by then."""
        self.come_to_rest()
        for _ in range(WAKES_MAX):
            wake_ms = self.gate.next_wake_ms()
            if wake_ms is None:
                self._check_places()
                return
            self.clock.advance_to(wake_ms)
            self.come_to_rest()
        raise Violation("a ring does not end")

    def _check_places(self) -> None:
        places: dict[str, Counter[str]] = defaultdict(Counter)
        lines: dict[tuple[str, str], list[str]] = defaultdict(list)
        for entity in self.disk.entities().values():
            for row in self.disk.rows_of(entity.entity_id):
                name = row.message_id or ""
                check(name in self._start, f"message {name} is there though its sender was refused")
                places[name][entity.path] += 1
                lines[self._start[name], entity.path].append(name)
                self._count(row)
        for name, start in self._start.items():
            if name not in self._excused and (name in self._stored or places[name]):
                self._check_place(name, start, places[name])
        if self.kind is Kind.STEADY:
            self._check_lines(lines)

    def _check_place(self, name: str, start: str, found: Counter[str]) -> None:
        if self.kind is Kind.STEADY:
            wanted = self.map.ends(start)
            check(found == wanted, f"message {name}, sent to {start}, is in {found} and not in {wanted}")
        elif self.kind is Kind.CHANGING:
            check(found.total() == 1, f"message {name} is in {found}")
        else:
            check(found.total() >= 1, f"message {name} was acknowledged and is lost")

    def _check_lines(self, lines: dict[tuple[str, str], list[str]]) -> None:
        """What was sent to one place and came to rest in another is there in the order in which it was sent."""
        for (start, end), names in lines.items():
            line = [name for name in names if name in self._in_line]
            in_order = sorted(line, key=lambda name: int(name[1:-1]))
            check(not self.map.is_simple(start) or line == in_order, f"from {start} to {end} came {line}")

    def _count(self, row: MessageRow) -> None:
        properties = sections.read_application_properties(row.payload, sections.walk(row.payload))
        self.seen[f"in the end: {properties.get('DeadLetterReason')}"] += 1


def _behind(path: str) -> tuple[str, ...]:
    """Queues to which a queue may forward without a ring: there a duplicate would be its own."""
    return QUEUES[QUEUES.index(path) + 1 :] if path in QUEUES else QUEUES


def _arrival(name: str, due_at_ms: int | None = None) -> Arrival:
    payload = sections.encode_message(
        annotations=None if due_at_ms is None else {SCHEDULED_TIME: Timestamp(due_at_ms)},
        properties={PropertyField.MESSAGE_ID: name},
        data=bytes(40),
    )
    return read_arrival(payload, lambda: "unused")
