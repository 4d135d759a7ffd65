"""A backlog message in our hands: where it goes, under which lock, and what of its time is left."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from twinbus.amqp.sections import read_annotation, walk
from twinbus.amqp.types import Timestamp
from twinbus.errors import DecodeError
from twinbus.pairing.envelope import Aliases, open_envelope
from twinbus.pairing.order import Key, Mark

if TYPE_CHECKING:
    from twinbus.syphon.backlog import BacklogQueue

_TIMESTAMP = struct.Struct(">q").unpack_from
_SIZE = struct.Struct(">I").unpack_from
_ENQUEUED = "x-opt-enqueued-time"
_LOCKED_UNTIL = "x-opt-locked-until"
_ENTRIES = {name: bytes((0xA3, len(name))) + name.encode() + b"\x83" for name in (_ENQUEUED, _LOCKED_UNTIL)}
_ANNOTATIONS = b"\x00\x53\x72"
_SEARCHED_BYTES = 2_048
"""Usually the service's annotations are among the first; those of a sender may stand before them."""


class Place(NamedTuple):
    """Where a letter stands among those of its key."""

    key: Key
    sequence: int
    """Its number in its backlog queue."""
    mark: Mark
    since_ms: int | None
    """When the backlog queue took it."""


class Name(NamedTuple):
    """What the ledger has to know of a message."""

    path: str
    message_id: str
    session_id: str
    size: int


class Lot:
    """Letters that arrived together: their locks end together, and are renewed together."""

    __slots__ = ("ends_ms", "is_lost", "is_renewing", "left", "locks_asked", "queue", "renew_from_ms")

    def __init__(self, queue: BacklogQueue, ends_ms: int) -> None:
        self.queue = queue
        self.ends_ms = ends_ms
        self.is_renewing = False
        self.locks_asked = 0
        """How many of its locks were to be renewed the last time."""
        self.renew_from_ms = 0
        """Not before then: the last request for more time was refused."""
        self.is_lost = False
        """The locks are gone, or the link by which they could be settled is."""
        self.left: dict[int, Held] = {}
        """The letters in it whose lock we still need, by number."""


class Held:
    """One letter under lock."""

    __slots__ = ("aliases", "dies_ms", "is_open", "letter", "lot", "name", "number", "place", "token")

    place: Place
    """Only known, and only needed, where order is kept."""
    name: Name
    """Only known, and only needed, where a ledger is."""

    def __init__(self, number: int, token: bytes, lot: Lot, letter: bytes, aliases: Aliases, *, is_open: bool) -> None:
        self.number = number
        """Its delivery, as a number that never starts again."""
        self.token = token
        self.lot = lot
        self.letter = letter
        """As it came from the backlog, or as it goes home if `is_open`; empty once it is only to be given back."""
        self.is_open = is_open
        self.aliases = aliases
        self.dies_ms: int | None = None
        """When its time to live ends, on our clock; None: never, or not counted here."""

    def is_dead(self, now_ms: int) -> bool:
        return self.dies_ms is not None and self.dies_ms <= now_ms

    def homeward(self, now_ms: int) -> bytes:
        """The letter as it goes home now. Raises `DecodeError` or `EnvelopeError` if it cannot be made."""
        if self.is_open:
            return self.letter
        return open_envelope(self.letter, ttl_left_ms=self._ttl_left_ms(now_ms), aliases=self.aliases).letter

    def _ttl_left_ms(self, now_ms: int) -> int | None:
        """What is left of the time to live; None: all of it. Never more: it runs from a schedule that is still to come,
        and the primary counts from there too.
        """
        if self.dies_ms is None or self.aliases.ttl_ms is None:
            return None
        left_ms = max(1, self.dies_ms - now_ms)
        return left_ms if left_ms < self.aliases.ttl_ms else None


def _service_time(message: bytes, name: str) -> int | None:
    """A time the service has written into the annotations, None if it has not.

    Found by its bytes: a walk through the annotations costs ten times as much, and this is asked for every message.
    """
    entry = _ENTRIES[name]
    at = message.find(entry, 0, _SEARCHED_BYTES)
    # A second one means that a value of the sender's looks like an entry: only the walk knows which is which.
    if at < 0 or message.find(entry, at + 1, _annotations_end(message, at)) >= 0:
        return _walked_time(message, name)
    value = at + len(entry)
    return int(_TIMESTAMP(message, value)[0]) if value + 8 <= len(message) else None


def _annotations_end(message: bytes, inside: int) -> int:
    """Where the section ends that has begun before the byte at `inside`."""
    start = message.find(_ANNOTATIONS, 0, inside)
    if start >= 0 and message[start + 3] == 0xC1:
        return start + 5 + message[start + 4]
    return start + 8 + int(_SIZE(message, start + 4)[0]) if start >= 0 else len(message)


def _walked_time(message: bytes, name: str) -> int | None:
    try:
        value = read_annotation(message, walk(message), name)
    except DecodeError:  # whoever wants more of it than a time will tell
        return None
    return int(value) if isinstance(value, Timestamp) else None


def enqueued_ms(message: bytes) -> int | None:
    """When the backlog queue took the message, on the secondary's clock."""
    return _service_time(message, _ENQUEUED)


def locked_until_ms(message: bytes) -> int | None:
    """When its lock ends, on the secondary's clock."""
    return _service_time(message, _LOCKED_UNTIL)


def expiry_ms(aliases: Aliases, enqueued_at_ms: int) -> int | None:
    """When the time to live ends on the secondary's clock. It runs from the enqueuing, or a later schedule."""
    if aliases.ttl_ms is None:
        return None
    return max(enqueued_at_ms, aliases.due_at_ms or 0) + aliases.ttl_ms
