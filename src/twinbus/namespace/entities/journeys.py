"""How far a message that is forwarded has come."""

from __future__ import annotations

from typing import NamedTuple

from twinbus.namespace.message import hops_of, with_hops
from twinbus.namespace.store.api import MessageRow


class Journey(NamedTuple):
    hops: int = 0
    is_written: bool = False
    """Whether the number is written on the message, because it has rested on the way or was dead-lettered."""


def journey_of(row: MessageRow, *, is_dead: bool = False) -> Journey:
    """How far a message has come that is at rest; `is_dead`: among dead letters."""
    hops = hops_of(row.payload)
    return Journey(hops, is_dead or hops > 0)


def written(row: MessageRow, journey: Journey) -> MessageRow:
    """The message with its number of hops written on it."""
    return row._replace(payload=with_hops(row.payload, journey.hops))
