"""Where the answers of `$cbs` and `$management` go: links the client opened to receive them."""

from __future__ import annotations

from collections import deque

from twinbus.amqp.link import SendingLink

WAITING_ANSWERS_MAX = 1_000


class AnswerLink:
    """A link to a client that waits for answers; those it has no credit for wait with it."""

    def __init__(self, address: str, link: SendingLink) -> None:
        self.address = address
        self.link = link
        self._waiting: deque[bytes] = deque()

    def answer(self, response: bytes) -> None:
        if len(self._waiting) < WAITING_ANSWERS_MAX:  # beyond that nobody is listening
            self._waiting.append(response)
        self.send_waiting()

    def send_waiting(self) -> None:
        while self._waiting and self.link.attached and self.link.credit > 0:
            self.link.send(self._waiting.popleft(), settled=True)
