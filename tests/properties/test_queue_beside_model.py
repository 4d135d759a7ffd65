"""A queue beside a dict: the shipping machine and gate must agree with a model that is too simple to be wrong.

Commits are immediate here and time is swept after every step, so the model is exact: the same sequences, in the
same order, with the same counts. What happens while commits are slow or fail is the simulator's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from seeds import examples

from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Header, PropertyField
from twinbus.broker.core.commands import (
    CancelScheduled,
    CloseReceiver,
    Command,
    CreateQueue,
    Grant,
    OpenReceiver,
    PeekMessages,
    ReceiveDeferred,
    RenewMessageLocks,
    SendMessages,
    SettleMessages,
    Tick,
)
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Delivery, FoundRow, LocksRenewed, MessagesFound, Notice
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.message import SCHEDULED_TIME, Arrival, read_arrival
from twinbus.broker.operations import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Done,
    ReceiveMode,
    Refused,
    Release,
    Settled,
    SettlementOutcome,
)
from twinbus.broker.store.api import MessageState, StoredNamespace
from twinbus.broker.store.memory import MemoryStore
from twinbus.errors import LockLost, MessageNotFound

QUEUE, DEAD_LETTERS = "orders", "orders/$deadletterqueue"
LOCK_MS, LATE_MS, FAILURES_MAX = 5_000, 1_000, 2
R = TypeVar("R")
ACTIVE, DEFERRED, SCHEDULED = MessageState.ACTIVE, MessageState.DEFERRED, MessageState.SCHEDULED
LOCKED, DELETED = ReceiveMode.PEEK_LOCK, ReceiveMode.RECEIVE_AND_DELETE
OUTCOMES: tuple[SettlementOutcome, ...] = (Complete(), Abandon(), Defer(), DeadLetter(), Release())


@dataclass
class Message:
    name: str
    state: MessageState
    ttl_ms: int | None
    expires_at_ms: int | None = None
    due_at_ms: int | None = None
    failures: int = 0
    token: bytes | None = None
    locked_until_ms: int = 0

    def is_over(self, now_ms: int) -> bool:
        return self.state is ACTIVE and self.expires_at_ms is not None and self.expires_at_ms <= now_ms


class Model:
    """A queue as one dict by sequence, and the names of its dead letters."""

    def __init__(self, *, buries_expired: bool) -> None:
        self.messages: dict[int, Message] = {}
        self.dead: list[str] = []
        self.next_sequence = 1
        self._buries_expired = buries_expired

    def send(self, name: str, ttl_ms: int | None, due_at_ms: int | None, now_ms: int) -> int:
        is_scheduled = due_at_ms is not None and due_at_ms > now_ms
        message = Message(name, SCHEDULED if is_scheduled else ACTIVE, ttl_ms)
        if is_scheduled:
            message.due_at_ms = due_at_ms
        elif ttl_ms is not None:
            message.expires_at_ms = now_ms + ttl_ms
        return self._add(message)

    def _add(self, message: Message) -> int:
        sequence = self.next_sequence
        self.messages[sequence] = message
        self.next_sequence += 1
        return sequence

    def visible(self) -> list[int]:
        return [at for at, each in sorted(self.messages.items()) if each.state is ACTIVE and each.token is None]

    def by_token(self, token: bytes, now_ms: int) -> int | None:
        return next(
            (at for at, each in self.messages.items() if each.token == token and each.locked_until_ms > now_ms), None
        )

    def settle(self, sequence: int, outcome: SettlementOutcome) -> None:
        message = self.messages[sequence]
        message.token = None
        match outcome:
            case Complete():
                del self.messages[sequence]
            case Abandon():
                self._fail(sequence)
            case Defer():
                message.state, message.expires_at_ms = DEFERRED, None
            case DeadLetter():
                self._bury(sequence)

    def _fail(self, sequence: int) -> None:
        self.messages[sequence].failures += 1
        if self.messages[sequence].failures >= FAILURES_MAX:
            self._bury(sequence)

    def _bury(self, sequence: int) -> None:
        self.dead.append(self.messages.pop(sequence).name)

    def sweep(self, now_ms: int) -> None:
        """What time does."""
        for sequence, message in sorted(self.messages.items()):
            if message.token is not None and message.locked_until_ms <= now_ms:
                message.token = None
                if not message.is_over(now_ms):
                    self._fail(sequence)
        due = [(each.due_at_ms, at) for at, each in self.messages.items() if each.state is SCHEDULED]
        for due_at_ms, sequence in sorted(due):
            if due_at_ms is not None and due_at_ms <= now_ms:
                self._wake(self.messages.pop(sequence), due_at_ms, now_ms)
        for sequence in [at for at in self.visible() if self.messages[at].is_over(now_ms)]:
            if self._buries_expired:
                self._bury(sequence)
            else:
                del self.messages[sequence]

    def _wake(self, message: Message, due_at_ms: int, now_ms: int) -> None:
        enqueued_at_ms = due_at_ms if now_ms - due_at_ms <= LATE_MS else now_ms
        expires_at_ms = None if message.ttl_ms is None else enqueued_at_ms + message.ttl_ms
        self._add(replace(message, state=ACTIVE, due_at_ms=None, expires_at_ms=expires_at_ms))

    def forget_locks(self) -> None:
        for message in self.messages.values():
            message.token = None


class QueueBesideModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.numbers = count(1)
        self.notices: list[Notice] = []
        self.tokens: list[bytes] = []
        self.store = MemoryStore()

    @initialize(rows_max=st.sampled_from([1, 3, 100]), buries_expired=st.booleans())
    def create(self, rows_max: int, buries_expired: bool) -> None:
        self.limits = WindowLimits(rows_max=rows_max)
        self.model = Model(buries_expired=buries_expired)
        self.start()
        settings = QueueSettings(
            lock_ms=LOCK_MS, max_delivery_count=FAILURES_MAX, dead_letter_on_expiration=buries_expired
        )
        assert isinstance(self.ask(CreateQueue(QUEUE, settings)), Done)

    def start(self) -> None:
        self.gate = CommitGate(self.store, self.build, self.notices.append, lambda reason: None)
        self.store.start(lambda report: self.gate.report(report, self.now_ms))

    def build(self, stored: StoredNamespace) -> NamespaceMachine:
        new_token: Callable[[], bytes] = lambda: next(self.numbers).to_bytes(16, "big")  # noqa: E731
        return NamespaceMachine(stored, new_token=new_token, window_limits=self.limits)

    def ask(self, command: Command[R]) -> R | Refused:
        answers: list[R | Refused] = []
        self.gate.ask(command, self.now_ms, answers.append)
        (answer,) = answers
        return answer

    def sweep(self) -> None:
        while (wake_ms := self.gate.next_wake_ms()) is not None and wake_ms <= self.now_ms:
            self.gate.do(Tick(), self.now_ms)
        self.model.sweep(self.now_ms)

    # --- what applications do ---

    @rule(
        ttls=st.lists(st.sampled_from([None, 1_000]), min_size=1, max_size=4),
        delay_ms=st.sampled_from([None, None, 0, 2_000]),
    )
    def send(self, ttls: list[int | None], delay_ms: int | None) -> None:
        due_at_ms = None if delay_ms is None else self.now_ms + delay_ms
        names = [f"m{next(self.numbers)}" for _ in ttls]
        arrivals = tuple(arrival(name, ttl, due_at_ms) for name, ttl in zip(names, ttls, strict=True))
        answer = self.ask(SendMessages(QUEUE, arrivals))
        expected = [self.model.send(name, ttl, due_at_ms, self.now_ms) for name, ttl in zip(names, ttls, strict=True)]
        assert isinstance(answer, Done)
        assert list(answer.sequences) == expected
        self.sweep()

    @rule(most=st.integers(1, 6), mode=st.sampled_from([LOCKED, LOCKED, DELETED]))
    def receive(self, most: int, mode: ReceiveMode) -> None:
        expected = self.model.visible()[:most]
        receiver = next(self.numbers)
        self.gate.do(OpenReceiver(receiver, QUEUE, mode), self.now_ms)
        self.gate.do(Grant(receiver, most, drain=True), self.now_ms)
        self.gate.do(CloseReceiver(receiver), self.now_ms)
        got = [each for each in self.notices if isinstance(each, Delivery) and each.receiver == receiver]
        assert [each.row.sequence for each in got] == expected
        for each in got:
            message = self.model.messages[each.row.sequence]
            assert (each.row.message_id, each.row.delivery_count) == (message.name, message.failures)
            self.lent(each.row.sequence, each.token, each.locked_until_ms)
        self.sweep()

    def lent(self, sequence: int, token: bytes | None, until_ms: int | None) -> None:
        if token is None or until_ms is None:
            del self.model.messages[sequence]
            return
        self.tokens.append(token)
        message = self.model.messages[sequence]
        message.token, message.locked_until_ms = token, until_ms

    def draw_token(self, data: st.DataObject) -> bytes:
        """Usually one whose lock holds, sometimes an old one."""
        held = [each.token for each in self.model.messages.values() if each.token is not None]
        return data.draw(st.sampled_from([*held, *self.tokens[-2:]]))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def settle(self, data: st.DataObject, outcome: SettlementOutcome) -> None:
        token = self.draw_token(data)
        sequence = self.model.by_token(token, self.now_ms)
        answer = self.ask(SettleMessages(QUEUE, (token,), outcome))
        assert isinstance(answer, Settled)
        if sequence is None:
            assert isinstance(answer.failures[token], LockLost)
        else:
            assert answer.failures == {}
            self.model.settle(sequence, outcome)
        self.sweep()

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        token = self.draw_token(data)
        sequence = self.model.by_token(token, self.now_ms)
        answer = self.ask(RenewMessageLocks(QUEUE, (token,)))
        assert isinstance(answer, Refused if sequence is None else LocksRenewed)
        if sequence is not None:
            self.model.messages[sequence].locked_until_ms = self.now_ms + LOCK_MS

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), mode=st.sampled_from([LOCKED, LOCKED, DELETED]))
    def receive_deferred(self, data: st.DataObject, mode: ReceiveMode) -> None:
        sequence = self.draw_sequence(data, DEFERRED)
        message = self.model.messages.get(sequence)
        answer = self.ask(ReceiveDeferred(QUEUE, (sequence,), mode))
        if message is not None and message.state is DEFERRED and message.token is None:
            assert isinstance(answer, MessagesFound)
            assert answer.found[0].row.delivery_count == message.failures
            self.lent(sequence, answer.found[0].token, answer.found[0].locked_until_ms)
        else:
            assert isinstance(answer, Refused)
            assert isinstance(answer.error, MessageNotFound)
        self.sweep()

    @precondition(lambda self: any(each.state is SCHEDULED for each in self.model.messages.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        sequence = self.draw_sequence(data, SCHEDULED)
        message = self.model.messages.get(sequence)
        answer = self.ask(CancelScheduled(QUEUE, (sequence,)))
        if message is not None and message.state is SCHEDULED:
            assert isinstance(answer, Done)
            del self.model.messages[sequence]
        else:
            assert isinstance(answer, Refused)

    def draw_sequence(self, data: st.DataObject, state: MessageState) -> int:
        """Usually one in this state, sometimes any."""
        fitting = [at for at, each in self.model.messages.items() if each.state is state]
        return data.draw(st.sampled_from(fitting or [1, 2, 3, 99]))

    @rule(by_ms=st.sampled_from([1, 1_000, 1_000, 5_000]))
    def let_time_pass(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.sweep()

    @rule()
    def restart(self) -> None:
        self.start()
        self.model.forget_locks()
        self.sweep()

    # --- what must agree ---

    @invariant()
    def a_peek_shows_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        shown = {lent.row.sequence: lent.row for lent in self.look(QUEUE)}
        alive = {at: each for at, each in self.model.messages.items() if not each.is_over(self.now_ms)}
        assert list(shown) == sorted(alive)
        for sequence, message in alive.items():
            row = shown[sequence]
            assert (row.message_id, row.state, row.delivery_count) == (message.name, message.state, message.failures)
        assert sorted(str(lent.row.message_id) for lent in self.look(DEAD_LETTERS)) == sorted(self.model.dead)

    def look(self, path: str) -> list[FoundRow]:
        answer = self.ask(PeekMessages(path, 0, 250))
        assert isinstance(answer, MessagesFound)
        return list(answer.found)

    @invariant()
    def the_queue_counts_like_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        queue = self.gate.machine.registry.find_queue(QUEUE)
        states = [each.state for each in self.model.messages.values()]
        counted = (queue.active, queue.deferred, queue.scheduled)
        assert counted == (states.count(ACTIVE), states.count(DEFERRED), states.count(SCHEDULED))
        assert len(queue.recent) == 0
        assert len(queue.locks) == sum(each.token is not None for each in self.model.messages.values())


def arrival(name: str, ttl_ms: int | None, due_at_ms: int | None) -> Arrival:
    payload = sections.encode_message(
        header=None if ttl_ms is None else Header(ttl_ms=ttl_ms),
        annotations=None if due_at_ms is None else {SCHEDULED_TIME: Timestamp(due_at_ms)},
        properties={PropertyField.MESSAGE_ID: name},
        data=b"",
    )
    return read_arrival(payload, lambda: "unused")


TestQueueBesideModel = QueueBesideModel.TestCase
TestQueueBesideModel.settings = settings(max_examples=examples(300, 50), stateful_step_count=40, deadline=None)
