"""Fields in the bodies of requests to `$management`; each raises `ArgumentError` if it is not what it has to be."""

from __future__ import annotations

import uuid
from typing import Any

from twinbus.amqp.codec.encoding import Array
from twinbus.broker.operations import (
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    SettlementOutcome,
)
from twinbus.errors import ArgumentError

LIST_LENGTH_MAX = 1_000
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
LONG_CODE = 0x81
"""The type of the sequence numbers in a response."""


def read_items(body: dict[Any, Any], field: str) -> list[Any]:
    values = body.get(field)
    if not isinstance(values, list | Array) or not 1 <= len(values) <= LIST_LENGTH_MAX:
        raise ArgumentError(f"{field} must be a list of 1 to {LIST_LENGTH_MAX} items")
    return list(values)


def read_sequences(body: dict[Any, Any]) -> tuple[int, ...]:
    """Each sequence number once."""
    numbers = read_items(body, "sequence-numbers")
    if not all(isinstance(number, int) and LONG_MIN <= number <= LONG_MAX for number in numbers):
        raise ArgumentError("sequence-numbers must be whole numbers of at most 64 bits")
    return tuple(dict.fromkeys(int(number) for number in numbers))


def read_messages(body: dict[Any, Any]) -> list[bytes]:
    """The encoded messages to be scheduled."""
    entries = read_items(body, "messages")
    messages = [entry.get("message") if isinstance(entry, dict) else None for entry in entries]
    if not all(isinstance(message, bytes) for message in messages):
        raise ArgumentError("each of the messages must be a map with an encoded message under 'message'")
    return [message for message in messages if message is not None]


def read_lock_tokens(body: dict[Any, Any]) -> tuple[bytes, ...]:
    """As delivery tags have them."""
    tokens = read_items(body, "lock-tokens")
    if not all(isinstance(token, uuid.UUID) for token in tokens):
        raise ArgumentError("lock-tokens must be uuids")
    return tuple(token.bytes_le for token in tokens)


def read_disposition(body: dict[Any, Any]) -> SettlementOutcome:
    """How the messages are to be settled."""
    changes = body.get("properties-to-modify") or {}
    if not isinstance(changes, dict):
        raise ArgumentError("properties-to-modify must be a map")
    properties = {str(key): value for key, value in changes.items() if value is not None}
    match body.get("disposition-status"):
        case "completed":
            return Complete()
        case "abandoned":
            return Abandon(properties)
        case "defered":  # spelled so on the wire
            return Defer(properties)
        case "suspended":
            fields = ((DEAD_LETTER_REASON, "deadletter-reason"), (DEAD_LETTER_DESCRIPTION, "deadletter-description"))
            reasons = {name: body[field] for name, field in fields if body.get(field) is not None}
            return DeadLetter(properties | reasons)
        case other:
            raise ArgumentError(f"disposition-status must be completed, abandoned, defered or suspended, got {other!r}")
