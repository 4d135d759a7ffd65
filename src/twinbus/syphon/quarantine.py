"""Messages that could not go home: the dead-letter queues of the backlog queues, to look at, try again, or throw away.

Nothing is decided by itself here: what is tried again or thrown away is chosen by somebody, by number or reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from twinbus.amqp import sections
from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.link import ReceivingLink, SendingLink
from twinbus.amqp.outcomes import ACCEPTED, RELEASED, Accepted
from twinbus.amqp.sections import PropertyField
from twinbus.errors import DecodeError, EnvelopeError
from twinbus.pairing.backlog_queues import backlog_path
from twinbus.pairing.envelope import open_envelope, read_aliases
from twinbus.syphon.failures import failure_of_outcome, no_answer
from twinbus.syphon.letters import enqueued_ms
from twinbus.syphon.line import Line
from twinbus.syphon.linked import LineFailed, Linked
from twinbus.syphon.look import pages, sequence_of
from twinbus.syphon.presence import chosen
from twinbus.syphon.reasons import path_problem

if TYPE_CHECKING:
    from twinbus.dial import Dial

DEAD_LETTERS = "/$DeadLetterQueue"
_NOTES = ("DeadLetterReason", "DeadLetterErrorDescription")
_CREDIT = 100
_QUIET_S = 1.0


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One message, as somebody has to know it to decide."""

    queue: int
    sequence: int
    message_id: str | None
    path: str | None
    """Where it was to go; None if it does not say."""
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
    ) -> None:
        """`queues` are the indexes to look into, all of them by default."""
        self._secondary = secondary
        self._paths = {index: backlog_path(primary_name, index) + DEAD_LETTERS for index in chosen(queue_count, queues)}
        self._attempt_s = attempt_s
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
            async for letters in pages(self._line, path):
                for letter in letters:
                    yield describe(queue, letter)

    async def show(self, queue: int, sequence: int) -> Quarantined | None:
        """One message; None if it is not there."""
        async for found in self.list():
            if (found.queue, found.sequence) == (queue, sequence):
                return found
        return None

    async def redrive(self, primary: Dial, choice: Choice) -> Aftermath:
        """Send the chosen messages home, with their full time to live; what is refused again stays."""
        home = self._new_line(primary)
        await home.open()
        try:
            messenger = Messenger(home, self._attempt_s)
            return await self._each(choice, messenger.deliver)
        finally:
            await home.close()

    async def discard(self, choice: Choice) -> Aftermath:
        """Throw the chosen messages away."""

        async def nothing(_found: Quarantined) -> None:
            return None

        return await self._each(choice, nothing)

    async def _each(self, choice: Choice, act: Callable[[Quarantined], Any]) -> Aftermath:
        aftermath = Aftermath()
        for queue, path in self._paths.items():
            chosen = {found.sequence async for found in self._in(queue, path) if choice(found)}
            if chosen:
                await self._empty(queue, path, chosen, act, aftermath)
        return aftermath

    async def _in(self, queue: int, path: str) -> AsyncIterator[Quarantined]:
        async for letters in pages(self._line, path):
            for letter in letters:
                yield describe(queue, letter)

    async def _empty(
        self, queue: int, path: str, chosen: set[int], act: Callable[[Quarantined], Any], aftermath: Aftermath
    ) -> None:
        """Receive until all that was chosen has been seen; what was not is given back at the end."""
        tray = Tray()
        link = await self._line.receiver(path, tray)
        link.keep_credit = _CREDIT
        self._line.flush()
        spared: list[int] = []
        while chosen:
            transfer = await tray.next(_QUIET_S)
            if transfer is None:
                break
            found = describe(queue, transfer.payload)
            if found.sequence not in chosen:
                spared.append(transfer.delivery_id)
                continue
            chosen.discard(found.sequence)
            if not await self._is_done(found, transfer, link, act, aftermath):
                spared.append(transfer.delivery_id)
        await tray.drain(link, self._line.flush, _QUIET_S)  # or what is given back now comes again at once
        for delivery_id in spared + tray.left():
            link.settle(delivery_id, delivery_id, RELEASED)
        link.context = None
        link.detach()
        self._line.flush()
        aftermath.kept |= dict.fromkeys(
            [(queue, each) for each in chosen], "somebody else has it under lock: try again later"
        )

    async def _is_done(
        self,
        found: Quarantined,
        transfer: TransferArrived,
        link: ReceivingLink,
        act: Callable[[Quarantined], Any],
        aftermath: Aftermath,
    ) -> bool:
        try:
            await act(found)
        except (LineFailed, EnvelopeError, DecodeError) as error:
            aftermath.kept[found.number] = str(error)
            return False
        aftermath.done.append(found.number)
        link.settle(transfer.delivery_id, transfer.delivery_id, ACCEPTED)
        self._line.flush()
        return True

    def _new_line(self, dial: Dial) -> Line:
        return Line(dial, attempt_s=self._attempt_s, clock=lambda: int(time.monotonic() * 1000))


