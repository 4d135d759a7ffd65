"""A machine and a commit gate over a store that commits when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeVar, cast

from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Header, PropertyField
from twinbus.broker.core.commands import (
    CloseReceiver,
    Command,
    CreateQueue,
    Grant,
    OpenReceiver,
    PauseReceiver,
    PeekMessages,
    ReceiveDeferred,
    ResumeReceiver,
    SendMessages,
    SettleMessages,
    Tick,
)
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.message_events import MessageEvents
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import WORK_PER_STEP, Delivery, MessagesFound, Notice, Reply
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.message import SCHEDULED_TIME, Arrival, read_arrival
from twinbus.broker.operations import Done, ReceiveMode, Refused, Settled, SettlementOutcome
from twinbus.broker.store.api import MessageRow, MessageState, Report, StoredNamespace
from twinbus.broker.store.memory import MemoryStore
from twinbus.errors import NamespaceError

QUEUE = "orders"
DEAD_LETTERS = "orders/$deadletterqueue"
START_MS = 1_000_000
SECOND_MS = 1_000

R = TypeVar("R")


def arrival(name: str, *, ttl_ms: int | None = None, due_at_ms: int | None = None, body: bytes = b"body") -> Arrival:
    """An incoming message; `name` is its message-id."""
    payload = sections.encode_message(
        header=None if ttl_ms is None else Header(ttl_ms=ttl_ms),
        annotations=None if due_at_ms is None else {SCHEDULED_TIME: Timestamp(due_at_ms)},
        properties={PropertyField.MESSAGE_ID: name},
        data=body,
    )
    return read_arrival(payload, lambda: "unused")


def row(sequence: int, size: int = 10) -> MessageRow:
    """A visible row of entity 7."""
    return MessageRow(
        7, sequence, MessageState.ACTIVE, sequence, START_MS, None, None, 0, str(sequence), None, None, bytes(size)
    )


def properties_of(row: MessageRow) -> dict[object, object]:
    return dict(sections.read_application_properties(row.payload, sections.walk(row.payload)))


class NamespaceHarness:
    def __init__(
        self,
        settings: QueueSettings | None = None,
        limits: WindowLimits | None = None,
        on_events: Callable[[MessageEvents], None] | None = None,
        work_per_step: int = WORK_PER_STEP,
        message_bytes_max: int | None = None,
    ) -> None:
        self._work_per_step, self._message_bytes_max = work_per_step, message_bytes_max
        self._on_events = on_events
        self.delays: dict[str, int] = {}
        """How long copies for a subscription, by its path in lower case, are held back."""
        self.now_ms = START_MS
        self.store = MemoryStore(by_hand=True)
        self.replies: list[Reply | Notice] = []
        self.names: list[object] = []
        """What the test has called the commands that these are the replies to; None: nothing, and for notices."""
        self.failures: list[str] = []
        self._limits = limits
        self._tokens = count(1)
        self._numbers = count(1)
        self._taken = 0
        self.last_receiver = 0
        self._reports = 0
        self.gate = self._open_gate()
        self.store.start(self._report)
        self.do(CreateQueue(QUEUE, settings or QueueSettings()))
        self.commit()
        self.take()

    def _open_gate(self) -> CommitGate:
        return CommitGate(
            self.store,
            self._build,
            lambda notice: self._take(None, notice),
            self.failures.append,
            on_events=self._on_events,
        )

    def _take(self, name: object, reply: Reply | Notice) -> None:
        self.names.append(name)
        self.replies.append(reply)

    def _build(self, stored: StoredNamespace) -> NamespaceMachine:
        return NamespaceMachine(
            stored,
            new_token=lambda: next(self._tokens).to_bytes(16, "big"),
            window_limits=self._limits,
            records_events=self._on_events is not None,
            copy_delays=lambda now_ms: (lambda path: self.delays.get(path.lower(), 0)) if self.delays else None,
            work_per_step=self._work_per_step,
            message_bytes_max=self._message_bytes_max,
        )

    def _report(self, report: Report) -> None:
        self._reports += 1
        self.gate.report(report, self.now_ms)

    # --- what happens ---

    def do(self, command: Command[Any], name: object = None) -> None:
        """Carry out a command; `take_named` gives its reply with this name."""
        if isinstance(command, Grant | PauseReceiver | ResumeReceiver | CloseReceiver | Tick):
            self.gate.do(command, self.now_ms)
        else:
            self.gate.ask(command, self.now_ms, lambda reply: self._take(name, reply))

    def commit(self, sets: int | None = None) -> None:
        """Let what was submitted become durable, and what follows from it too."""
        if sets is not None:
            self.store.commit(sets)
            return
        heard = -1
        while heard != self._reports:  # what a commit leads to may have to be written as well
            heard = self._reports
            self.store.commit()

    def pass_time(self, by_ms: int) -> None:
        """Let time pass; whatever is due happens and becomes durable."""
        self.now_ms += by_ms
        while (wake_ms := self.gate.next_wake_ms()) is not None and wake_ms <= self.now_ms:
            self.do(Tick())
            self.commit()

    def restart(self) -> None:
        """The process ends without warning; what is not committed is gone."""
        self.gate = self._open_gate()

    # --- what was said ---

    def take(self) -> list[Reply | Notice]:
        """The replies and notices since the last time."""
        return [reply for _, reply in self.take_named()]

    def take_named(self) -> list[tuple[object, Reply | Notice]]:
        first, self._taken = self._taken, len(self.replies)
        return list(zip(self.names[first:], self.replies[first:], strict=True))

    def deliveries(self) -> list[Delivery]:
        return [reply for reply in self.take() if isinstance(reply, Delivery)]

    def ask(self, command: Command[R]) -> R | Refused:
        """Carry a command out, commit, and return its answer."""
        answers: list[R | Refused] = []

        def take(reply: R | Refused) -> None:
            answers.append(reply)
            self._take(None, cast("Reply", reply))

        self.gate.ask(command, self.now_ms, take)
        self.commit()
        (answer,) = answers
        return answer

    def refusal(self, command: Command[object]) -> NamespaceError:
        reply = self.ask(command)
        assert isinstance(reply, Refused), reply
        return reply.error

    # --- shorthand ---

    def send(self, *arrivals: Arrival | str) -> tuple[int, ...]:
        """Send one batch and return the sequences."""
        batch = tuple(arrival(each) if isinstance(each, str) else each for each in arrivals)
        reply = self.ask(SendMessages(QUEUE, batch))
        assert isinstance(reply, Done), reply
        return reply.sequences

    def open(self, receiver: int, *, credit: int = 0, path: str = QUEUE, deletes: bool = False) -> None:
        mode = ReceiveMode.RECEIVE_AND_DELETE if deletes else ReceiveMode.PEEK_LOCK
        self.do(OpenReceiver(receiver, path, mode))
        if credit:
            self.do(Grant(receiver, credit))

    def receive(self, count_max: int = 1, *, path: str = QUEUE) -> list[Delivery]:
        """Receive under lock with a new receiver that asks for so many and leaves the rest."""
        receiver = self.last_receiver = 1_000 + next(self._numbers)
        self.take()
        self.open(receiver, credit=count_max, path=path)
        self.commit()
        return [each for each in self.deliveries() if each.receiver == receiver]

    def settle(
        self, outcome: SettlementOutcome, *deliveries: Delivery, path: str = QUEUE
    ) -> dict[bytes, NamespaceError]:
        """Settle and return the failures."""
        reply = self.ask(SettleMessages(path, tuple(token for each in deliveries if (token := each.token)), outcome))
        assert isinstance(reply, Settled), reply
        return reply.failures

    def peek(self, from_sequence: int = 0, most: int = 100, *, path: str = QUEUE) -> list[MessageRow]:
        reply = self.ask(PeekMessages(path, from_sequence, most))
        assert isinstance(reply, MessagesFound), reply
        return [lent.row for lent in reply.found]

    def receive_deferred(self, *sequences: int, deletes: bool = False, path: str = QUEUE) -> MessagesFound:
        mode = ReceiveMode.RECEIVE_AND_DELETE if deletes else ReceiveMode.PEEK_LOCK
        reply = self.ask(ReceiveDeferred(path, sequences, mode))
        assert isinstance(reply, MessagesFound), reply
        return reply

    @property
    def queue(self) -> Queue:
        return self.gate.machine.registry.find_queue(QUEUE)

    @property
    def dead_letters(self) -> Queue:
        return self.gate.machine.registry.find_queue(DEAD_LETTERS)


def names(found: list[Delivery] | list[MessageRow]) -> list[str | None]:
    return [each.row.message_id if isinstance(each, Delivery) else each.message_id for each in found]


def sequences_of(deliveries: list[Delivery]) -> Iterator[int]:
    return (each.row.sequence for each in deliveries)
