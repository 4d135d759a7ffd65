"""The connection to the secondary: a link to every backlog queue, taken again whenever it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.link import ReceivingLink
from twinbus.amqp.outcomes import RELEASED
from twinbus.errors import DecodeError
from twinbus.pairing.failure import Failure
from twinbus.syphon.backlog import BacklogQueue
from twinbus.syphon.backoff import Backoff
from twinbus.syphon.effects import Grant, Look, RenewLocks, ReopenQueue, Settle
from twinbus.syphon.failures import failure_of, no_answer
from twinbus.syphon.letters import Lot
from twinbus.syphon.line import Line
from twinbus.syphon.linked import LineFailed, Linked
from twinbus.syphon.look import is_waiting, peek, sequence_of
from twinbus.syphon.ordered_pump import OrderedPump
from twinbus.syphon.pump import Pump
from twinbus.syphon.queue_search import ABSENT, lasts
from twinbus.syphon.refusals import Refusals
from twinbus.syphon.requests import renew_locks_body

if TYPE_CHECKING:
    from twinbus.dial import Dial

Keep = Callable[[Coroutine[Any, Any, None]], None]
TOKENS_PER_REQUEST = 500
FURTHER = "backlog queues beyond the count"


class BacklogSide:
    def __init__(self, dial: Dial, pump: Pump, clock: Callable[[], int], act: Callable[[], None], keep: Keep) -> None:
        """`act` carries out what the pump wants; `keep` runs something beside."""
        self._dial = dial
        self._pump = pump
        self._clock = clock
        self._act = act
        self._keep = keep
        self._line: Line | None = None
        self._is_lost = asyncio.Event()
        self._links: dict[int, ReceivingLink] = {}
        self._troubles: dict[str, str] = {}
        self._refusals = Refusals([queue.path for queue in pump.queues], round(pump.options.refused_s * 1000))
        self.refusal: str | None = None
        """Why our credential is of no use at the secondary; None: it is, as far as anybody knows."""

    @property
    def troubles(self) -> tuple[str, ...]:
        """What keeps queues from being read."""
        return tuple([f"{subject}: {text}" for subject, text in list(self._troubles.items())])

    @property
    def line(self) -> Line | None:
        """The connection, for requests; None while there is none."""
        return self._line if self._line is not None and self._line.is_open else None

    async def run(self) -> None:
        """Connect, and again whenever the connection is lost, until cancelled."""
        backoff = Backoff(self._pump.options)
        while True:
            self._is_lost.clear()
            attempt_s = self._pump.options.attempt_s
            line = Line(
                self._dial,
                attempt_s=attempt_s,
                clock=self._clock,
                after=self._act,
                lost=self._line_lost,
                broken=lambda error: self._keep(failing(error)),
                peeked=self._pump.peeked,
            )
            try:
                await line.open()
            except LineFailed as error:
                self._trouble("secondary", error.failure)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            backoff.reset()
            self._fine("secondary")
            self._line = line
            for queue in self._pump.queues:
                if not queue.is_gone:
                    self._keep(self._hold(queue, line))
            await self._is_lost.wait()

    def add(self, queue: BacklogQueue) -> None:
        """A queue has come up, or come back."""
        self._refusals.add(queue.path)
        queue.is_gone = False
        if self.line is not None:
            self._keep(self._hold(queue, self.line))

    async def close(self) -> None:
        if self._line is not None:
            await self._line.close()

    async def drain(self, wait_s: float) -> None:
        """Take all credit back, and see what was on its way."""
        places = [(link.context, link) for link in self._links.values() if isinstance(link.context, QueuePlace)]
        await asyncio.gather(*[place.drain(link, self.flush, wait_s) for place, link in places])

    def flush(self) -> None:
        if self._line is not None:
            self._line.flush()

    def _line_lost(self, failure: Failure) -> None:
        self._trouble("secondary", failure)
        self._is_lost.set()

    # --- one queue ---

    async def _hold(self, queue: BacklogQueue, line: Line) -> None:
        """Keep a link to a queue for as long as the connection lives."""
        backoff = Backoff(self._pump.options)
        queue.refusal = None  # what it said on another connection may be over
        while line.is_open:
            place = QueuePlace(queue.index, self._pump, self._clock)
            try:
                link = await line.receiver(queue.path, place)
            except LineFailed as error:
                if queue.is_extra and error.failure.kind in ABSENT:
                    self._forget(queue)
                    return
                queue.refusal = error.failure if lasts(error.failure) else None
                self._trouble(queue.path, error.failure)
                self._refused(queue.path, error.failure)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            self._links[queue.index] = link
            self._fine(queue.path)
            self._refusals.admitted()
            self.refusal = None
            began_ms = self._clock()
            self._pump.queue_attached(queue.index, began_ms)
            self._act()
            failure = await place.ended
            self._links.pop(queue.index, None)
            self._pump.queue_lost(queue.index)
            if self._clock() - began_ms > 1_000 * self._pump.options.backoff_s[1]:
                backoff.reset()
            if line.is_open:
                self._trouble(queue.path, failure)
                await asyncio.sleep(backoff.next_ms() / 1000)

    def _forget(self, queue: BacklogQueue) -> None:
        """Its owner has deleted it, and nobody here needs it: a look will find it if it comes back."""
        queue.is_gone = True
        queue.refusal = None
        self._refusals.remove(queue.path)
        self._troubles.pop(queue.path, None)
        self._act()

    def unsure(self, why: str | None) -> None:
        """Nobody can say now whether there are further queues; None: somebody can."""
        if why is None:
            self._fine(FURTHER)
        else:
            self._trouble(FURTHER, why)
        self._act()

    def _trouble(self, subject: str, why: Failure | str) -> None:
        if subject not in self._troubles:
            self._pump.alert("queue_down", subject, str(why))
        self._troubles[subject] = str(why)

    def _refused(self, path: str, failure: Failure) -> None:
        if self._refusals.failed(path, failure, self._clock()) and self.refusal is None:
            self.refusal = str(failure)
            self._pump.alert("refused", "secondary", f"no backlog queue may be read: {failure}")
        self._act()

    def _fine(self, subject: str) -> None:
        if self._troubles.pop(subject, None) is not None:
            self._pump.alert("queue_up", subject, "can be read again")

    # --- what the pump wants ---

    def do(self, effect: Settle | Grant | RenewLocks | ReopenQueue | Look) -> None:
        link = self._links.get(effect.queue)
        if link is None:
            return  # lost meanwhile; the pump has heard or is about to
        match effect:
            case Settle(first=first, last=last, outcome=outcome):
                # Of what is given back nothing needs to be known; all else is answered, or the lock was lost.
                link.settle(first, last, outcome, settled=outcome is RELEASED)
            case Grant(credit=credit):
                link.grant(credit)
            case RenewLocks(queue=index, lot=lot, tokens=tokens):
                self._keep(self._renew(self._pump.queues[index].path, lot, tokens))
            case Look():
                self._keep(self._look(effect))
            case ReopenQueue(reason=reason):
                place, link.context = link.context, None
                link.detach()
                if isinstance(place, QueuePlace):
                    place.end(reason)

    async def _renew(self, path: str, lot: Lot, tokens: tuple[bytes, ...]) -> None:
        asked_ms = self._clock()
        refusal: Failure | None = None
        try:
            line = self._line
            for start in range(0, len(tokens), TOKENS_PER_REQUEST):
                if line is None or not line.is_open:
                    return
                body = renew_locks_body(tokens[start : start + TOKENS_PER_REQUEST])
                answer = await line.ask(path, "renew-lock", body)
                if not answer.is_good:
                    refusal = failure_of(answer.error)
        except LineFailed as error:
            refusal = error.failure
        self._pump.renewed(lot, refusal, asked_ms, self._clock())
        self._act()

    async def _look(self, look: Look) -> None:
        pump, line = self._pump, self._line
        assert isinstance(pump, OrderedPump), "only this one looks"
        try:
            if line is None or not line.is_open:
                return  # the queue is attached anew, and then all is looked at anew
            letters = await peek(line, pump.queues[look.queue].path, look.from_sequence, look.most)
            found = [sequence_of(letter) for letter in letters if is_waiting(letter)]
            seen_to = sequence_of(letters[-1]) if letters else None
        except (LineFailed, DecodeError):
            pump.look_failed(look.queue, look.era, self._clock())
        else:
            pump.looked(look.queue, look.era, look.from_sequence, found, seen_to, self._clock())
        self._act()


async def failing(error: Exception) -> None:
    """Work that fails so: what is raised where nobody waits for it still ends the syphon."""
    raise error


class QueuePlace(Linked):
    """What happens on the link to a backlog queue, told to the pump."""

    def __init__(self, index: int, pump: Pump, clock: Callable[[], int]) -> None:
        super().__init__()
        self._index = index
        self._pump = pump
        self._clock = clock
        self.ended: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()

    def transfers(self, arrived: list[TransferArrived]) -> None:
        if not self.ended.done():
            self._pump.arrived(self._index, arrived, self._clock())

    def disposition(self, event: DispositionArrived) -> None:
        if not self.ended.done():
            ids = [delivery_id for delivery_id, _ in event.deliveries]
            self._pump.settled(self._index, ids, event.outcome, self._clock())

    def gone(self, failure: Failure) -> None:
        if not self.ended.done():
            self._pump.queue_lost(self._index)  # at once: what comes next must not find letters of the old link
            self.ended.set_result(failure)

    def end(self, reason: str) -> None:
        """We leave this link."""
        self.gone(no_answer(reason))
