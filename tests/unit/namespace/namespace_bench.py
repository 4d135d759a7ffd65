"""A namespace on the bench: the machine and the seam over a store whose commits the test lets happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from twinbus.amqp import sections
from twinbus.amqp.sections import Header, PropertyField
from twinbus.amqp.types import Timestamp
from twinbus.errors import NamespaceError
from twinbus.namespace.commands import (
    Command,
    CreateQueue,
    Grant,
    OpenReceiver,
    Peek,
    ReceiveDeferred,
    ReceiveMode,
    Send,
    Settle,
    Tick,
    Verdict,
)
from twinbus.namespace.entities.queue import Queue
from twinbus.namespace.entities.settings import QueueSettings
from twinbus.namespace.entities.window import WindowLimits
from twinbus.namespace.happenings import Story
from twinbus.namespace.machine import NamespaceMachine
from twinbus.namespace.message import SCHEDULED_TIME, Arrival, read_arrival
from twinbus.namespace.replies import WORK_PER_STEP, Delivery, Done, MessagesFound, Refused, Reply, Settled
from twinbus.namespace.seam import CommitSeam
from twinbus.namespace.store.api import MessageRow, MessageState, Report, StoredNamespace
from twinbus.namespace.store.memory import MemoryStore

QUEUE = "orders"
DEAD_LETTERS = "orders/$deadletterqueue"
START_MS = 1_000_000
SECOND_MS = 1_000


def arrival(name: str, *, ttl_ms: int | None = None, due_at_ms: int | None = None, body: bytes = b"body") -> Arrival:
    """A message at the door; `name` is its message-id."""
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


class Bench:
    def __init__(
        self,
        settings: QueueSettings | None = None,
        limits: WindowLimits | None = None,
        tell: Callable[[Story], None] | None = None,
        work_per_step: int = WORK_PER_STEP,
    ) -> None:
        self._work_per_step = work_per_step
        self._tell = tell
        self.delays: dict[str, int] = {}
        """How long copies for a subscription, by its path in lower case, are held back."""
        self.now_ms = START_MS
        self.store = MemoryStore(by_hand=True)
        self.replies: list[Reply] = []
        self.failures: list[str] = []
        self._limits = limits
        self._tokens = count(1)
        self._origins = count(1)
        self._taken = 0
        self.last_receiver = 0
        self._reports = 0
        self.seam = CommitSeam(self.store, self._build, self.replies.append, self.failures.append, self._tell)
        self.store.start(self._report)
        self.do(CreateQueue(QUEUE, settings or QueueSettings()))
        self.commit()
        self.take()

    def _build(self, stored: StoredNamespace) -> NamespaceMachine:
        return NamespaceMachine(
            stored,
            new_token=lambda: next(self._tokens).to_bytes(16, "big"),
            window_limits=self._limits,
            tells=self._tell is not None,
            copy_delays=lambda now_ms: (lambda path: self.delays.get(path.lower(), 0)) if self.delays else None,
            work_per_step=self._work_per_step,
        )

    def _report(self, report: Report) -> None:
        self._reports += 1
        self.seam.report(report, self.now_ms)

    # --- what happens ---

    def do(self, command: Command) -> None:
        self.seam.do(command, self.now_ms)

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
        while (wake_ms := self.seam.next_wake_ms()) is not None and wake_ms <= self.now_ms:
            self.do(Tick())
            self.commit()

    def restart(self) -> None:
        """The process ends without warning; what is not committed is gone."""
        self.seam = CommitSeam(self.store, self._build, self.replies.append, self.failures.append, self._tell)

    # --- what was said ---

    def take(self) -> list[Reply]:
        """The replies since the last time."""
        taken, self._taken = self.replies[self._taken :], len(self.replies)
        return taken

    def deliveries(self) -> list[Delivery]:
        return [reply for reply in self.take() if isinstance(reply, Delivery)]

    def ask(self, command: Command) -> Reply:
        """Carry a command out, commit, and return its answer."""
        origin = next(self._origins)
        self.do(command._replace(origin=origin))  # type: ignore[call-arg]
        self.commit()
        return next(reply for reply in self.replies if getattr(reply, "origin", None) == origin)

    def refusal(self, command: Command) -> NamespaceError:
        reply = self.ask(command)
        assert isinstance(reply, Refused), reply
        return reply.error

    # --- shorthand ---

    def send(self, *arrivals: Arrival | str) -> tuple[int, ...]:
        """Send one batch and return the sequences."""
        batch = tuple(arrival(each) if isinstance(each, str) else each for each in arrivals)
        reply = self.ask(Send(QUEUE, batch))
        assert isinstance(reply, Done), reply
        return reply.sequences

    def open(self, receiver: int, *, credit: int = 0, path: str = QUEUE, deletes: bool = False) -> None:
        mode = ReceiveMode.RECEIVE_AND_DELETE if deletes else ReceiveMode.PEEK_LOCK
        self.do(OpenReceiver(receiver, path, mode))
        if credit:
            self.do(Grant(receiver, credit))

    def receive(self, count_max: int = 1, *, path: str = QUEUE) -> list[Delivery]:
        """Receive under lock with a new receiver that asks for so many and leaves the rest."""
        receiver = self.last_receiver = 1_000 + next(self._origins)
        self.take()
        self.open(receiver, credit=count_max, path=path)
        self.commit()
        return [each for each in self.deliveries() if each.receiver == receiver]

    def settle(self, verdict: Verdict, *deliveries: Delivery, path: str = QUEUE) -> dict[bytes, NamespaceError]:
        """Settle and return the failures."""
        reply = self.ask(Settle(path, tuple(token for each in deliveries if (token := each.token)), verdict))
        assert isinstance(reply, Settled), reply
        return reply.failures

    def peek(self, from_sequence: int = 0, most: int = 100, *, path: str = QUEUE) -> list[MessageRow]:
        reply = self.ask(Peek(path, from_sequence, most))
        assert isinstance(reply, MessagesFound), reply
        return [lent.row for lent in reply.found]

    def receive_deferred(self, *sequences: int, deletes: bool = False, path: str = QUEUE) -> MessagesFound:
        mode = ReceiveMode.RECEIVE_AND_DELETE if deletes else ReceiveMode.PEEK_LOCK
        reply = self.ask(ReceiveDeferred(path, sequences, mode))
        assert isinstance(reply, MessagesFound), reply
        return reply

    @property
    def queue(self) -> Queue:
        return self.seam.machine.registry.find_queue(QUEUE)

    @property
    def dead_letters(self) -> Queue:
        return self.seam.machine.registry.find_queue(DEAD_LETTERS)


def names(found: list[Delivery] | list[MessageRow]) -> list[str | None]:
    return [each.row.message_id if isinstance(each, Delivery) else each.message_id for each in found]


def sequences_of(deliveries: list[Delivery]) -> Iterator[int]:
    return (each.row.sequence for each in deliveries)
