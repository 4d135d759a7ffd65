"""A pump between lists that stand for backlog queues and destinations, with a clock that the test moves."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from twinbus.amqp.codec.outcomes import ACCEPTED, RELEASED, Accepted, Error, Outcome, Rejected, Released
from twinbus.amqp.codec.types import Long, Timestamp
from twinbus.amqp.events import TransferArrived
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Header, PropertyField
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.serial import SERIAL_MASK
from twinbus.pairing.backlog.envelope import address
from twinbus.pairing.sending.encoded_messages import BATCH_FORMAT
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
from twinbus.syphon.pump.pump import Pump
from twinbus.transport.failures import failure_of

START_MS = 1_800_000_000_000
LOCK_MS = 60_000


def plain(message_id: str, body: bytes = b"x", **parts: Any) -> bytes:
    """A message as an application sends it."""
    properties = {PropertyField.MESSAGE_ID: message_id, **parts.pop("properties", {})}
    return sections.encode_message(properties=properties, data=body, **parts)


def backlogged(path: str, message_id: str, body: bytes = b"x", **parts: Any) -> bytes:
    """The same as it lies in a backlog queue."""
    return address(plain(message_id, body, **parts), path)


def delivered(stored: bytes, sequence: int, enqueued_ms: int, locked_until_ms: int) -> bytes:
    """The same as the secondary delivers it."""
    annotations = {
        "x-opt-sequence-number": Long(sequence),
        "x-opt-enqueued-time": Timestamp(enqueued_ms),
        "x-opt-locked-until": Timestamp(locked_until_ms),
    }
    return sections.rewrite(stored, set_annotations=annotations)


def transfer(delivery_id: int, payload: bytes) -> TransferArrived:
    tag = delivery_id.to_bytes(16, "big")
    return TransferArrived(cast("ReceivingLink", None), delivery_id, tag, 0, False, payload)


def id_of(message: bytes) -> str:
    return str(sections.read_property(message, sections.walk(message), PropertyField.MESSAGE_ID))


def messages_in(send: SendBatch) -> list[bytes]:
    """The messages of a transfer."""
    if send.message_format != BATCH_FORMAT:
        return [send.payload]
    return list(sections.data_sections(send.payload, sections.walk(send.payload)))


class FakeQueue:
    """A backlog queue: waiting messages, those it has lent, and its dead letters."""

    def __init__(self, first_id: int) -> None:
        self.waiting: deque[tuple[bytes, int]] = deque()
        self.lent: dict[int, tuple[bytes, int]] = {}
        self.dead: list[tuple[bytes, dict[str, Any]]] = []
        self.credit = 0
        self.next_id = first_id
        self.grants = 0

    def lend(self, now_ms: int) -> list[TransferArrived]:
        """`now_ms` is on the secondary's clock."""
        transfers = []
        while self.waiting and self.credit:
            stored, enqueued_ms = self.waiting.popleft()
            delivery_id, self.next_id = self.next_id, (self.next_id + 1) & SERIAL_MASK
            self.lent[delivery_id] = (stored, enqueued_ms)
            self.credit -= 1
            payload = delivered(stored, delivery_id, enqueued_ms, now_ms + LOCK_MS)
            transfers.append(transfer(delivery_id, payload))
        return transfers

    def settle(self, settle: SettleDeliveries) -> list[int]:
        count = (settle.last - settle.first) & SERIAL_MASK
        ids = [(settle.first + step) & SERIAL_MASK for step in range(count + 1)]
        back = []
        for delivery_id in ids:
            entry = self.lent.pop(delivery_id)
            if isinstance(settle.outcome, Released):
                back.append(entry)
            elif isinstance(settle.outcome, Rejected):
                assert settle.outcome.error is not None
                notes = settle.outcome.error.info or {}
                self.dead.append((entry[0], {str(key): value for key, value in notes.items()}))
        self.waiting.extendleft(reversed(back))
        return ids


