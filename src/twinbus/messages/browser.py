"""Finds messages by peeking: nothing is taken and nothing is locked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twinbus.amqp.codec.types import Int, Timestamp
from twinbus.messages.browsed_message import BrowsedMessage, browsed
from twinbus.messages.choice import EVERY_MESSAGE, MessageChoice
from twinbus.messages.place import MessagePlace
from twinbus.pairing.sending.failure import FailureKind
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed, failure_of
from twinbus.transport.links.peek import PAGE, peek

SCANNED_MAX = 10_000
"""Messages that one search looks at: each of them is a billable operation."""
SESSIONS_MAX = 100
"""Sessions that one search looks into where a queue demands one."""
_ANY_TIME = Timestamp(253_402_300_800_000)
"""In a request for sessions: all that have messages or a state."""


@dataclass(frozen=True, slots=True)
class MessagePage:
    messages: tuple[BrowsedMessage, ...]
    scanned: int
    """How many messages were looked at."""
    next_sequence: int | None
    """Where to go on; None: everything was looked at."""
    sessions_left_out: bool = False
    """The queue has more sessions than one search looks into: name one."""

    @property
    def is_all(self) -> bool:
        return self.next_sequence is None and not self.sessions_left_out


async def find_messages(
    connection: NamespaceConnection,
    place: MessagePlace,
    choice: MessageChoice = EVERY_MESSAGE,
    *,
    from_sequence: int = 1,
    most: int = PAGE,
    scanned_max: int = SCANNED_MAX,
    keeps_bytes: bool = True,
) -> MessagePage:
    """Up to `most` of the chosen messages, in their order. Raises `ConnectionFailed`.

    Without `keeps_bytes` only facts about them are kept: there may be more messages than memory.
    """
    search = _Search(connection, place, choice, most, scanned_max, keeps_bytes=keeps_bytes)
    if choice.sequences:
        return await search.by_number(sorted(choice.sequences)[:most])
    sessions: list[str | None] = [choice.session_id]
    left_out = False
    try:
        return await search.run(from_sequence, None)
    except ConnectionFailed as error:
        if error.failure.kind is not FailureKind.NOT_ALLOWED:  # a queue with sessions wants one to be named
            raise
    if choice.session_id is None:
        names = await _session_names(connection, place.path)
        sessions, left_out = [*names[:SESSIONS_MAX]], len(names) > SESSIONS_MAX
    pages = [await search.run(from_sequence, session) for session in sessions]
    left_out = left_out or any(page.next_sequence is not None for page in pages)
    found = sorted([each for page in pages for each in page.messages], key=lambda each: each.sequence)
    return MessagePage(tuple(found), search.scanned, None, left_out)


class _Search:
    def __init__(
        self,
        connection: NamespaceConnection,
        place: MessagePlace,
        choice: MessageChoice,
        most: int,
        scanned_max: int,
        *,
        keeps_bytes: bool,
    ) -> None:
        self._connection, self._path, self._choice = connection, place.path, choice
        self._keeps_bytes = keeps_bytes
        self._most, self._scanned_max = most, scanned_max
        self._found = 0
        self.scanned = 0

    async def run(self, sequence: int, session_id: str | None) -> MessagePage:
        """From a sequence number on, in one session or without any."""
        found: list[BrowsedMessage] = []
        while self._found < self._most and self.scanned < self._scanned_max:
            size = min(PAGE, self._scanned_max - self.scanned)
            size = min(size, self._most - self._found) if self._choice.is_everything else size
            page = [*map(browsed, await peek(self._connection, self._path, sequence, size, session_id))]
            if not page:
                return MessagePage(tuple(found), self.scanned, None)
            for each in page:
                self.scanned += 1
                sequence = each.sequence + 1
                if self._choice.matches(each):
                    found.append(each if self._keeps_bytes else replace(each, encoded=b""))
                    self._found += 1
                    if self._found == self._most:
                        break
        return MessagePage(tuple(found), self.scanned, sequence)

    async def by_number(self, sequences: list[int]) -> MessagePage:
        """Each is asked for by itself: they may be far apart."""
        found = []
        for sequence in sequences:
            session = self._choice.session_id
            for encoded in await peek(self._connection, self._path, sequence, 1, session):
                message = browsed(encoded)
                if message.sequence == sequence and self._choice.matches(message):
                    found.append(message)
        return MessagePage(tuple(found), len(sequences), None)


async def _session_names(connection: NamespaceConnection, path: str) -> list[str]:
    body = {"last-updated-time": _ANY_TIME, "skip": Int(0), "top": Int(SESSIONS_MAX + 1)}
    response = await connection.request(path, "get-message-sessions", body)
    if not response.is_ok:
        raise ConnectionFailed(failure_of(response.error))
    names = response.body.get("sessions-ids", []) if isinstance(response.body, dict) else []
    return [name for name in names if isinstance(name, str)]
