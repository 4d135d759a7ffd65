"""One message at a time to where it belongs."""

from __future__ import annotations

import asyncio

from twinbus.amqp import sections
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.link import SendingLink
from twinbus.amqp.outcomes import Accepted
from twinbus.errors import EnvelopeError
from twinbus.pairing.envelope import open_envelope
from twinbus.pairing.failure import Failure, FailureKind
from twinbus.syphon.failures import failure_of_outcome, no_answer
from twinbus.syphon.line import Line
from twinbus.syphon.linked import LineFailed, Linked
from twinbus.syphon.reasons import NOTES, path_problem


class Messenger(Linked):
    """Takes one message home at a time and hears what became of it."""

    def __init__(self, line: Line, attempt_s: float) -> None:
        super().__init__()
        self._line = line
        self._attempt_s = attempt_s
        self._links: dict[str, SendingLink] = {}
        self._answer: asyncio.Future[DispositionArrived] | None = None
        self._number = 0
        self._silent: set[str] = set()
        """Entities that kept us waiting: once is enough, or a thousand messages would wait a thousand times."""

    async def deliver(self, letter: bytes) -> int:
        """Send a message home; how many bytes it has there.

        Raises `LineFailed`, `EnvelopeError` or `DecodeError` if it did not arrive.
        """
        bare = sections.rewrite(letter, remove_application_properties=NOTES)
        home = open_envelope(bare)
        problem = path_problem(home.path)
        if problem is not None:
            raise EnvelopeError(problem)
        if home.path in self._silent:
            raise LineFailed(no_answer(f"{home.path} did not answer before, so it was not asked again"))
        try:
            await self._send(home.path, home.letter)
        except LineFailed as error:
            if error.failure.kind is FailureKind.NO_ANSWER:
                self._silent.add(home.path)
            raise
        return len(home.letter)

    async def _send(self, path: str, letter: bytes) -> None:
        link = self._links.get(path)
        if link is None or not link.attached:
            link = self._links[path] = await self._line.sender(path, self)
        await self.credit_within(link, self._attempt_s, path)
        self._answer = asyncio.get_running_loop().create_future()
        self._number += 1
        link.send(letter, tag=self._number.to_bytes(4, "big"))
        self._line.flush()
        try:
            async with asyncio.timeout(self._attempt_s):
                answer = await self._answer
        except TimeoutError:
            raise LineFailed(no_answer(f"{path} did not answer in time", in_doubt=True)) from None
        if not isinstance(answer.outcome, Accepted):
            raise LineFailed(failure_of_outcome(answer.outcome))

    def disposition(self, event: DispositionArrived) -> None:
        is_latest = any(int.from_bytes(tag, "big") == self._number for _, tag in event.deliveries)
        if is_latest and self._answer is not None and not self._answer.done():
            self._answer.set_result(event)

    def gone(self, failure: Failure) -> None:
        super().gone(failure)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(LineFailed(failure))