class PumpHarness:
    """Everything the pump wants is done at once and answered as the fields say."""

    def __init__(self, queues: int = 1, first_id: int = 1, **options: Any) -> None:
        self.now_ms = START_MS
        self.pump = self.make_pump([f"q/{index}" for index in range(queues)], SyphonOptions(**options))
        self.queues = [FakeQueue(first_id) for _ in range(queues)]
        self.home: dict[str, list[bytes]] = {}
        self.sends: list[SendBatch] = []
        self.alerts: list[Alert] = []
        self.renewals: list[RenewBacklogLocks] = []
        self.dropped: list[str] = []
        self.reopened: list[int] = []
        self.opened: list[str] = []
        self.completed: set[tuple[int, int]] = set()
        self.broken: dict[str, Error] = {}
        """Destination -> what it answers to everything."""
        self.refused_ids: dict[str, Error] = {}
        """Message id -> what a batch with it is answered."""
        self.unlinkable: set[str] = set()
        self.silent: set[str] = set()
        self.unanswered: list[SendBatch] = []
        self.largest = 256 * 1024
        self.are_locks_lost = False
        self.ahead_ms = 0
        """How far the secondary's clock is ahead of the pump's."""
        self.slow: set[str] = set()
        """Destinations whose link does not open before `open_slow_ones`."""
        for index in range(queues):
            self.pump.queue_attached(index, self.now_ms)

    def make_pump(self, paths: list[str], options: SyphonOptions) -> Pump:
        return Pump(paths, options, self.now_ms)

    def put(
        self, path: str, message_id: str, body: bytes = b"x", *, queue: int = 0, age_ms: int = 0, **parts: Any
    ) -> None:
        self.put_raw(backlogged(path, message_id, body, **parts), queue, age_ms)

    def put_raw(self, stored: bytes, queue: int = 0, age_ms: int = 0) -> None:
        self.queues[queue].waiting.append((stored, self.now_ms + self.ahead_ms - age_ms))

    def open_slow_ones(self) -> None:
        slow, self.slow = self.slow, set()
        for path in slow & set(self.opened):
            self._open(path)

    def run(self, seconds: float = 0.0) -> None:
        """Let everything happen that happens by itself, for a while."""
        end_ms = self.now_ms + round(seconds * 1000)
        self.settle_down()
        while (due_ms := max(self.now_ms + 1, self.pump.next_ms(self.now_ms))) <= end_ms:
            self.now_ms = due_ms
            self.pump.tick(self.now_ms)
            self.settle_down()
        self.now_ms = end_ms

    def settle_down(self) -> None:
        for _ in range(10_000):
            effects = self.pump.take_effects(self.now_ms)
            for effect in effects:
                carry_out(effect, self, self, self.alerts.append)
            if not self._deliver() and not effects:
                return
        raise AssertionError("the pump goes round in circles")

    def _deliver(self) -> bool:
        has_delivered = False
        for index, queue in enumerate(self.queues):
            transfers = queue.lend(self.now_ms + self.ahead_ms)
            if transfers:
                self.pump.messages_arrived(index, transfers, self.now_ms)
                has_delivered = True
        return has_delivered

    # --- effects of the pump ---

    def grant(self, effect: GrantCredit) -> None:
        queue = self.queues[effect.queue]
        queue.credit = effect.credit
        queue.grants += effect.credit > 0

    def settle(self, effect: SettleDeliveries) -> None:
        self._settle(effect.queue, effect)

    def send(self, effect: SendBatch) -> None:
        self.sends.append(effect)
        if effect.path in self.silent:
            self.unanswered.append(effect)
        else:
            self.pump.batches_settled(effect.path, [effect.number], self._receive(effect), self.now_ms)

    def renew_locks(self, effect: RenewBacklogLocks) -> None:
        self.renewals.append(effect)

    def drop_destination(self, path: str) -> None:
        self.dropped.append(path)

    def reopen(self, effect: ReopenQueue) -> None:
        self.reopened.append(effect.queue)

    def peek(self, effect: PeekQueue) -> None:
        raise AssertionError(f"only an ordered pump peeks: {effect}")

    def open_destination(self, path: str) -> None:
        self._open(path)

    def _settle(self, index: int, settle: SettleDeliveries) -> None:
        if self.are_locks_lost and isinstance(settle.outcome, Accepted):
            count = (settle.last - settle.first) & SERIAL_MASK
            ids = [(settle.first + step) & SERIAL_MASK for step in range(count + 1)]
            lost = Rejected(Error("com.microsoft:message-lock-lost", "gone"))
            self.pump.deliveries_settled(index, ids, lost, self.now_ms)
            return
        ids = self.queues[index].settle(settle)
        if settle.outcome == ACCEPTED:
            self.completed |= {(index, delivery_id) for delivery_id in ids}
        if settle.outcome != RELEASED:
            answer: Outcome = Rejected() if isinstance(settle.outcome, Rejected) else settle.outcome
            self.pump.deliveries_settled(index, ids, answer, self.now_ms)

    def _open(self, path: str) -> None:
        self.opened.append(path)
        if path in self.slow:
            return
        if path in self.unlinkable:
            error = Error("amqp:not-found", f"The messaging entity {path} could not be found.")
            self.pump.destination_failed(path, failure_of(error), self.now_ms)
        else:
            self.pump.destination_opened(path, self.largest, self.largest, 1_000)

    def _receive(self, send: SendBatch) -> Outcome:
        messages = messages_in(send)
        error = self.broken.get(send.path) or next(
            (self.refused_ids[id_of(each)] for each in messages if id_of(each) in self.refused_ids), None
        )
        if error is not None:
            return Rejected(error)
        self.home.setdefault(send.path, []).extend(messages)
        return ACCEPTED

    def ids_at(self, path: str) -> list[str]:
        return [id_of(message) for message in self.home.get(path, [])]

    @property
    def left(self) -> int:
        return sum(len(queue.waiting) + len(queue.lent) for queue in self.queues)


def header_ttl(message: bytes) -> int | None:
    return sections.read_header(message, sections.walk(message)).ttl_ms


def with_ttl(ttl_ms: int) -> dict[str, Any]:
    return {"header": Header(ttl_ms=ttl_ms)}
