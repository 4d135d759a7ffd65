"""Requests of a simulated application to `$management`: peeks, renewals, states, deferred and scheduled messages."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from sim.invariants import check
from sim.proxy_accounts import Delivery, SentMessage
from twinbus.amqp.codec.encoding import Array, encode
from twinbus.amqp.codec.outcomes import ACCEPTED, Error
from twinbus.amqp.codec.types import Int, Long, Timestamp, UInt, ULong
from twinbus.amqp.events import TransferArrived
from twinbus.amqp.link import Link
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.amqp.session import Session
from twinbus.broker.operations import Abandon, Complete, DeadLetter, Defer, SettlementOutcome
from twinbus.transport.links.requests import Response, read_response

if TYPE_CHECKING:
    from sim.proxy_application import Application

_UUID, _LONG = 0x98, 0x81
STATUSES: dict[str, SettlementOutcome] = {
    "completed": Complete(),
    "abandoned": Abandon(),
    "defered": Defer(),
    "suspended": DeadLetter(),
}
UNAVAILABLE = (408, 500, 503)
"""The primary is away, or cannot say: the request may have been carried out."""
OWN_ANSWERS = ("amqp:not-allowed",)
"""What the proxy says by itself: what lies in a backlog cannot be cancelled."""


class Asked:
    def __init__(
        self, path: str, operation: str, body: dict[str, Any], on_response: Callable[[Response], None]
    ) -> None:
        self.key = (path, operation, encode(body))
        self.operation = operation
        self.on_response = on_response


class AppRequests:
    """The two links to one node."""

    def __init__(self, app: Application, session: Session, path: str) -> None:
        self.app, self.path = app, path
        self.accounts, self.random = app.accounts, app.random
        self.name = app.new_name("m")
        self.asked_at = app.loop.now
        address = f"{path}/$management"
        self._answers = session.attach_receiver(f"{self.name}-in", address, target=self.name)
        self._asks = session.attach_sender(f"{self.name}-out", address, source=self.name)
        self._answers.context = self._asks.context = self
        self._answers.grant(100)
        self._numbers = count(1)
        self.waiting: dict[Any, Asked] = {}
        self.is_gone = False

    @property
    def is_attached(self) -> bool:
        return self._answers.attached and self._asks.attached

    def __repr__(self) -> str:
        return self.name

    # --- links ---

    def attached(self) -> None: ...

    def ended(self, error: Error | None, *, is_refusal: bool) -> None:
        self.app.note(f"{self.name} ended: {error}")
        self.app.seen["request links ended"] += 1
        self.gone()

    def gone(self) -> None:
        self.is_gone = True
        self.waiting.clear()
        self.app.forget(self)
        for link in (self._answers, self._asks):
            link.context = None
            link.detach()

    def credit(self, _link: Link) -> None: ...

    def answered(self, _event: object) -> None: ...

    # --- requests ---

    def ask(self, operation: str, body: dict[str, Any], on_response: Callable[[Response], None]) -> None:
        if not self.is_attached or not self._asks.credit:
            return
        number = next(self._numbers)
        kinds = (f"{self.name}:{number}", uuid.UUID(int=self.random.getrandbits(128)), ULong(number))
        message_id = self.random.choice(kinds)
        self.waiting[message_id] = Asked(self.path, operation, body, on_response)
        payload = encode_message(
            properties={PropertyField.MESSAGE_ID: message_id, PropertyField.REPLY_TO: self.name},
            application_properties={"operation": f"com.microsoft:{operation}"},
            value=body,
        )
        self.app.note(f"asks {operation} of {self.path}: {body!r:.100}")
        self._asks.send(payload, tag=str(number).encode())

    def arrived(self, event: TransferArrived) -> None:
        if not event.settled:
            self._answers.settle(event.delivery_id, event.delivery_id, ACCEPTED)
        layout = sections.walk(event.payload)
        request_id = sections.read_property(event.payload, layout, PropertyField.CORRELATION_ID)
        asked = self.waiting.pop(request_id, None)
        check(asked is not None, f"{self.name} got a response to {request_id!r}, which it did not ask")
        assert asked is not None
        response = read_response(event.payload)
        self.app.note(f"{asked.operation} responded: {response!r:.120}")
        self.app.seen[f"response: {asked.operation} {response.code}"] += 1
        is_ours = asked.operation == "schedule-message" or (response.condition or "") in OWN_ANSWERS
        if response.code not in UNAVAILABLE and not is_ours:
            given = self.accounts.responses[asked.key]
            check((response.code, response.body) in given, f"{asked.operation}: the primary did not respond {response}")
        asked.on_response(response)

    # --- what is asked ---

    def peek(self) -> None:
        body: dict[str, Any] = {
            "from-sequence-number": Long(self.random.choice((0, 1, 10))),
            "message-count": Int(self.random.choice((1, 5))),
        }
        self.ask("peek-message", body, self._peeked)

    def _peeked(self, response: Response) -> None:
        for entry in _messages(response):
            self.accounts.message_in(entry["message"])

    def renew(self, deliveries: list[Delivery]) -> None:
        def renewed(response: Response) -> None:
            if response.is_ok:
                for delivery, until in zip(deliveries, response.body["expirations"], strict=True):
                    delivery.until_ms = max(delivery.until_ms, int(until))
            elif response.code not in UNAVAILABLE and len(deliveries) == 1:
                self.accounts.refused(deliveries[0], str(response.condition))

        self.ask("renew-lock", {"lock-tokens": _tokens(deliveries)}, renewed)

    def receive_deferred(self, sequence: int) -> None:
        body = {
            "sequence-numbers": Array([Long(sequence)], _LONG),
            "receiver-settle-mode": UInt(1),
        }
        self.ask("receive-by-sequence-number", body, self._received)

    def _received(self, response: Response) -> None:
        for entry in _messages(response):
            message = self.accounts.message_in(entry["message"])
            token = entry["lock-token"].bytes_le
            self.app.lent.append(self.accounts.take(message, self.path, token, entry["message"]))
            self.app.seen["deferred messages received"] += 1

    def settle_lent(self, delivery: Delivery, outcome: SettlementOutcome | None = None) -> None:
        """Messages that were received by request are settled by request."""
        status = next((each for each in STATUSES if STATUSES[each] == outcome), None)
        status = status or self.random.choice(list(STATUSES))
        self.app.lent.remove(delivery)
        self.accounts.ask(delivery, STATUSES[status])

        def settled(response: Response) -> None:
            if response.is_ok:
                self.accounts.confirmed(delivery)
            elif response.code not in UNAVAILABLE:
                self.accounts.refused(delivery, str(response.condition))

        body = {"disposition-status": status, "lock-tokens": _tokens([delivery])}
        self.ask("update-disposition", body, settled)

    def use_session(self, session_id: str, held: list[Delivery]) -> None:
        """Renew the lock of a session, or do something with its state."""
        what = self.random.choice(("renew-session-lock", "get-session-state", "set-session-state"))
        body: dict[str, Any] = {"session-id": session_id}
        known = self.accounts.disk.states[self.path, session_id]
        if what == "set-session-state":
            body["session-state"] = self.random.choice((None, self.random.randbytes(5)))

        def responded(response: Response) -> None:
            if not response.is_ok:
                return
            if what == "renew-session-lock":
                for delivery in held:
                    delivery.until_ms = max(delivery.until_ms, int(response.body["expiration"]))
            elif what == "get-session-state":
                check(response.body["session-state"] in known, f"{session_id} has a state that nobody set")
            else:
                check(body["session-state"] in known, f"the state of {session_id} was set, and is not on disk")

        self.ask(what, body, responded)

    def schedule(self, message: SentMessage, due_ms: int) -> None:
        payload = sections.rewrite(message.payload, set_annotations={"x-opt-scheduled-enqueue-time": Timestamp(due_ms)})

        def scheduled(response: Response) -> None:
            if response.is_ok:
                self.accounts.accept(message)
                for number in response.body.get("sequence-numbers", ()):
                    self.accounts.scheduled.append((self.path, int(number), message))

        entry = {"message-id": message.message_id, "message": payload}
        self.ask("schedule-message", {"messages": [entry]}, scheduled)

    def cancel(self, number: int, message: SentMessage) -> None:
        message.may_go = True

        def cancelled(response: Response) -> None:
            if response.is_ok:
                is_gone = not self.accounts.disk.holds(message.message_id)
                check(is_gone, f"{message.message_id} was cancelled, and is still there")
                self.app.seen["cancelled"] += 1
            elif number < 0:  # a token: see `schedule_tokens.py`
                is_said = str(response.condition) in OWN_ANSWERS
                check(is_said, f"{message.message_id} lies in a backlog, and to cancel it was answered with {response}")
                self.app.seen["cancellation refused"] += 1

        self.ask("cancel-scheduled-message", {"sequence-numbers": Array([Long(number)], _LONG)}, cancelled)


def _tokens(deliveries: list[Delivery]) -> Array:
    return Array([uuid.UUID(bytes_le=each.token) for each in deliveries], _UUID)


def _messages(response: Response) -> list[dict[str, Any]]:
    return list(response.body.get("messages", [])) if response.is_ok and isinstance(response.body, dict) else []
