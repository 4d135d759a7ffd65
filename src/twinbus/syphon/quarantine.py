"""Messages that could not go home: the dead-letter queues of the backlog queues, to look at, try again, or throw away.

Nothing is decided by itself here: what is tried again or thrown away is chosen by somebody, by number or reason.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from twinbus.amqp import sections
from twinbus.amqp.link import ReceivingLink
from twinbus.amqp.outcomes import RELEASED
from twinbus.amqp.sections import Layout, PropertyField
from twinbus.amqp.types import Value, text_of
from twinbus.errors import DecodeError, EnvelopeError
from twinbus.ledger.events import Recorder
from twinbus.ledger.kinds import Kind
from twinbus.pairing.backlog_queues import backlog_path
from twinbus.pairing.envelope import Aliases, read_aliases
from twinbus.syphon.letters import enqueued_ms
from twinbus.syphon.line import Line
from twinbus.syphon.linked import LineFailed
from twinbus.syphon.look import DEAD_LETTERS, Wants, count_wanted, pages, peek, sequence_of
from twinbus.syphon.messenger import Messenger
from twinbus.syphon.quarantine_book import QuarantineBook
from twinbus.syphon.queue_search import chosen
from twinbus.syphon.reasons import NOTES
from twinbus.syphon.tray import Tray

if TYPE_CHECKING:
    from twinbus.dial import Dial

Name = TypeVar("Name")

COUNTED_MAX = 10_000
_CREDIT = 100
_QUIET_S = 1.0
_UNDER_LOCK = "somebody else has it under lock: try again later"
_TOO_FAR = "too many others lie before it: their locks ended before it came; take those away first"


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One message, as somebody has to know it to decide."""

    queue: int
    sequence: int
    message_id: str | None
    path: str | None
    """Where it was to go; None if it does not say."""
    session_id: str | None
    reason: str | None
    description: str | None
    size: int
    enqueued_ms: int | None
    letter: bytes = field(repr=False)
    """All of it."""

    @property
    def number(self) -> Number:
        return self.queue, self.sequence


Number = tuple[int, int]
"""By which a message is known: the index of its queue, and its sequence number there."""


@dataclass(slots=True)
class Aftermath:
    """What became of the chosen messages."""

    done: list[Number] = field(default_factory=list)
    """Those that are home, or gone."""
    kept: dict[Number, str] = field(default_factory=dict)
    """Why others are still in quarantine."""


Choice = Callable[[Quarantined], bool]


class Quarantine:
    """The dead-letter queues of one primary's backlog, in an `async with` block. Raises `LineFailed`."""

    def __init__(
        self,
        secondary: Dial,
        primary_name: str,
        queue_count: int,
        *,
        queues: Sequence[int] | None = None,
        attempt_s: float = 15.0,
        ledger: Recorder | None = None,
    ) -> None:
        """`queues` are the indexes to look into, all of them by default."""
        self._secondary = secondary
        self._paths = {index: backlog_path(primary_name, index) + DEAD_LETTERS for index in chosen(queue_count, queues)}
        self._attempt_s = attempt_s
        self._book = QuarantineBook(ledger, primary_name, secondary.called)
        self._line = self._new_line(secondary)

    async def __aenter__(self) -> Quarantine:
        await self._line.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._line.close()

    async def list(self) -> AsyncIterator[Quarantined]:
        """Everything in quarantine, queue by queue, the oldest first."""
        for queue, path in self._paths.items():
            async for found in self._in(queue, path):
                yield found

    async def show(self, queue: int, sequence: int) -> Quarantined | None:
        """One message; None if it is not there."""
        path = self._paths.get(queue)
        letters = [] if path is None else await peek(self._line, path, sequence, 1)
        found = [describe(queue, letter) for letter in letters]
        return found[0] if found and found[0].sequence == sequence else None

    async def redrive(self, primary: Dial, choice: Choice) -> Aftermath:
        """Send the chosen messages home, with their full time to live; what is refused again stays."""
        home = self._new_line(primary)
        await home.open()
        try:
            return await self._each(choice, Kind.REDRIVEN, Messenger(home, self._attempt_s))
        finally:
            await home.close()

    async def discard(self, choice: Choice) -> Aftermath:
        """Throw the chosen messages away."""
        return await self._each(choice, Kind.DISCARDED, None)

    async def _each(self, choice: Choice, kind: Kind, messenger: Messenger | None) -> Aftermath:
        aftermath = Aftermath()
        for queue, path in self._paths.items():
            chosen = {found.sequence async for found in self._in(queue, path) if choice(found)}
            if chosen:
                clearance = Clearance(self._line, path, kind, messenger, self._book, self._attempt_s)
                await clearance.run(queue, chosen, aftermath)
        return aftermath

    async def _in(self, queue: int, path: str) -> AsyncIterator[Quarantined]:
        async for letters in pages(self._line, path):
            for letter in letters:
                yield describe(queue, letter)

    def _new_line(self, dial: Dial) -> Line:
        return Line(
            dial, attempt_s=self._attempt_s, clock=lambda: int(time.monotonic() * 1000), peeked=self._book.peeked
        )


