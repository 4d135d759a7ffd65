"""What the pump does, told to a ledger: one event for all messages to which the same happened at once.

Message ids are read only here, so that a syphon without a ledger does not look for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twinbus.amqp import sections
from twinbus.amqp.sections import PropertyField
from twinbus.amqp.types import text_of
from twinbus.errors import DecodeError
from twinbus.ledger.events import Event, Recorder
from twinbus.ledger.kinds import Kind
from twinbus.pairing.failure import Failure, FailureKind
from twinbus.syphon.batches import Batch
from twinbus.syphon.letters import Held, Name
from twinbus.syphon.look import DEAD_LETTERS


class Chronicle:
    """What is told of the pump's work. This one tells nobody."""

    def added(self, path: str) -> None:
        """One more queue is emptied."""

    def listed(self, requests: int) -> None:
        """Backlog queues were looked for."""

    def note(self, queue: int, held: Held, raw: bytes) -> None:
        """A letter has come; `received` tells of it with the others that came together."""

    def received(self, queue: int) -> None:
        """All that came together has been noted."""

    def left(self, kind: Kind, queue: int, numbers: Iterable[int], reason: str = "") -> None:
        """Letters are not ours any more."""

    def lost(self, queue: int) -> None:
        """The link is gone, and with it whatever it had lent."""

    def polled(self, queue: int) -> None:
        """An idle queue was given credit for one more wait."""

    def peeked(self, path: str, letters: Sequence[bytes]) -> None:
        """A queue was looked into, and this was found."""

    def renewed(self, queue: int, locks: int) -> None:
        """So many locks hold longer."""

    def paused(self, reason: str) -> None:
        """Nothing is moved until somebody says so."""

    def resumed(self) -> None:
        """Somebody said so."""

    def sent(self, kind: Kind, batch: Batch, failure: Failure | None = None) -> None:
        """A batch was stored at home, or it is in doubt, or it was refused."""

    def skipped(self, path: str, failure: Failure, until_ms: int) -> None:
        """A destination is left alone until then."""

    def back(self, path: str) -> None:
        """A destination takes messages again."""


NOTHING_TOLD = Chronicle()


class LedgerChronicle(Chronicle):
    """Remembers the names of letters from their arrival until they have left us.

    A batch may be answered when the link by which its letters came is long lost, and the next link counts from the
    start again: so what is on its way home has its name with it.
    """

    def __init__(self, recorder: Recorder, paths: Sequence[str], primary: str, secondary: str) -> None:
        self._record = recorder.record
        self._paths = list(paths)
        self._primary = primary
        self._secondary = secondary
        self._names: list[dict[int, Name]] = [{} for _ in paths]
        self._new: list[Name] = []

    # --- the backlog ---

    def added(self, path: str) -> None:
        self._paths.append(path)
        self._names.append({})

    def listed(self, requests: int) -> None:
        self._record(Event(Kind.QUEUE_CHECKED, namespace=self._secondary, count=requests))

    def note(self, queue: int, held: Held, raw: bytes) -> None:
        """A letter has come; `received` tells of it with the others that came together."""
        aliases = held.aliases
        held.name = name = Name(aliases.path, _message_id(raw), aliases.session_id or "", len(raw))
        self._names[queue][held.number] = name
        self._new.append(name)

    def received(self, queue: int) -> None:
        names, self._new = self._new, []
        self._tell(Kind.RECEIVED_FROM_BACKLOG, names, queue)

    def left(self, kind: Kind, queue: int, numbers: Iterable[int], reason: str = "") -> None:
        """Letters are not ours any more."""
        known = self._names[queue]
        names = [known.pop(number) for number in numbers if number in known]
        self._tell(kind, names, queue, reason)

    def lost(self, queue: int) -> None:
        """The link is gone, and with it whatever it had lent."""
        self.left(Kind.LOCK_LOST, queue, list(self._names[queue]), "the link was lost")

    def polled(self, queue: int) -> None:
        self._record(Event(Kind.LONG_POLL, namespace=self._secondary, queue=self._paths[queue], count=1))

    def peeked(self, path: str, letters: Sequence[bytes]) -> None:
        self._record(peeked_event(self._secondary, path, letters))

    def renewed(self, queue: int, locks: int) -> None:
        self._record(Event(Kind.LOCK_RENEWED, namespace=self._secondary, queue=self._paths[queue], count=locks))

    def paused(self, reason: str) -> None:
        self._record(Event(Kind.PAUSED, namespace=self._secondary, reason=reason))

    def resumed(self) -> None:
        self._record(Event(Kind.RESUMED, namespace=self._secondary))

    # --- home ---

    def sent(self, kind: Kind, batch: Batch, failure: Failure | None = None) -> None:
        """A batch was stored at home, or it is in doubt, or it was refused. Letters are smaller there than they were
        in the backlog.
        """
        names = [held.name for held in batch.letters]
        self._record(_event(kind, names, self._primary, failure=failure, sizes=batch.sizes))

    def skipped(self, path: str, failure: Failure, until_ms: int) -> None:
        kind = Kind.THROTTLED if failure.kind is FailureKind.BUSY else Kind.DESTINATION_SKIPPED
        self._record(_event(kind, [], self._primary, entity=path, failure=failure, until_ms=until_ms))

    def back(self, path: str) -> None:
        self._record(Event(Kind.DESTINATION_BACK, entity=path, namespace=self._primary))

    def _tell(self, kind: Kind, names: list[Name], queue: int, reason: str = "") -> None:
        by_path: dict[str, list[Name]] = {}
        for name in names:
            by_path.setdefault(name.path, []).append(name)
        for group in by_path.values():
            self._record(_event(kind, group, self._secondary, queue=self._paths[queue], reason=reason))


