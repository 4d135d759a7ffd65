"""What `schedule_messages` returns for messages that took the detour: tokens in place of sequence numbers.

They are negative numbers, which no server gives out, so that they stay recognisable wherever an application keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from twinbus.errors import ScheduledInBacklog

_numbers = count(1)


class BacklogToken(int):
    """Stands for a scheduled message that lies in a backlog queue; it cannot be cancelled there."""

    def __repr__(self) -> str:
        return f"BacklogToken({int(self)})"


def tokens_for(messages: int) -> list[int]:
    return [BacklogToken(-next(_numbers)) for _ in range(messages)]


def numbers_of(given: Any) -> list[int]:
    """What is to be cancelled: a sequence number or several; raises `TypeError` for anything else."""
    numbers = list(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else [given]
    wrong = [number for number in numbers if not isinstance(number, int)]
    if wrong:
        raise TypeError(f"sequence numbers are whole numbers, as schedule_messages returns them, got {wrong[0]!r}")
    return numbers


def check_cancellable(numbers: Iterable[int]) -> None:
    """Raise `ScheduledInBacklog` if one of them is such a token; then none of them has been cancelled."""
    tokens = [number for number in numbers if number < 0]
    if tokens:
        raise ScheduledInBacklog(
            f"{len(tokens)} of these messages were scheduled while the primary was down and lie in a backlog queue: "
            "they cannot be cancelled there; wait until they are home, or have their receivers drop them"
        )