class Clearance:
    """Takes chosen messages out of one dead-letter queue."""

    def __init__(
        self, line: Line, path: str, kind: Kind, messenger: Messenger | None, book: QuarantineBook, attempt_s: float
    ) -> None:
        """`kind` is what the ledger calls it; without a messenger they go nowhere."""
        self._line = line
        self._path = path
        self._queue = path.removesuffix(DEAD_LETTERS)
        self._kind = kind
        self._messenger = messenger
        self._book = book
        self._attempt_s = attempt_s
        self._tray = Tray()
        self._spared: list[int] = []
        """Deliveries to be given back."""
        self._passed: dict[int, int] = {}
        """Messages that were passed over, by number, and how many were left to be met then."""

    async def run(self, queue: int, chosen: set[int], aftermath: Aftermath) -> None:
        """Receive until all that was chosen has been seen; what was not is given back at the end."""
        link = await self._line.receiver(self._path, self._tray)
        link.keep_credit = _CREDIT
        self._line.flush()
        why_not = _UNDER_LOCK
        while chosen and why_not is _UNDER_LOCK:
            transfer = await self._tray.next(_QUIET_S)
            if transfer is None:
                break
            found = describe(queue, transfer.payload)
            if found.sequence in chosen:
                chosen.discard(found.sequence)
                await self._try(found, transfer.delivery_id, link, aftermath)
            elif not self._pass_over(found, transfer.delivery_id, len(chosen)):
                why_not = _TOO_FAR
        await self._leave(link)
        aftermath.kept |= dict.fromkeys([(queue, each) for each in chosen], why_not)

    def _pass_over(self, found: Quarantined, delivery_id: int, left: int) -> bool:
        """Whether that leads anywhere. If a message comes again, its lock has ended, and if none of those that are
        left was met meanwhile, none ever will be."""
        self._spared.append(delivery_id)
        before, self._passed[found.sequence] = self._passed.get(found.sequence), left
        return before != left

    async def _try(self, found: Quarantined, delivery_id: int, link: ReceivingLink, aftermath: Aftermath) -> None:
        try:
            await self._take_out(found, delivery_id, link)
            aftermath.done.append(found.number)
        except (LineFailed, EnvelopeError, DecodeError) as error:
            aftermath.kept[found.number] = str(error)
            self._book.kept(found, self._queue, str(error))
            self._spared.append(delivery_id)

    async def _take_out(self, found: Quarantined, delivery_id: int, link: ReceivingLink) -> None:
        """Raises `LineFailed`, `EnvelopeError` or `DecodeError` if the message is still there."""
        self._book.received(found, self._queue)
        if self._messenger is not None:
            await self._send_home(found, self._messenger)
        await self._tray.take_away(link, delivery_id, self._line.flush, self._attempt_s)
        self._book.gone(self._kind, found, self._queue)

    async def _send_home(self, found: Quarantined, messenger: Messenger) -> None:
        try:
            size = await messenger.deliver(found.letter)
        except (LineFailed, EnvelopeError, DecodeError) as error:
            self._book.not_sent_home(found, error, error.failure if isinstance(error, LineFailed) else None)
            raise
        self._book.sent_home(found, size)

    async def _leave(self, link: ReceivingLink) -> None:
        await self._tray.drain(link, self._line.flush, _QUIET_S)  # or what is given back now comes again at once
        for delivery_id in self._spared + self._tray.left():
            link.settle(delivery_id, delivery_id, RELEASED)
        link.context = None
        link.detach()
        self._line.flush()


async def count_quarantined(line: Line, primary_name: str, queues: Sequence[int], wants: Wants) -> int:
    """How many messages that `wants` knows, or that nobody can read, are in quarantine. Raises `LineFailed`.

    Not counted beyond `COUNTED_MAX`: that is bad enough, and each 250 of them cost a peek.
    """
    count = 0
    for index in queues:
        path = backlog_path(primary_name, index) + DEAD_LETTERS
        count += await count_wanted(line, path, wants, COUNTED_MAX - count)
        if count >= COUNTED_MAX:
            break
    return count


def describe(queue: int, letter: bytes) -> Quarantined:
    layout = sections.walk(letter)
    notes = [_unless_broken(sections.read_application_property, letter, layout, name) for name in NOTES]
    message_id = _unless_broken(sections.read_property, letter, layout, PropertyField.MESSAGE_ID)
    try:
        aliases: Aliases | None = read_aliases(letter)
    except (EnvelopeError, DecodeError):
        aliases = None
    return Quarantined(
        queue=queue,
        sequence=sequence_of(letter),
        message_id=None if message_id is None else text_of(message_id),
        path=None if aliases is None else aliases.path,
        session_id=None if aliases is None else aliases.session_id,
        reason=None if notes[0] is None else str(notes[0]),
        description=None if notes[1] is None else str(notes[1]),
        size=len(letter),
        enqueued_ms=enqueued_ms(letter),
        letter=letter,
    )


def _unless_broken(read: Callable[[bytes, Layout, Name], Value], letter: bytes, layout: Layout, name: Name) -> Value:
    """None for what cannot be read: it must not hide the other messages."""
    try:
        return read(letter, layout, name)
    except DecodeError:
        return None


def by_numbers(numbers: Collection[Number]) -> Choice:
    """Choose messages by queue and sequence number."""
    wanted = set(numbers)
    return lambda found: found.number in wanted


def by_reason(reason: str) -> Choice:
    return lambda found: found.reason == reason
