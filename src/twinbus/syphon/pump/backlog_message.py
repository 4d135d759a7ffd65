"""A backlog message: where it goes, under which lock we hold it, and how its envelope is opened.

`pairing.envelope` opens every envelope, by taking the message apart; that is more than half of what a message costs on
its way home. Most messages have nothing but a destination in their envelope, and nothing but the service's own entries
in their annotations. For those `read_envelope` leaves out three pieces of bytes. All others take the long way.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from twinbus.amqp.codec.decoding import after_descriptor, item_offsets
from twinbus.amqp.message.message_builder import APPLICATION_PROPERTIES, compound_section
from twinbus.amqp.message.sections import Layout, read_header, walk
from twinbus.pairing.backlog.envelope import PATH, Aliases, forward_envelope, open_envelope, read_aliases
from twinbus.pairing.backlog.ordering import Key, Mark

if TYPE_CHECKING:
    from twinbus.syphon.pump.backlog_queue import BacklogQueue


class OrderPosition(NamedTuple):
    """Where a message stands among those of its key."""

    key: Key
    sequence: int
    """Its sequence number in its backlog queue."""
    mark: Mark
    enqueued_ms: int | None


class RecordedMessage(NamedTuple):
    path: str
    message_id: str
    session_id: str
    size: int


class LockBatch:
    """Messages that arrived together: their locks end together, and are renewed together."""

    __slots__ = ("ends_ms", "is_lost", "is_renewing", "locks_asked", "messages", "queue", "renew_from_ms")

    def __init__(self, queue: BacklogQueue, ends_ms: int) -> None:
        self.queue = queue
        self.ends_ms = ends_ms
        self.is_renewing = False
        self.locks_asked = 0
        """How many locks the last renewal asked for."""
        self.renew_from_ms = 0
        """Not before then: the last renewal was refused."""
        self.is_lost = False
        """The locks are gone, or the link on which they could be settled is."""
        self.messages: dict[int, HeldMessage] = {}
        """Those whose lock is still needed, by number."""


class HeldMessage:
    __slots__ = (
        "aliases",
        "detour",
        "expires_ms",
        "is_opened",
        "lock_batch",
        "number",
        "payload",
        "position",
        "recorded",
        "token",
    )

    position: OrderPosition
    """Set only if order is kept."""
    recorded: RecordedMessage
    """Set only if there is a ledger."""

    def __init__(
        self, number: int, token: bytes, lock_batch: LockBatch, payload: bytes, aliases: Aliases, *, is_opened: bool
    ) -> None:
        self.number = number
        """Its delivery id, as a number that never wraps."""
        self.token = token
        self.lock_batch = lock_batch
        self.payload = payload
        """As it came, or without its envelope if `is_opened`; empty once it is only to be released."""
        self.is_opened = is_opened
        self.aliases = aliases
        self.detour: str | None = None
        """The backlog queue to which it goes instead, because its entity is down; None: it goes home."""
        self.expires_ms: int | None = None
        """When its time to live ends, by our clock; None: never, or not checked here."""

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and self.expires_ms <= now_ms

    def encode_for_primary(self, now_ms: int) -> bytes:
        """The message as it goes home now. Raises `DecodeError` or `EnvelopeError`."""
        if self.is_opened:
            return self.payload
        return open_envelope(self.payload, ttl_left_ms=self._ttl_left_ms(now_ms), aliases=self.aliases).encoded

    def encode_for_backlog(self, now_ms: int) -> bytes:
        """The message as it goes on to another backlog queue. Raises `DecodeError`."""
        return forward_envelope(self.payload, ttl_left_ms=self._ttl_left_ms(now_ms))

    def _ttl_left_ms(self, now_ms: int) -> int | None:
        """The rest of the time to live; None: all of it. Never more: it begins with a schedule that is still to come,
        and the primary counts from there too.
        """
        if self.expires_ms is None or self.aliases.ttl_ms is None:
            return None
        left_ms = max(1, self.expires_ms - now_ms)
        return left_ms if left_ms < self.aliases.ttl_ms else None


def expiry_ms(aliases: Aliases, enqueued_at_ms: int) -> int | None:
    """When the time to live ends, by the secondary's clock. It begins with the enqueuing, or a later schedule."""
    if aliases.ttl_ms is None:
        return None
    return max(enqueued_at_ms, aliases.due_at_ms or 0) + aliases.ttl_ms


