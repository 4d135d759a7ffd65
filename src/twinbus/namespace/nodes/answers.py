"""Where the answers of `$cbs` and `$management` go: links the client opened to receive them."""

from __future__ import annotations

from collections import deque

from twinbus.amqp.link import SendingLink

WAITING_BYTES_MAX = 4 * 1024 * 1024
"""Beyond that nobody is listening."""


class AnswerLink:
    """A link to a client that waits for answers; those it has no credit for wait with it."""

    def __init__(self, address: str, link: SendingLink) -> None:
        self.address = address
        self.link = link
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0

    def answer(self, response: bytes) -> bool:
        """Send an answer, now or when the client takes it; False if too much waits for that already."""
        if self._waiting_bytes > WAITING_BYTES_MAX:
            return False
        self._waiting.append(response)
        self._waiting_bytes += len(response)
        self.send_waiting()
        return True

    def send_waiting(self) -> None:
        while self._waiting and self.link.attached and self.link.credit > 0:
            response = self._waiting.popleft()
            self._waiting_bytes -= len(response)
            self.link.send(response, settled=True)
