"""Sends that wait for the outcome of a suspicion, in the order in which they came (P5, `hold_sends`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from twinbus.pairing.rules import Rules


class Line:
    """First come, first served: only the head may try; bounded in count and bytes."""

    def __init__(self, rules: Rules, tickets: Iterator[int]) -> None:
        """`tickets` are numbers that nobody else is given."""
        self._rules = rules
        self._tickets = tickets
        self._waiting: OrderedDict[int, int] = OrderedDict()  # ticket -> bytes
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._waiting

    def has_room_for(self, size_bytes: int) -> bool:
        rules = self._rules
        return len(self._waiting) < rules.hold_count_max and self.bytes + size_bytes <= rules.hold_bytes_max

    def join(self, size_bytes: int) -> int:
        """A ticket for the end of the line."""
        ticket = next(self._tickets)
        self._waiting[ticket] = size_bytes
        self.bytes += size_bytes
        return ticket

    @property
    def head(self) -> int | None:
        return next(iter(self._waiting), None)

    def leave(self, ticket: int) -> int | None:
        """Who is the new head because this one left; None if that is nobody, or if the head stays."""
        was_head = self.head == ticket
        self.bytes -= self._waiting.pop(ticket, 0)
        return self.head if was_head else None