class Tray(Linked):
    """Messages from a link, one at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived: asyncio.Queue[TransferArrived] = asyncio.Queue()

    def transfers(self, arrived: list[TransferArrived]) -> None:
        for transfer in arrived:
            self._arrived.put_nowait(transfer)

    async def next(self, wait_s: float) -> TransferArrived | None:
        """The next message; None if none comes in time."""
        try:
            return await asyncio.wait_for(self._arrived.get(), wait_s)
        except TimeoutError:
            return None

    def left(self) -> list[int]:
        return [self._arrived.get_nowait().delivery_id for _ in range(self._arrived.qsize())]


class Messenger(Linked):
    """Takes one message home at a time and hears what became of it."""

    def __init__(self, line: Line, attempt_s: float) -> None:
        super().__init__()
        self._line = line
        self._attempt_s = attempt_s
        self._links: dict[str, SendingLink] = {}
        self._answer: asyncio.Future[DispositionArrived] | None = None
        self._number = 0

    async def deliver(self, found: Quarantined) -> None:
        """Raises `LineFailed`, `EnvelopeError` or `DecodeError` if the message did not arrive."""
        bare = sections.rewrite(found.letter, remove_application_properties=_NOTES)
        home = open_envelope(bare)
        problem = path_problem(home.path)
        if problem is not None:
            raise EnvelopeError(problem)
        link = self._links.get(home.path)
        if link is None or not link.attached:
            link = self._links[home.path] = await self._line.sender(home.path, self)
        self._answer = asyncio.get_running_loop().create_future()
        self._number += 1
        link.send(home.letter, tag=self._number.to_bytes(4, "big"))
        self._line.flush()
        try:
            answer = await asyncio.wait_for(self._answer, self._attempt_s)
        except TimeoutError:
            raise LineFailed(no_answer(f"{home.path} did not answer in time", in_doubt=True)) from None
        if not isinstance(answer.outcome, Accepted):
            raise LineFailed(failure_of_outcome(answer.outcome))

    def disposition(self, event: DispositionArrived) -> None:
        is_latest = any(int.from_bytes(tag, "big") == self._number for _, tag in event.deliveries)
        if is_latest and self._answer is not None and not self._answer.done():
            self._answer.set_result(event)

    def gone(self, failure: Any) -> None:
        super().gone(failure)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(LineFailed(failure))


def describe(queue: int, letter: bytes) -> Quarantined:
    layout = sections.walk(letter)
    notes = [sections.read_application_property(letter, layout, name) for name in _NOTES]
    message_id = sections.read_property(letter, layout, PropertyField.MESSAGE_ID)
    try:
        path = read_aliases(letter).path
    except (EnvelopeError, DecodeError):
        path = None
    return Quarantined(
        queue=queue,
        sequence=sequence_of(letter),
        message_id=None if message_id is None else str(message_id),
        path=path,
        reason=None if notes[0] is None else str(notes[0]),
        description=None if notes[1] is None else str(notes[1]),
        size=len(letter),
        enqueued_ms=enqueued_ms(letter),
        letter=letter,
    )


def by_numbers(numbers: Collection[Number]) -> Choice:
    """Choose messages by queue and sequence number."""
    wanted = set(numbers)
    return lambda found: found.number in wanted


def by_reason(reason: str) -> Choice:
    return lambda found: found.reason == reason
