"""An ordered pump between a backlog queue with locks and destinations that fail on demand; the clock turns by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from twinbus.amqp.codec.outcomes import ACCEPTED, Accepted, Error, Outcome, Rejected, Released
from twinbus.amqp.codec.types import Long, Timestamp
from twinbus.amqp.events import TransferArrived
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.pairing.backlog.envelope import address
from twinbus.pairing.backlog.ordering import DepartedMessage
from twinbus.pairing.sending.encoded_messages import BATCH_FORMAT
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump.effects import (
    Alert,
    GrantCredit,
    PeekQueue,
    RenewBacklogLocks,
    ReopenQueue,
    SendBatch,
    SettleDeliveries,
    carry_out,
)
from twinbus.syphon.pump.ordered_pump import OrderedPump

START_MS = 1_800_000_000_000
LOCK_MS = 60_000
BUSY = Error("com.microsoft:server-busy", "slow down")
REFUSED = Error("com.microsoft:argument-error", "never")


def session_message(path: str, session_id: str | None, message_id: str, size: int = 1) -> bytes:
    """A message as it lies in a backlog queue."""
    properties = {PropertyField.MESSAGE_ID: message_id}
    if session_id is not None:
        properties[PropertyField.GROUP_ID] = session_id
    return address(sections.encode_message(properties=properties, data=b"x" * size), path)


def messages_in(send: SendBatch) -> list[bytes]:
    if send.message_format != BATCH_FORMAT:
        return [send.payload]
    return list(sections.data_sections(send.payload, sections.walk(send.payload)))


def name_of(message: bytes) -> tuple[str | None, str]:
    """Session id and message id of a message at home."""
    fields = (int(PropertyField.GROUP_ID), int(PropertyField.MESSAGE_ID))
    session_id, message_id = sections.read_properties(message, sections.walk(message), fields)
    return None if session_id is None else str(session_id), str(message_id)


@dataclass
class Stored:
    payload: bytes
    locked_until_ms: int = 0
    delivery_id: int | None = None


class RecordingObserver:
    """Keeps everything that it is told."""

    def __init__(self) -> None:
        self.messages: list[DepartedMessage] = []
        self.times_empty = 0
        self.is_waiting = False

    def queue_added(self, index: int) -> None:
        raise AssertionError(f"nobody looks for queues here, but found {index}")

    def waits_for(self, queue: int) -> bool:
        assert queue == 0
        return self.is_waiting

    def left_backlog(self, queue: int, messages: list[DepartedMessage]) -> None:
        assert queue == 0
        self.messages += messages

    def empty_check_started(self, queue: int) -> int:
        return queue

    def seen_empty(self, queue: int, look: int) -> None:
        assert queue == look == 0
        self.times_empty += 1


class OrderedPumpHarness:
    """One backlog queue; everything the pump wants is done at once, unless the test makes it fail."""

    def __init__(self, **options: Any) -> None:
        self.now_ms = START_MS
        self.stored: dict[int, Stored] = {}
        self.dead: list[int] = []
        self.home: dict[str, list[tuple[str | None, str]]] = {}
        self.observer = RecordingObserver()
        self.looks = 0
        self.credit = 0
        self.next_sequence = 1
        self.next_delivery = 1
        self.is_linked = False
        self.replies: dict[str, Callable[[list[bytes]], Outcome | str]] = {}
        """What a destination says to a batch: an outcome, "lost", "silent" (stored, but not heard of), "later"."""
        self.alerts: list[Alert] = []
        self.later: list[SendBatch] = []
        """Batches that wait for their answer."""
        self.are_locks_renewed = True
        options_ = SyphonOptions(order="session", **options)
        self.pump = OrderedPump(["q/0"], options_, self.now_ms, observer=self.observer)
        self.attach()

    # --- the backlog queue ---

    def put(self, path: str, session_id: str | None, message_id: str, size: int = 1) -> int:
        sequence, self.next_sequence = self.next_sequence, self.next_sequence + 1
        self.stored[sequence] = Stored(session_message(path, session_id, message_id, size))
        return sequence

    def attach(self) -> None:
        self.is_linked, self.credit = True, 0
        self.pump.queue_attached(0, self.now_ms)

    def lose_link(self, *, frees_locks: bool = False) -> None:
        self.is_linked = False
        for stored in self.stored.values():
            stored.delivery_id = None
            stored.locked_until_ms = 0 if frees_locks else stored.locked_until_ms
        self.pump.queue_lost(0)

    def lock_strangely(self, count: int) -> None:
        """Somebody else takes the first messages that are free, and dies."""
        free = [sequence for sequence in sorted(self.stored) if self.stored[sequence].locked_until_ms <= self.now_ms]
        for sequence in free[:count]:
            self.stored[sequence].locked_until_ms = self.now_ms + LOCK_MS
            self.stored[sequence].delivery_id = None

    def _deliver(self) -> bool:
        transfers = []
        for sequence in sorted(self.stored):
            stored = self.stored[sequence]
            if not self.is_linked or not self.credit or stored.locked_until_ms > self.now_ms:
                continue
            self.credit -= 1
            stored.locked_until_ms = self.now_ms + LOCK_MS
            stored.delivery_id, self.next_delivery = self.next_delivery, self.next_delivery + 1
            transfers.append(self._transfer(sequence, stored))
        if transfers:
            self.pump.messages_arrived(0, transfers, self.now_ms)
        return bool(transfers)

    def _transfer(self, sequence: int, stored: Stored) -> TransferArrived:
        annotations = {
            "x-opt-sequence-number": Long(sequence),
            "x-opt-enqueued-time": Timestamp(START_MS),
            "x-opt-locked-until": Timestamp(stored.locked_until_ms),
        }
        payload = sections.rewrite(stored.payload, set_annotations=annotations)
        assert stored.delivery_id is not None
        tag = stored.delivery_id.to_bytes(16, "big")
        return TransferArrived(cast("ReceivingLink", None), stored.delivery_id, tag, 0, False, payload)

    def _settle(self, settle: SettleDeliveries) -> None:
        found = {stored.delivery_id: sequence for sequence, stored in self.stored.items()}
        for delivery_id in range(settle.first, settle.last + 1):
            sequence = found.get(delivery_id)
            has_lock = sequence is not None and self.stored[sequence].locked_until_ms > self.now_ms
            if isinstance(settle.outcome, Released):
                if sequence is not None and has_lock:
                    self.stored[sequence].locked_until_ms, self.stored[sequence].delivery_id = 0, None
                continue
            answer: Outcome = ACCEPTED if isinstance(settle.outcome, Accepted) else Rejected()
            if sequence is None or not has_lock:
                answer = Rejected(Error("com.microsoft:message-lock-lost", "gone"))
            else:
                del self.stored[sequence]
                if not isinstance(settle.outcome, Accepted):
                    self.dead.append(sequence)
            self.pump.deliveries_settled(0, [delivery_id], answer, self.now_ms)

    # --- the world goes on ---

    def run(self, seconds: float = 0.0) -> None:
        end_ms = self.now_ms + round(seconds * 1000)
        self.settle_down()
        while (due_ms := self._next_ms()) <= end_ms:
            self.now_ms = due_ms
            self.pump.tick(self.now_ms)
            self.settle_down()
        self.now_ms = end_ms

    def _next_ms(self) -> int:
        """When the pump wants to do something, or a lock ends."""
        ends = [each.locked_until_ms for each in self.stored.values() if each.locked_until_ms > self.now_ms]
        return min([max(self.now_ms + 1, self.pump.next_ms(self.now_ms)), *ends])

    def settle_down(self) -> None:
        for _ in range(10_000):
            effects = self.pump.take_effects(self.now_ms)
            for effect in effects:
                carry_out(effect, self, self, self.alerts.append)
            if not self._deliver() and not effects:
                return
        raise AssertionError("the pump goes round in circles")

    # --- effects of the pump ---

    def grant(self, effect: GrantCredit) -> None:
        self.credit = effect.credit

    def settle(self, effect: SettleDeliveries) -> None:
        if self.is_linked:
            self._settle(effect)

    def open_destination(self, path: str) -> None:
        self.pump.destination_opened(path, 0, 256 * 1024, 1_000)

    def drop_destination(self, path: str) -> None:
        pass

    def send(self, effect: SendBatch) -> None:
        say = self.replies.get(effect.path)
        self._reply(effect, ACCEPTED if say is None else say(messages_in(effect)))

    def peek(self, effect: PeekQueue) -> None:
        self.looks += 1
        asked = effect.from_sequence
        found = sorted(sequence for sequence in self.stored if sequence >= asked)[: effect.most]
        seen_to = found[-1] if found else None
        self.pump.queue_peeked(0, effect.generation, asked, found, seen_to, self.now_ms)

    def reopen(self, effect: ReopenQueue) -> None:
        self.lose_link()
        self.attach()

    def renew_locks(self, effect: RenewBacklogLocks) -> None:
        if not self.are_locks_renewed:
            lost = Failure(FailureKind.INTERNAL, "gone", "com.microsoft:message-lock-lost")
            self.pump.locks_renewed(effect.lock_batch, lost, self.now_ms, self.now_ms)
            return
        tokens = {int.from_bytes(held.token, "big") for held in effect.lock_batch.messages.values()}
        for stored in self.stored.values():
            if stored.delivery_id in tokens:
                stored.locked_until_ms = self.now_ms + LOCK_MS
        self.pump.locks_renewed(effect.lock_batch, None, self.now_ms, self.now_ms)

    def answer(self, place: int, reply: Outcome | str) -> None:
        """What a destination says at last; nobody may be listening any more."""
        self._reply(self.later.pop(place), reply)

    def _reply(self, send: SendBatch, reply: Outcome | str) -> None:
        messages = messages_in(send)
        if reply == "later":
            self.later.append(send)
            return
        if reply in ("silent", ACCEPTED):
            self.home.setdefault(send.path, []).extend(map(name_of, messages))
        if not isinstance(reply, str):
            self.pump.batches_settled(send.path, [send.number], reply, self.now_ms)

    def first_copies(self, path: str, session_id: str | None) -> list[str]:
        """The messages of a key at home, each where it came first."""
        return list(dict.fromkeys(name for session, name in self.home.get(path, []) if session == session_id))