def peeked_event(namespace: str, path: str, letters: Sequence[bytes]) -> Event:
    """A queue was looked into, or its dead letters, and this was found. Nothing costs as much as one message."""
    size, queue = sum(map(len, letters)), path.removesuffix(DEAD_LETTERS)
    return Event(Kind.PEEKED, namespace=namespace, queue=queue, count=max(1, len(letters)), bytes=size)


def _event(
    kind: Kind,
    names: list[Name],
    namespace: str,
    *,
    entity: str = "",
    queue: str = "",
    reason: str = "",
    failure: Failure | None = None,
    until_ms: int = 0,
    sizes: tuple[int, ...] | None = None,
) -> Event:
    """`sizes`: of the messages at this stage, if they are not those with which they came from the backlog."""
    return Event(
        kind,
        entity=names[0].path if names else entity,
        namespace=namespace,
        queue=queue,
        message_ids=tuple([name.message_id for name in names]),
        sizes=tuple([name.size for name in names]) if sizes is None else sizes,
        session_ids=tuple([name.session_id for name in names]) if any(name.session_id for name in names) else (),
        condition="" if failure is None else failure.condition or "",
        reason=reason if failure is None else str(failure),
        until_ms=until_ms,
    )


def _message_id(letter: bytes) -> str:
    found = _near_message_id(letter)
    if found is not None:
        return found
    try:
        return text_of(sections.read_property(letter, sections.walk(letter), PropertyField.MESSAGE_ID))
    except DecodeError:
        return ""


_BEFORE_PROPERTIES = (b"\x00\x53\x70", b"\x00\x53\x71", b"\x00\x53\x72")
_NARROW, _WIDE = (0xC0, 0xC1), (0xD0, 0xD1)
_NARROW_PROPERTIES = b"\x00\x53\x73\xc0"
_SHORT_TEXT = 0xA1


def _near_message_id(letter: bytes) -> str | None:
    """The id, if it is a short text where it usually is; None: look properly.

    A walk through the whole letter costs as much as all else that is recorded of it, and the id lies near its start.
    """
    try:
        at = 0
        while letter[at : at + 3] in _BEFORE_PROPERTIES:
            kind = letter[at + 3]
            if kind in _NARROW:
                at += 5 + letter[at + 4]
            elif kind in _WIDE:
                at += 8 + int.from_bytes(letter[at + 4 : at + 8])
            else:
                return None
        if not letter.startswith(_NARROW_PROPERTIES, at) or letter[at + 6] != _SHORT_TEXT:
            return None
        end = at + 8 + letter[at + 7]
        return letter[at + 8 : end].decode() if end <= at + 5 + letter[at + 4] <= len(letter) else None
    except (IndexError, UnicodeDecodeError):
        return None
