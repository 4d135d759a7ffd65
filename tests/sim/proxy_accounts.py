"""What must be true of messages behind a proxy, whatever fails: accounts of what applications and the disk do.

Each delivery, answer and change on disk is held against the accounts, then entered into them. The first that does not
fit ends the simulation with a `Violation`.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import Any, NamedTuple

from sim.invariants import check
from sim.proxy_history import History, Removed, Stored
from sim.proxy_loop import SimulatedLoop
from sim.proxy_servers import SimulatedNamespace
from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.broker.core.registry import DEAD_LETTER_SUFFIX
from twinbus.broker.links.request_messages import Request
from twinbus.broker.operations import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    ReceiveMode,
    Release,
    SettlementOutcome,
)
from twinbus.broker.store.api import MessageRow, MessageState
from twinbus.transport.links.requests import read_response

DELIVERIES_MAX = 4
"""So many failures make a dead letter."""
LOCK_LOST = ("com.microsoft:message-lock-lost", "com.microsoft:session-lock-lost")


class SentMessage:
    """A message as its application knows it."""

    def __init__(self, message_id: str, path: str, session_id: str | None, payload: bytes) -> None:
        self.message_id, self.path, self.session_id, self.payload = message_id, path, session_id, payload
        layout = sections.walk(payload)
        assert layout.body is not None
        self.body = payload[layout.body[0] : layout.body[1]]
        self.is_accepted = False
        self.may_go = self.may_die = self.may_defer = False
        """Somebody has asked that it be removed, made a dead letter, deferred."""
        self.deliveries: list[Delivery] = []


class Delivery:
    """A message in the hands of an application."""

    def __init__(self, message: SentMessage, path: str, token: bytes, payload: bytes, life: int) -> None:
        layout = sections.walk(payload)
        self.message, self.path, self.token, self.life = message, path, token, life
        self.sequence = int(_annotation(payload, layout, "x-opt-sequence-number"))
        self.until_ms = int(_annotation(payload, layout, "x-opt-locked-until"))
        """Locked at least until then, if nothing happens to the namespace."""
        self.failures = sections.read_header(payload, layout).delivery_count
        self.asked: SettlementOutcome | None = None
        """What the application said of it."""
        self.session_link: str | None = None
        """The link that has its session, if it is of one: with it ends the lock."""
        self.is_over = False
        """The application has settled it."""

    def __repr__(self) -> str:
        return f"{self.message.message_id}#{self.sequence}"


class LinkTerms(NamedTuple):
    """A receiver as its application asked for it."""

    path: str
    mode: ReceiveMode


def _annotation(payload: bytes, layout: Any, name: str) -> Any:
    return sections.read_annotation(payload, layout, name)


class Accounts:
    def __init__(
        self,
        loop: SimulatedLoop,
        primary: SimulatedNamespace,
        secondary: SimulatedNamespace,
        spool: History,
        seen: Counter[str],
    ) -> None:
        self.loop, self.seen = loop, seen
        self.messages: dict[str, SentMessage] = {}
        self.trace: deque[tuple[float, object, object]] = deque(maxlen=400)
        self.links: dict[str, LinkTerms] = {}
        """By name; no name is used twice."""
        self.responses: dict[tuple[str, str, bytes], list[tuple[Any, Any]]] = defaultdict(list)
        """What the primary responded, by entity, operation and body of the request."""
        self._primary = primary
        self._sent: dict[str, list[tuple[bytes | None, bytes]]] = defaultdict(list)
        """What the primary delivered, by link."""
        self._arrived: Counter[str] = Counter()
        self._lives: dict[bytes, int] = {}
        """By token, the life of the primary in which it was given: it may be read much later."""
        self.sent_on: dict[str, list[SentMessage]] = defaultdict(list)
        """By sender, in order."""
        self.doubts: Counter[str] = Counter()
        """By message, attempts of which the proxy has said that it does not know how they ended."""
        self.deferred: list[Delivery] = []
        """What can be received by its number, as far as applications were told."""
        self.scheduled: list[tuple[str, int, SentMessage]] = []
        """By entity and number, the same for what can be cancelled."""
        primary.on_delivery = self._delivered
        primary.on_response = self._responded
        primary.disk.on_removed = self._removed
        primary.disk.on_stored = self._stored
        self.backlog, self.spool = secondary.disk, spool
        self.backlog.on_removed = self._came_home
        self.spool.on_removed = self._left_spool

    @property
    def disk(self) -> History:
        return self._primary.disk

    @property
    def life(self) -> int:
        """Locks of one life of the namespace mean nothing in the next."""
        return self._primary.life

    def note(self, who: object, what: object) -> None:
        self.trace.append((self.loop.now, who, what))

    # --- messages ---

    def new_message(self, message_id: str, path: str, session_id: str | None, size: int) -> SentMessage:
        properties: dict[PropertyField, Any] = {PropertyField.MESSAGE_ID: message_id}
        if session_id is not None:
            properties[PropertyField.GROUP_ID] = session_id
        payload = encode_message(properties=properties, data=message_id.encode() + bytes(size))
        message = self.messages[message_id] = SentMessage(message_id, path, session_id, payload)
        return message

    def accept(self, message: SentMessage) -> None:
        """Its application is told that it is stored."""
        message.is_accepted = True
        self.seen["messages accepted"] += 1
        at_home, in_backlog, in_spool = (
            bool(disk.events[message.message_id]) for disk in (self.disk, self.backlog, self.spool)
        )
        check(at_home or in_backlog or in_spool, f"{message.message_id} was accepted and is not stored")
        self.seen["messages accepted by the backlog"] += in_backlog and not at_home
        self.seen["messages accepted by the spool"] += not at_home and not in_backlog

    # --- the disk ---

    def _stored(self, row: MessageRow, path: str) -> None:
        message = self.messages.get(row.message_id or "")
        check(message is not None, f"the primary stores {row.message_id}, which nobody sent")
        assert message is not None
        is_dead = path.lower().endswith(DEAD_LETTER_SUFFIX)
        if is_dead:
            is_due = message.may_die or row.delivery_count >= DELIVERIES_MAX
            check(is_due, f"{row.message_id} is a dead letter and nobody asked for that")
        if row.state is MessageState.DEFERRED:
            check(message.may_defer, f"{row.message_id} is deferred and nobody asked for that")
        layout = sections.walk(row.payload)
        assert layout.body is not None
        check(row.payload[layout.body[0] : layout.body[1]] == message.body, f"{row.message_id} has another body")

    def _removed(self, row: MessageRow, path: str) -> None:
        message = self.messages[row.message_id or ""]
        deleting = LinkTerms(path, ReceiveMode.RECEIVE_AND_DELETE)  # it is removed before it is delivered
        message.may_go |= deleting in self.links.values()
        check(message.may_go, f"{row.message_id} is gone from {path} and nobody asked for that")
        self.seen["messages removed"] += 1

    def _came_home(self, row: MessageRow, _path: str) -> None:
        check(bool(self.disk.events[row.message_id or ""]), f"{row.message_id} left the backlog and is not at home")
        self.seen["messages brought home"] += 1

    def _left_spool(self, row: MessageRow, _path: str) -> None:
        message_id = row.message_id or ""
        is_stored = self.disk.events[message_id] or self.backlog.events[message_id]
        check(bool(is_stored), f"{message_id} left the spool and is neither at home nor in the backlog")
        self.seen["messages brought home from the spool"] += 1

    def is_lost(self, message: SentMessage) -> bool:
        """Whether it was accepted and is nowhere, though nobody wanted it removed."""
        is_there = any(disk.holds(message.message_id) for disk in (self.disk, self.backlog, self.spool))
        return message.is_accepted and not message.may_go and not is_there

    def check_copies(self) -> None:
        """What never took the detour is stored once, and once more for each attempt in doubt."""
        for message_id in self.messages:
            copies, doubts = self.disk.copies[message_id], self.doubts[message_id]
            is_simple = not self.backlog.events[message_id] and not self.spool.events[message_id]
            check(not is_simple or copies <= 1 + doubts, f"{message_id} is there {copies} times, {doubts} in doubt")

    def check_order(self) -> None:
        """Without any trouble, messages of a sender are stored in the order in which they were sent."""
        for sender, messages in self.sent_on.items():
            first = [self.disk.events[each.message_id][0] for each in messages if each.is_accepted]
            numbers = [each.sequence for each in first]
            check(numbers == sorted(numbers), f"messages of {sender} are not in their order: {numbers[:20]}")
        self.seen["senders in order"] += len(self.sent_on)

    # --- deliveries ---

    def _delivered(self, link: str, token: bytes | None, payload: bytes) -> None:
        terms = self.links.get(link)
        check(terms is not None, f"the primary has a receiver {link!r} that no application asked for")
        assert terms is not None
        deletes = terms.mode is ReceiveMode.RECEIVE_AND_DELETE
        check((token is None) is deletes, f"{link} is not opened in the mode that was asked for")
        self._sent[link].append((token, payload))
        if token is not None:
            self._lives[token] = self.life

    def arrived(self, link: str, token: bytes, payload: bytes, *, settled: bool) -> Delivery | None:
        """An application gets a message on a link; None: it is settled already."""
        sent, number = self._sent[link], self._arrived[link]
        check(number < len(sent), f"{link} got a message that the primary did not deliver to it")
        expected, expected_payload = sent[number]
        self._arrived[link] += 1
        message = self.message_in(payload)
        check(payload == expected_payload, f"{link} got other bytes of {message.message_id}, or out of order")
        check(settled is (expected is None), f"{message.message_id} is settled for one end only")
        if expected is None:
            self.seen["received and deleted"] += 1
            return None
        check(token == expected, f"{message.message_id} has another tag than it had at the primary")
        return self.take(message, self.links[link].path, token, payload, link if message.session_id else None)

    def take(
        self, message: SentMessage, path: str, token: bytes, payload: bytes, session_link: str | None = None
    ) -> Delivery:
        """A message is lent to an application: nobody else may have it."""
        now_ms = self.loop.now_ms()
        delivery = Delivery(message, path, token, payload, self._lives[token])
        delivery.session_link = session_link
        is_late = delivery.until_ms <= now_ms or not self._is_held(delivery)
        for other in message.deliveries:
            check(other.token != token, f"{other} was delivered twice with the same lock")
            is_same = (other.path, other.sequence) == (path, delivery.sequence)
            is_over = not is_same or other.is_over or other.until_ms <= now_ms or not self._is_held(other)
            left_ms = other.until_ms - now_ms
            check(is_late or is_over, f"{delivery} is in two hands: the other has it for {left_ms} ms more")
        message.deliveries.append(delivery)
        self.seen["deliveries"] += 1
        self.seen["deliveries repeated"] += len(message.deliveries) > 1
        return delivery

    def _is_held(self, delivery: Delivery) -> bool:
        """Whether what its lock depends on is still there."""
        link = delivery.session_link
        return delivery.life == self.life and (link is None or self._primary.receiver(link) is not None)

    def message_in(self, payload: bytes) -> SentMessage:
        layout = sections.walk(payload)
        message_id = sections.read_property(payload, layout, PropertyField.MESSAGE_ID)
        message = self.messages.get(str(message_id))
        check(message is not None, f"nobody sent {message_id!r}")
        assert message is not None
        assert layout.body is not None
        check(payload[layout.body[0] : layout.body[1]] == message.body, f"{message_id} arrived with another body")
        return message

    def all_arrived(self, link: str) -> bool:
        """Whether the application has everything that the primary delivered to this link."""
        return self._arrived[link] == len(self._sent[link])

    def _responded(self, path: str, request: Request, payload: bytes) -> None:
        response = read_response(payload)
        operation = request.operation.removeprefix("com.microsoft:")
        self.responses[path, operation, encode(request.body)].append((response.code, response.body))
        found = response.body.get("messages", ()) if isinstance(response.body, dict) else ()
        self._lives |= {each["lock-token"].bytes_le: self.life for each in found if "lock-token" in each}

    # --- settlements ---

    def ask(self, delivery: Delivery, outcome: SettlementOutcome) -> None:
        """The application says what is to become of a message; from now on that may be true at any time."""
        message, delivery.asked = delivery.message, outcome
        delivery.is_over = True
        message.may_go |= isinstance(outcome, Complete)
        message.may_die |= isinstance(outcome, DeadLetter)
        message.may_defer |= isinstance(outcome, Defer)

    def confirmed(self, delivery: Delivery) -> None:
        """The application is told that it is done."""
        outcome = delivery.asked
        assert outcome is not None
        check(self.is_true(delivery, outcome), f"{type(outcome).__name__} of {delivery} was confirmed and is not true")
        self.seen[f"confirmed: {type(outcome).__name__}"] += 1

    def is_true(self, delivery: Delivery, outcome: SettlementOutcome) -> bool:
        """Whether the disk says so."""
        path, sequence = delivery.path.lower(), delivery.sequence
        events = self.disk.events[delivery.message.message_id]
        here = [each for each in events if each.path.lower() == path and each.sequence == sequence]
        dead = [each for each in events if each.path.lower() == path + DEAD_LETTER_SUFFIX]
        match outcome:
            case Complete():
                return any(isinstance(each, Removed) for each in here)
            case Defer():
                return any(isinstance(each, Stored) and each.state is MessageState.DEFERRED for each in here)
            case DeadLetter():
                return bool(dead)
            case Abandon():
                counts = [each.delivery_count for each in here if isinstance(each, Stored)]
                return bool(dead) or any(count > delivery.failures for count in counts)
            case Release():
                return True  # nothing of that is written

    def refused(self, delivery: Delivery, condition: str) -> None:
        """The application is told that it is not done."""
        self.seen[f"refused: {condition}"] += 1
        if condition in LOCK_LOST:
            is_lost = delivery.until_ms <= self.loop.now_ms() or not self._is_held(delivery)
            left_ms = delivery.until_ms - self.loop.now_ms()
            check(is_lost, f"the lock of {delivery} is said to be lost, and holds for {left_ms} ms more")

    # --- what the proxy records ---

    def delivered(self, path: str, payload: bytes, *, is_final: bool) -> object:
        """As `SettlementObserver`."""
        return payload

    def settled(self, path: str, messages: Any, outcome: SettlementOutcome) -> None:
        self.seen["settlements recorded"] += len(messages)
        for payload in messages:
            message = self.message_in(payload)
            asked = any(type(each.asked) is type(outcome) for each in message.deliveries)
            check(asked, f"{message.message_id} is recorded as settled, and nobody did")
