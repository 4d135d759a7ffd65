"""A sender of a simulated application: single messages and batches, many at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.invariants import check
from sim.proxy_accounts import SentMessage
from twinbus.amqp.codec.outcomes import Accepted, Error, Rejected
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.link import Link
from twinbus.amqp.message.message_builder import encode_message
from twinbus.amqp.session import Session
from twinbus.broker.message import BATCH_FORMAT

if TYPE_CHECKING:
    from sim.proxy_application import Application


class AppSender:
    def __init__(self, app: Application, session: Session, path: str) -> None:
        self.app, self.path, self.random = app, path, app.random
        self.accounts = app.accounts
        self.name = app.new_name("s")
        self.asked_at = app.loop.now
        self.waiting: dict[int, list[SentMessage]] = {}
        self.link = session.attach_sender(self.name, path, snd_settle_mode=0)
        self.link.context = self

    def __repr__(self) -> str:
        return self.name

    @property
    def is_attached(self) -> bool:
        return self.link.attached

    def send_some(self) -> None:
        for _ in range(min(self.link.credit, self.random.choice((1, 1, 3, 10)))):
            messages = [self.app.new_message(self.path) for _ in range(self.random.choice((1, 1, 1, 4)))]
            if len(messages) > 1:
                first = messages[0].session_id
                messages = [each for each in messages if each.session_id == first]
            if len(messages) == 1:
                payload, message_format = messages[0].payload, 0
            else:
                payload, message_format = encode_message(data=[each.payload for each in messages]), BATCH_FORMAT
            number = self.link.send(payload, tag=messages[0].message_id.encode(), message_format=message_format)
            self.waiting[number] = messages
            self.accounts.sent_on[self.name] += messages
            self.app.note(f"sends {[each.message_id for each in messages]} to {self.path}")

    def attached(self) -> None: ...

    def credit(self, _link: Link) -> None: ...

    def ended(self, error: Error | None, *, is_refusal: bool) -> None:
        self.app.note(f"{self.name} ended: {error}")
        self.app.seen["senders ended"] += 1
        self.gone()

    def gone(self) -> None:
        self.waiting.clear()
        self.link.context = None
        self.app.forget(self)

    def answered(self, event: DispositionArrived) -> None:
        for number, _ in event.deliveries:
            messages = self.waiting.pop(number, None)
            check(messages is not None, f"{self.name} got an answer to what it did not send")
            for message in messages or ():
                if isinstance(event.outcome, Accepted):
                    self.accounts.accept(message)
                else:
                    error = event.outcome.error if isinstance(event.outcome, Rejected) else None
                    condition = "nothing" if error is None else str(error.condition)
                    self.app.note(f"{message.message_id} is not accepted: {error}")
                    self.app.seen[f"not accepted: {condition}"] += 1
