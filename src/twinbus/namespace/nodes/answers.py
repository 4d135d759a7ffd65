"""Where the answers of `$cbs` and `$management` go: links the client opened to receive them."""

from __future__ import annotations

from collections import deque

from twinbus.amqp.account import FRAME_COST
from twinbus.amqp.link import SendingLink


class AnswerLink:
    """A link to a client that waits for answers; those it has no credit for wait with it."""

    def __init__(self, address: str, link: SendingLink) -> None:
        self.address = address
        self.link = link
        self._waiting: deque[bytes] = deque()
        self._account = link.session.connection.account

    def answer(self, response: bytes) -> None:
        """Send an answer, now or when the client takes it."""
        self._waiting.append(response)
        self._account.queue(len(response) + FRAME_COST)
        self.send_waiting()

    def send_waiting(self) -> None:
        while self._waiting and self.link.attached and self.link.credit > 0:
            response = self._waiting.popleft()
            self._account.queue(-len(response) - FRAME_COST)
            self.link.send(response, settled=True)

    def forget(self) -> None:
        """The link is gone, and nobody takes what waits."""
        self._account.queue(-sum([len(response) + FRAME_COST for response in self._waiting]))
        self._waiting.clear()
