"""A link of the engine as a window sees it: credit and deliveries, which a test answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twinbus.amqp.codec.outcomes import ACCEPTED, Error, Outcome, Rejected
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.sending_link import SendingLink
from twinbus.client.native.send_window import SendWindow


class FakeLink:
    def __init__(self, credit: int = 1_000, message_bytes_max: int | None = None) -> None:
        self.credit = credit
        self.attached = True
        self.max_message_size = message_bytes_max
        self.properties: dict[str, Any] = {}
        self.session = SimpleNamespace(next_delivery_id=0)
        self.sent: list[tuple[bytes, int]] = []
        """Payload and message format of every delivery, by its number."""
        self.settled: list[int] = []

    def send(self, payload: bytes, *, tag: bytes, message_format: int) -> int:
        assert self.credit > 0
        self.credit -= 1
        self.sent.append((payload, message_format))
        self.session.next_delivery_id += 1
        return len(self.sent) - 1

    @property
    def as_link(self) -> SendingLink:
        return cast("SendingLink", self)

    def answer(
        self, window: SendWindow, at: float, *deliveries: int, outcome: Outcome | None = ACCEPTED, settled: bool = True
    ) -> None:
        """The peer settles these."""
        event = DispositionArrived(self.as_link, [(number, b"") for number in deliveries], outcome, settled)
        window.settled(event, at)


def rejected(condition: str) -> Rejected:
    return Rejected(Error(condition, "because"))