# --- opening envelopes ----------------------------------------------------------------------------

# Only the service's entries, each with a value whose width its first byte tells: so the pattern reads them as a decoder
# would, and a message with any entry of its own does not match.
_VALUE = rb"(?:[\x81\x83\x80].{8}|[\x53-\x55].|[\x70\x71].{4}|[\x43-\x45])"
_NAMES = (
    b"x-opt-sequence-number",
    b"x-opt-enqueued-time",
    b"x-opt-enqueue-sequence-number",
    b"x-opt-message-state",
    b"x-opt-locked-until",
)
_NAME = b"|".join(re.escape(bytes((len(name),)) + name) for name in _NAMES)  # a longer name may begin like one of these
_SERVICE_ENTRIES = re.compile(rb"\x00\x53\x72\xc1..(?:\xa3(?:" + _NAME + rb")" + _VALUE + rb")+", re.DOTALL)
_LOCK_TOKEN = re.compile(rb"\x00\x53\x71\xc1..\xa3\x10x-opt-lock-token\x98.{16}", re.DOTALL)
_PATH_KEY = b"\xa1\x09" + PATH.encode()
_ALIAS_START = b"x-ms-"
_PATH_BYTES_MAX = 300


def read_envelope(message: bytes) -> tuple[Aliases, bytes | None]:
    """The aliases of a message, and the message as it goes home if the short way applies.

    Raises `EnvelopeError` or `DecodeError`, as `read_aliases` does.
    """
    layout = walk(message)
    if _is_usual(message, layout):
        found = _without_path(message, layout)
        if found is not None:
            return found
    return read_aliases(message), None


def _is_usual(message: bytes, layout: Layout) -> bool:
    """Whether header and annotations have only what the service writes."""
    header, delivery_annotations, annotations = layout.header, layout.delivery_annotations, layout.message_annotations
    if header is not None and read_header(message, layout).delivery_count:
        return False
    if delivery_annotations is not None and not _LOCK_TOKEN.fullmatch(message, *delivery_annotations):
        return False
    if annotations is None or not _SERVICE_ENTRIES.fullmatch(message, *annotations):
        return False
    # They come first and together; the official Python client may write its delivery annotations last.
    starts = [span[0] for span in (header, delivery_annotations, annotations) if span is not None]
    return starts == sorted(starts) and starts[0] == 0


def _without_path(message: bytes, layout: Layout) -> tuple[Aliases, bytes] | None:
    span, annotations = layout.application_properties, layout.message_annotations
    if span is None or annotations is None or message.count(_ALIAS_START, *span) != 1:
        return None
    offsets = item_offsets(message, after_descriptor(message, span[0]))
    if not len(offsets) % 2 or len(offsets) < 3:
        return None
    key, value, end = offsets[-3:]  # a paired client puts it last
    if message[key:value] != _PATH_KEY or message[value] != 0xA1 or not 2 < end - value <= _PATH_BYTES_MAX:
        return None
    aliases = _aliases(message[value + 2 : end])
    if aliases is None:
        return None
    kept = message[offsets[0] : key]
    properties = compound_section(APPLICATION_PROPERTIES, 0xC1, len(offsets) - 3, kept) if kept else b""
    head = message[: layout.header[1]] if layout.header is not None else b""
    return aliases, b"".join((head, message[annotations[1] : span[0]], properties, message[span[1] :]))


@lru_cache(maxsize=1024)
def _aliases(path: bytes) -> Aliases | None:
    try:
        return Aliases(path.decode())
    except UnicodeDecodeError:
        return None
