"""Looks into a queue, a subscription or a dead-letter queue by peeking: nothing is taken and nothing is locked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING

from twinbus.amqp.codec.types import Int, Long, Value
from twinbus.transport.failures import ConnectionFailed, failure_of
from twinbus.transport.links.annotations import sequence_of

if TYPE_CHECKING:
    from twinbus.transport.connection import NamespaceConnection

PAGE = 250
DEAD_LETTER_QUEUE = "/$DeadLetterQueue"
"""Appended to the path of a queue: the path of its dead-letter queue."""


async def peek(
    connection: NamespaceConnection, path: str, from_sequence: int, most: int, session_id: str | None = None
) -> list[bytes]:
    """Up to `most` messages from a sequence number on, whatever their state. Raises `ConnectionFailed`."""
    body: dict[str, Value] = {"from-sequence-number": Long(from_sequence), "message-count": Int(most)}
    if session_id is not None:
        body["session-id"] = session_id
    response = await connection.request(path, "peek-message", body)
    if not response.is_ok:
        raise ConnectionFailed(failure_of(response.error))
    entries = response.body.get("messages", []) if isinstance(response.body, dict) else []
    found = [entry.get("message") for entry in entries if isinstance(entry, dict)]
    messages = [message for message in found if isinstance(message, bytes)]
    connection.on_peek(path, messages)
    return messages


async def pages(
    connection: NamespaceConnection, path: str, from_sequence: int = 1, session_id: str | None = None
) -> AsyncIterator[list[bytes]]:
    """All messages from a sequence number on, page by page."""
    while messages := await peek(connection, path, from_sequence, PAGE, session_id):
        yield messages
        from_sequence = sequence_of(messages[-1]) + 1


async def estimate_depth(connection: NamespaceConnection, path: str) -> int:
    """About how many messages a queue holds: from its first to its last sequence number, as if none were missing."""
    first = await peek(connection, path, 1, 1)
    if not first:
        return 0
    low = sequence_of(first[0])
    return await last_sequence(connection, path, low) - low + 1


async def last_sequence(connection: NamespaceConnection, path: str, low: int) -> int:
    """The highest sequence number in use; `low` is one of them."""
    search = search_last_sequence(low)
    asked = next(search)
    try:
        while True:
            found = await peek(connection, path, asked, 1)
            asked = search.send(sequence_of(found[0]) if found else None)
    except StopIteration as done:
        return int(done.value)


def search_last_sequence(low: int) -> Generator[int, int | None, int]:
    """Finds the highest number in use; `low` is one. Yields a number, is sent the first in use from there on, or None.

    Steps double until nothing is found, then halve: about 40 questions for a million messages.
    """
    step = 1
    high: int | None = None
    while high is None or high - low > 1:
        asked = low + step if high is None else (low + high) // 2
        found = yield asked
        if found is None:
            high = asked
        else:
            low = found
            step *= 2
    return low
