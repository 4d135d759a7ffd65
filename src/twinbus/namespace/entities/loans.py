"""Messages lent to receivers under a lock.

Locks live in memory only: they end with the process, and a token from before a restart is simply unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from twinbus.namespace.entities.receivers import Receiver
from twinbus.namespace.store.api import MessageRow

LOAN_COST = 1_000
"""What a loan takes in memory besides the payload, here and at the link."""


class Loan:
    __slots__ = ("receiver", "row", "token", "until_ms")

    def __init__(self, row: MessageRow, token: bytes, until_ms: int, receiver: Receiver | None) -> None:
        self.row = row
        self.token = token
        self.until_ms = until_ms
        self.receiver = receiver
        """Whose room it takes; None for a deferred message, which nobody waits in line for."""


class Loans:
    def __init__(self) -> None:
        self._by_token: dict[bytes, Loan] = {}
        self._lent: set[int] = set()
        self.aside: set[int] = set()
        """Messages that nobody has and nobody can have: they are about to go elsewhere."""
        self._ends: list[tuple[int, bytes]] = []
        self.held_bytes = 0
        """What all loans take in memory, also those of receivers that are gone."""

    def __len__(self) -> int:
        return len(self._by_token)

    def is_lent(self, sequence: int) -> bool:
        return sequence in self._lent

    def lend(self, row: MessageRow, token: bytes, until_ms: int, receiver: Receiver | None = None) -> None:
        self._by_token[token] = Loan(row, token, until_ms, receiver)
        self._lent.add(row.sequence)
        self.held_bytes += LOAN_COST + len(row.payload)
        heappush(self._ends, (until_ms, token))

    def set_aside(self, sequence: int) -> None:
        """Nobody can have the message for now: it is about to go elsewhere."""
        self._lent.add(sequence)
        self.aside.add(sequence)

    def take_back(self, sequence: int) -> None:
        """It is not about to go any more, or is gone."""
        self._lent.discard(sequence)
        self.aside.discard(sequence)

    def find(self, token: bytes, now_ms: int) -> Loan | None:
        """The loan of a token, if its lock still holds."""
        loan = self._by_token.get(token)
        return loan if loan is not None and loan.until_ms > now_ms else None

    def end(self, loan: Loan) -> None:
        del self._by_token[loan.token]
        self._lent.discard(loan.row.sequence)
        self.held_bytes -= LOAN_COST + len(loan.row.payload)

    def renew(self, loan: Loan, until_ms: int) -> None:
        loan.until_ms = until_ms
        heappush(self._ends, (until_ms, loan.token))

    def next_end_ms(self) -> int | None:
        """When the next lock may end; a time that is too early is possible and harmless."""
        if not self._ends:
            return None
        self._drop_settled()
        return self._ends[0][0] if self._ends else None

    def take_ended(self, now_ms: int, most: int) -> Iterator[Loan]:
        """Remove up to `most` loans whose lock has ended."""
        while most > 0 and self._ends and self._ends[0][0] <= now_ms:
            loan = self._by_token.get(heappop(self._ends)[1])
            if loan is not None and loan.until_ms <= now_ms:
                self.end(loan)
                most -= 1
                yield loan

    def _drop_settled(self) -> None:
        """Forget the ends of loans that were settled or renewed, so that the heap stays as small as the loans."""
        if len(self._ends) > 2 * len(self._by_token) + 64:
            self._ends = [(loan.until_ms, token) for token, loan in self._by_token.items()]
            heapify(self._ends)
        while self._ends and self._ends[0][1] not in self._by_token:
            heappop(self._ends)
