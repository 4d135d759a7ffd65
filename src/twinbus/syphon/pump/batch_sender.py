"""The pump's half towards the primary: which messages wait for which entity, batches out, outcomes in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from twinbus.amqp.codec.outcomes import Accepted, Outcome
from twinbus.errors import DecodeError, EnvelopeError
from twinbus.ledger.kinds import Kind
from twinbus.pairing.sending.encoded_messages import BATCH_MESSAGES_MAX, encode_batch
from twinbus.pairing.sending.error_class import ErrorClass, SendKind, classify
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.ledger_events import SyphonEventLog
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.progress import SyphonCounts
from twinbus.syphon.pump import dead_letter_reasons as reasons
from twinbus.syphon.pump.backlog_message import HeldMessage
from twinbus.syphon.pump.backlog_queue import SettlementKind
from twinbus.syphon.pump.destination import Batch, Destination, DestinationState
from twinbus.syphon.pump.effects import Alert, DropDestination, Effect, OpenDestination, SendBatch
from twinbus.syphon.pump.pace import Pace
from twinbus.transport.failures import failure_of_outcome

DESTINATIONS_MAX = 500
"""Links to the primary at a time; the service limits them too."""


class BatchSender:
    """Gets events, adds effects; see `pump`."""

    def __init__(self, options: SyphonOptions, now_ms: int, event_log: SyphonEventLog) -> None:
        self.options = options
        self.destinations: dict[str, Destination] = {}
        self.pace = Pace(options, now_ms)
        self.counts = SyphonCounts()
        self.event_log = event_log
        self._effects: list[Effect] = []
        self._numbers = count(1)
        self._alerted: set[tuple[str, str]] = set()

    # --- destinations ---

    def _new_destination(self, held: HeldMessage, now_ms: int) -> Destination | None:
        path = held.aliases.path
        problem = reasons.path_problem(path)
        if problem is not None:
            self._refuse(held, reasons.MALFORMED, problem, now_ms)
            return None
        if len(self.destinations) >= DESTINATIONS_MAX and not self._drop_an_idle_destination(now_ms):
            self._park(held, now_ms)
            return None
        destination = self.destinations[path] = self._make_destination(path)
        return destination

    def _make_destination(self, path: str) -> Destination:
        return Destination(path, self.options)

    def _drop_an_idle_destination(self, now_ms: int) -> bool:
        for path, destination in self.destinations.items():
            if not destination.has_messages and not destination.in_flight and not destination.is_resting(now_ms):
                del self.destinations[path]
                self._effects.append(DropDestination(path))
                return True
        return False

    def destination_opened(self, path: str, message_bytes: int, batch_bytes: int, credit: int) -> None:
        """There is a link to send on. `message_bytes` is the largest message it accepts; 0: unknown."""
        destination = self.destinations.get(path)
        if destination is not None:
            destination.opened(message_bytes, min(batch_bytes, self.options.batch_bytes_max), credit)

    def destination_failed(self, path: str, failure: Failure, now_ms: int) -> None:
        """The link could not be opened, or is lost; then everything in flight is in doubt."""
        destination = self.destinations.get(path)
        if destination is None:
            return
        if destination.is_unused:  # the service closes links that are idle for a while: not a failure
            destination.closed()
            return
        for batch in destination.take_in_flight():
            self.counts.in_doubt += len(batch.messages)
            self.event_log.record_sent(Kind.IN_DOUBT, batch, failure)
            self.pace.ended(len(batch.messages), moved=False)
            self._park_doubted(batch.messages, now_ms)
        self._rest(destination, failure, now_ms)

    def credit_changed(self, path: str, credit: int) -> None:
        destination = self.destinations.get(path)
        if destination is not None and destination.state is DestinationState.OPEN:
            destination.credit = credit

    # --- batches ---

    def _serve(self, destination: Destination, now_ms: int) -> None:
        if destination.wants_opening(now_ms):
            destination.state = DestinationState.OPENING
            self._effects.append(OpenDestination(destination.path))
        allowed = before = self.pace.allowance(now_ms)
        while allowed and destination.has_messages and destination.room():
            allowed -= self._send(destination, destination.take(min(allowed, BATCH_MESSAGES_MAX)), now_ms)
        if not allowed and before:  # it has used up what the pace allows: the others come first next time
            self.destinations[destination.path] = self.destinations.pop(destination.path)

    def _send(self, destination: Destination, messages: list[HeldMessage], now_ms: int) -> int:
        """Send those that may still go as one transfer; how many that were."""
        going: list[HeldMessage] = []
        payloads: list[bytes] = []
        for held in messages:
            payload = self._encode(held, destination, now_ms)
            if payload is not None:
                going.append(held)
                payloads.append(payload)
        if not going:
            return 0
        payload, message_format = encode_batch(payloads)
        number = next(self._numbers) & 0xFFFFFFFF
        destination.in_flight[number] = Batch(number, going, tuple(map(len, payloads)), now_ms)
        destination.credit -= 1
        self.pace.sent(len(going))
        self.counts.batches += 1
        self._effects.append(SendBatch(destination.path, number, payload, message_format))
        return len(going)

    def _encode(self, held: HeldMessage, destination: Destination, now_ms: int) -> bytes | None:
        """The message as it goes home; None if it does not, and why is then taken care of."""
        lock_batch = held.lock_batch
        if lock_batch.is_lost:
            return None
        if lock_batch.ends_ms <= now_ms:
            lock_batch.queue.release([held], self._effects)
            self.event_log.record_gone(Kind.LOCK_LOST, lock_batch.queue.index, [held.number], "the lock has ended")
            return None
        if held.is_expired(now_ms):
            self._refuse(held, reasons.EXPIRED, "its time to live ended in the backlog", now_ms)
            return None
        try:
            payload = self._payload(held, now_ms)
        except (EnvelopeError, DecodeError) as error:
            self._refuse(held, reasons.MALFORMED, str(error), now_ms)
            return None
        most = destination.message_bytes
        if most and len(payload) > most:
            text = f"{len(payload)} bytes, and {destination.path} accepts at most {most}"
            self._refuse(held, reasons.TOO_LARGE, text, now_ms)
            return None
        return payload

    def _payload(self, held: HeldMessage, now_ms: int) -> bytes:
        """What is sent of it. Raises `DecodeError` or `EnvelopeError`."""
        return held.encode_for_primary(now_ms)

    def batches_settled(self, path: str, numbers: Sequence[int], outcome: Outcome | None, now_ms: int) -> None:
        destination = self.destinations.get(path)
        if destination is None:
            return
        for number in numbers:
            batch = destination.in_flight.pop(number, None)
            if batch is None:
                continue
            if isinstance(outcome, Accepted):
                self._stored(destination, batch)
            else:
                self._not_stored(destination, batch, failure_of_outcome(outcome), now_ms)

    def _stored(self, destination: Destination, batch: Batch) -> None:
        self._record_stored(destination, batch)
        for held in batch.messages:
            lock_batch = held.lock_batch
            if lock_batch.is_lost:
                self.counts.repeated += 1
            else:
                lock_batch.messages.pop(held.number, None)
                lock_batch.queue.stored.append(held.number)
        self.counts.stored += len(batch.messages)
        self.counts.moved_bytes += batch.size
        self.pace.ended(len(batch.messages), moved=True)
        if destination.state is DestinationState.OPEN and destination.succeeded():
            self.alert("destination_up", destination.path, "accepts messages again")
            self.event_log.record_destination_back(destination.path)

    def _record_stored(self, _destination: Destination, batch: Batch) -> None:
        self.event_log.record_sent(Kind.SENT_HOME, batch)

    def _not_stored(self, destination: Destination, batch: Batch, failure: Failure, now_ms: int) -> None:
        self.pace.ended(len(batch.messages), moved=False)
        self.event_log.record_sent(Kind.ATTEMPT_FAILED, batch, failure)
        if classify(failure, SendKind.SYPHON) is not ErrorClass.RAISE:
            self._rest(destination, failure, now_ms)
            self._park_all(batch.messages, now_ms)
        elif len(batch.messages) > 1:
            self._send_singly(destination, batch.messages)
        else:
            reason = reasons.TOO_LARGE if failure.kind is FailureKind.TOO_LARGE else reasons.REFUSED
            self._refuse(batch.messages[0], reason, f"{destination.path} refused it: {failure}", now_ms)

    def _send_singly(self, destination: Destination, messages: list[HeldMessage]) -> None:
        """One of these messages is refused for good: each is to be sent alone."""
        destination.suspects.extend(messages)

    def _rest(self, destination: Destination, failure: Failure, now_ms: int) -> None:
        was_up = destination.failure is None
        destination.rest(failure, classify(failure, SendKind.SYPHON), now_ms)
        self._park_all(destination.take_all(), now_ms)
        self.event_log.record_destination_skipped(destination.path, failure, destination.rest_until_ms)
        if was_up:
            self.alert("destination_down", destination.path, str(failure))

    # --- messages that do not go home now ---

    def _park_all(self, messages: Sequence[HeldMessage], now_ms: int) -> None:
        for held in messages:
            if not held.lock_batch.is_lost:
                self._park(held, now_ms)

    def _park_doubted(self, messages: Sequence[HeldMessage], now_ms: int) -> None:
        """The same for messages that were sent, and may be stored."""
        self._park_all(messages, now_ms)

    def _park(self, held: HeldMessage, now_ms: int) -> None:
        """Hold a message until the sweep is over, then release it."""
        held.lock_batch.queue.park(held, now_ms)

    def _refuse(self, held: HeldMessage, reason: str, text: str, now_ms: int) -> None:
        if held.lock_batch.is_lost:
            return
        queue = held.lock_batch.queue
        kind = SettlementKind.EXPIRED if reason == reasons.EXPIRED else SettlementKind.REFUSED
        self._effects.append(queue.dead_letter(held, kind, reason, text, now_ms))
        if kind is SettlementKind.REFUSED:
            self._alert_once("quarantined", held.aliases.path or queue.path, f"{reason}: {text}")

    def _alert_once(self, name: str, subject: str, text: str) -> None:
        if (name, subject) not in self._alerted and len(self._alerted) < DESTINATIONS_MAX:
            self._alerted.add((name, subject))
            self.alert(name, subject, text)

    def alert(self, name: str, subject: str, text: str) -> None:
        self._effects.append(Alert(name, subject, text))
