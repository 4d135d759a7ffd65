"""A simulated namespace and applications that do everything in transactions.

The shipping machine and gate on a simulated disk that is slow, fails, is full and loses power. What must be true: of a
transaction everything happens or nothing, whatever the application is told; nothing is seen before the commit; locks
of what is rolled back stay.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random

from sim.clock import VirtualClock
from sim.deals import Deal, Deals, Place, Told
from sim.disk import Disk
from sim.idle_check import check_counts
from sim.invariants import Violation, check
from sim.surroundings import Surroundings, draw_work
from sim.world import Parts
from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.core.commands import (
    AcceptSession,
    BeginTransaction,
    CancelScheduled,
    Command,
    CreateQueue,
    CreateSubscription,
    CreateTopic,
    EndTransaction,
    Enlist,
    Grant,
    OpenReceiver,
    SendMessages,
    SetSessionState,
    SettleMessages,
)
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Delivery, Forwarded, Notice
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.message import SCHEDULED_TIME, Arrival, read_arrival
from twinbus.broker.operations import (
    Abandon,
    Complete,
    Done,
    ReceiveMode,
    ReceiverLost,
    Refused,
    SessionAccepted,
    Settled,
    TransactionTimedOut,
)
from twinbus.broker.store.api import DiskSpaceChanged, Report, SessionStateOf, StateRead, StoredNamespace
from twinbus.errors import LockLost, NotAllowed, StoreError

QUEUES = ("plain", "other", "unique", "sessions", "chained")
TOPIC, SUBSCRIPTIONS = "news", ("news/Subscriptions/a", "news/Subscriptions/b")
LANDS = {**{path: (path,) for path in QUEUES}, "chained": ("plain",), TOPIC: SUBSCRIPTIONS}
"""Where what is sent there is in the end."""
SESSION = "s"
ROUNDS_TO_REST_MAX, WAKES_MAX = 3_000, 300
OPEN_MAX = 4


class TransactionWorld(Surroundings):
    def __init__(self, seed: int, parts: Parts | None = None) -> None:
        self._random = Random(seed)
        self._parts = parts or Parts()
        self._limits = WindowLimits(rows_max=self._random.choice((1, 3, 50)), bytes_max=100_000)
        self._work_per_step = draw_work(self._random)
        self.clock = VirtualClock()
        self.disk = Disk()
        self.deals = Deals()
        self.seen: Counter[str] = Counter()
        self.trace: deque[tuple[int, object]] = deque(maxlen=200)
        self._numbers = count(1)
        self._asked: dict[int, Command[object]] = {}
        self._held: dict[bytes, Place] = {}
        """Locked messages by token."""
        self._scheduled: dict[int, Place] = {}
        """By sequence, those of one queue."""
        self._readers: dict[int, str] = {}
        self._full_disk: str | None = None
        self._has_failed = False
        self._boot()

    def _boot(self) -> None:
        self.store = self._parts.store(self.disk)
        self.gate = self._parts.gate(self.store, self._build, self._take, self._store_failed)
        self.store.start(self._report)
        self._has_failed = False
        if self._full_disk is not None:
            self._report(DiskSpaceChanged(self._full_disk))

    def _build(self, stored: StoredNamespace) -> NamespaceMachine:
        return self._parts.machine(
            stored,
            new_token=lambda: self._random.randbytes(16),
            window_limits=self._limits,
            work_per_step=self._work_per_step,
        )

    # --- around the gate ---

    def _ask(self, command: Command[object], on_reply: Callable[[object], None] = lambda _: None) -> None:
        number = next(self._numbers)
        self._asked[number] = command
        self.trace.append((self.clock(), command))
        self.gate.ask(command, self.clock(), partial(self._answered, number, on_reply))

    def _answered(self, number: int, on_reply: Callable[[object], None], reply: object) -> None:
        self.trace.append((self.clock(), reply))
        del self._asked[number]
        if isinstance(reply, Refused):
            self.seen[f"refused: {type(reply.error).__name__}"] += 1
        on_reply(reply)

    def _do(self, command: Command[object]) -> None:
        self.trace.append((self.clock(), command))
        self.gate.do(command, self.clock())

    def _report(self, report: Report) -> None:
        self.trace.append((self.clock(), report))
        self.gate.report(report, self.clock())

    def _take(self, notice: Notice) -> None:
        self.trace.append((self.clock(), notice))
        match notice:
            case Delivery(receiver, row, token):
                place = (self._readers[receiver], row.message_id or "")
                self.deals.seen(place)
                self._held[token or b""] = place
            case TransactionTimedOut(number):
                deal = self.deals.all[number]
                check(deal.told is Told.OPEN, f"transaction {number} timed out though it was {deal.told.value}")
                deal.told = Told.BACK
                self.seen["timed out"] += 1
            case ReceiverLost(receiver):
                self._readers.pop(receiver, None)
            case Forwarded():
                pass
            case _:
                raise Violation(f"nobody asked for {notice!r:.200}")

    def _store_failed(self, reason: str) -> None:
        self.seen["store failed"] += 1
        check(not self._asked, f"nobody answered when the store failed: {self._asked!r:.300}")
        self._has_failed = True
        self._lose_everything()

    def _lose_everything(self) -> None:
        self.deals.end_life()
        self._held.clear()
        self._readers.clear()
        self._scheduled.clear()

    # --- what happens ---

    def run(self, steps: int) -> None:
        """Let applications deal, then let the faults stop and see what came of it."""
        self._make_entities()
        usual: dict[Callable[[], None], float] = {
            self.begin: 8,
            self.send: 20,
            self.send_again: 3,
            self.settle: 14,
            self.settle_outside: 3,
            self.set_state: 3,
            self.cancel: 3,
            self.end: 12,
            self.receive: 10,
            self.commit_some: 20,
            self.report_commits: 20,
            self.read_some: 20,
            self.report_rows: 20,
            self.fail_commit: self._random.choice((0, 0.5)),
            self.recover: 3,
            self.crash: self._random.choice((0, 0.7)),
            self.fill_disk_or_make_room: self._random.choice((0, 0, 1)),
            self.tick: 12,
            self.let_time_pass: 4,
            self.come_to_rest: 1,
        }
        for _ in range(steps):
            self._random.choices(list(usual), list(usual.values()))[0]()
        self.finish()

    def _make_entities(self) -> None:
        usual = QueueSettings(lock_ms=60_000, max_delivery_count=1_000)
        for path in QUEUES:
            unique, sessions, chained = path == "unique", path == "sessions", path == "chained"
            settings = QueueSettings(
                lock_ms=60_000,
                max_delivery_count=1_000,
                requires_duplicate_detection=unique,
                requires_session=sessions,
                forward_to="plain" if chained else None,
            )
            self._ask(CreateQueue(path, settings))
            if path == "plain":
                self.come_to_rest()
        self._ask(CreateTopic(TOPIC, TopicSettings()))
        for path in SUBSCRIPTIONS:
            self._ask(CreateSubscription(TOPIC, path.rpartition("/")[2], usual))
        self.come_to_rest()

    def begin(self) -> None:
        if len(self.deals.open()) < OPEN_MAX:
            deal = Deal(next(self._numbers))
            self.deals.all[deal.number] = deal
            self._ask(BeginTransaction(deal.number), partial(self._begun, deal))

    def _begun(self, deal: Deal, reply: object) -> None:
        if isinstance(reply, Refused):
            deal.told = Told.BACK

    def _some_deal(self) -> Deal | None:
        return self._random.choice(self.deals.open() or [None])

    def send(self) -> None:
        deal = self._some_deal()
        if deal is not None:
            path = self._random.choice((*QUEUES, TOPIC))
            names = [f"m{next(self._numbers)}" for _ in range(self._random.choice((1, 1, 2, 5)))]
            due_at_ms = None
            if path in ("plain", "unique") and self._random.random() < 0.2:
                due_at_ms = self.clock() + self._random.choice((-50, 1, 5_000))
            work = SendMessages(path, tuple([_arrival(name, due_at_ms) for name in names]))
            # Nothing binds these deals to one entity: all of them send via the same.
            self._ask(Enlist(deal.number, work, "plain"), partial(self._enlisted, deal, path, names))

    def _enlisted(self, deal: Deal, path: str, names: list[str], reply: object) -> None:
        if isinstance(reply, Done):
            places = [(land, name) for land in LANDS[path] for name in names]
            self.deals.add(deal, places)
            for sequence, name in zip(reply.sequences, names, strict=False):
                if path == "plain":
                    self._scheduled[sequence] = (path, name)

    def send_again(self) -> None:
        """A message that is stored is sent again to the queue that detects that, in another transaction."""
        deal = self._some_deal()
        sure = [place for each in self.deals.all.values() if each.told is Told.DONE for place in each.adds]
        known = [name for path, name in sure if path == "unique"]
        if deal is not None and known:
            work = SendMessages("unique", (_arrival(self._random.choice(known), None),))
            self._ask(Enlist(deal.number, work, "plain"))

    def settle(self) -> None:
        deal, token = self._some_deal(), self._random.choice([*self._held] or [b""])
        if deal is not None and token:
            work = SettleMessages(self._held[token][0], (token,), Complete())
            self._ask(Enlist(deal.number, work, "plain"), partial(self._settlement_enlisted, deal, token))

    def _settlement_enlisted(self, deal: Deal, token: bytes, reply: object) -> None:
        if isinstance(reply, Settled) and not reply.failures:
            holders = [each.number for each in self.deals.open() if token in each.tokens]
            check(not holders, f"transactions {holders} and {deal.number} settle the same message")
            deal.tokens.append(token)
            deal.removes.append(self._held[token])
        elif isinstance(reply, Settled):
            self.seen[f"not settled: {type(reply.failures[token]).__name__}"] += 1

    def settle_outside(self) -> None:
        """A receiver gives a message back: not if it is in a transaction, but after a rollback."""
        token = self._random.choice([*self._held] or [b""])
        if token:
            work = SettleMessages(self._held[token][0], (token,), Abandon())
            held_by = [deal for deal in self.deals.open() if token in deal.tokens]
            self._ask(work, partial(self._abandoned, token, bool(held_by)))

    def _abandoned(self, token: bytes, is_enlisted: bool, reply: object) -> None:
        if isinstance(reply, Settled):
            error = reply.failures.get(token)
            check(error is None or isinstance(error, LockLost | NotAllowed), f"it was refused with {error}")
            check(not is_enlisted or error is not None, "a message was taken out of a transaction")
            in_doubt = any(token in deal.tokens for deal in self.deals.all.values() if deal.told is Told.ENDING)
            is_blocked = isinstance(error, NotAllowed) and not is_enlisted and not in_doubt
            check(not is_blocked, "a transaction that is over keeps a message")
            if error is None:
                self._held.pop(token, None)

    def set_state(self) -> None:
        deal = self._some_deal()
        if deal is not None:
            state = f"state {next(self._numbers)}"
            work = SetSessionState("sessions", SESSION, state.encode())
            self._ask(Enlist(deal.number, work, "plain"), partial(self._state_enlisted, deal, state))

    def _state_enlisted(self, deal: Deal, state: str, reply: object) -> None:
        if isinstance(reply, Done):
            deal.states.append(state)

    def cancel(self) -> None:
        deal, sequence = self._some_deal(), self._random.choice([*self._scheduled] or [0])
        if deal is not None and sequence:
            place = self._scheduled[sequence]
            work = CancelScheduled("plain", (sequence,))
            self._ask(Enlist(deal.number, work, "plain"), partial(self._cancel_enlisted, deal, place))

    def _cancel_enlisted(self, deal: Deal, place: Place, reply: object) -> None:
        if isinstance(reply, Done):
            deal.removes.append(place)

    def end(self) -> None:
        deal = self._some_deal()
        if deal is None:
            return
        commits = self._random.random() < 0.7
        deal.told = Told.ENDING if commits else Told.BACK
        self._ask(EndTransaction(deal.number, commits), partial(self._ended, deal))

    def _ended(self, deal: Deal, reply: object) -> None:
        if deal.told is Told.ENDING:
            deal.told = Told.DONE if isinstance(reply, Done) else Told.BACK
            self.seen[f"ended: {deal.told.name}"] += 1
            check(deal.told is Told.DONE or not deal.is_proven, f"{deal.number} was refused, and some of it was seen")
            if deal.told is Told.DONE:
                for token in deal.tokens:
                    self._held.pop(token, None)

    def receive(self) -> None:
        path = self._random.choice(("plain", "other", "unique", "sessions", *SUBSCRIPTIONS))
        for receiver, opened in self._readers.items():
            if opened == path:
                self._do(Grant(receiver, self._random.choice((2, 10, 1_000))))
                return
        if self.gate.failure is not None:
            return
        number = next(self._numbers)
        self._readers[number] = path
        if path == "sessions":
            self._ask(AcceptSession(number, path, ReceiveMode.PEEK_LOCK, SESSION), partial(self._opened, number))
        else:
            self._ask(OpenReceiver(number, path, ReceiveMode.PEEK_LOCK), partial(self._opened, number))

    def _opened(self, receiver: int, reply: object) -> None:
        if not isinstance(reply, Done | SessionAccepted):
            self._readers.pop(receiver, None)

    # --- the disk and time ---

    def fail_commit(self) -> None:
        if self.store.waiting:
            self.store.fail_commit()

    def fill_disk_or_make_room(self) -> None:
        self._full_disk = "the simulated disk is full" if self._full_disk is None else None
        self._report(DiskSpaceChanged(self._full_disk))

    def recover(self) -> None:
        if self._has_failed:
            try:
                self.gate.recover()
            except StoreError:
                return
            self._has_failed = False

    def crash(self) -> None:
        """The power goes: some of what was submitted is durable, the rest is gone."""
        self.trace.append((self.clock(), "crash"))
        self.seen["crashes"] += 1
        self.commit_some()
        self._asked.clear()
        self._lose_everything()
        self._boot()

    def let_time_pass(self) -> None:
        self.clock.advance(self._random.choice((1, 10, 300, 5_000, 40_000)))

    # --- rest ---

    def come_to_rest(self) -> None:
        """Let the disk finish everything, and look around."""
        for _ in range(ROUNDS_TO_REST_MAX):
            if self._is_at_rest():
                check(not self._asked, f"nobody answers: {self._asked!r:.300}")
                self._look_around()
                return
            self._one_round()
        raise Violation("the namespace does not come to rest")

    def _look_around(self) -> None:
        stored: Counter[Place] = Counter()
        states: set[str] = set()
        for entity in self.gate.machine.registry.all():
            rows = self.disk.rows_of(entity.entity_id)
            check_counts(entity, rows)
            if entity.row.path != TOPIC:  # what waits there for its turn is not where it belongs yet
                stored.update((entity.row.path, row.message_id or "") for row in rows)
            if entity.row.path == "sessions":
                read = self.disk.answer(SessionStateOf(entity.entity_id, SESSION))
                if isinstance(read, StateRead) and read.state is not None:
                    states.add(read.state.decode())
        twice = [place for place, times in stored.items() if times > 1]
        check(not twice, f"{twice} are there twice")
        if self._full_disk is None:
            self.deals.check_all(set(stored), states)

    def finish(self) -> None:
        """Faults stop, and what is open times out."""
        if self._full_disk is not None:
            self.fill_disk_or_make_room()
        self.come_to_rest()
        for _ in range(WAKES_MAX):
            wake_ms = self.gate.next_wake_ms()
            if wake_ms is None:
                break
            self.clock.advance_to(wake_ms)
            self.come_to_rest()
        used = [deal.number for deal in self.deals.open() if deal.adds or deal.removes or deal.states]
        check(not used, f"transactions {used} have not timed out")


def _arrival(name: str, due_at_ms: int | None) -> Arrival:
    payload = sections.encode_message(
        annotations=None if due_at_ms is None else {SCHEDULED_TIME: Timestamp(due_at_ms)},
        properties={PropertyField.MESSAGE_ID: name, PropertyField.GROUP_ID: SESSION},
        data=b"body",
    )
    return read_arrival(payload, lambda: "unused")
