"""The connection to the primary: made when there is something to send, one link for each destination."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.link import SendingLink
from twinbus.amqp.outcomes import Received
from twinbus.errors import AmqpError
from twinbus.pairing.failure import Failure
from twinbus.syphon.backlog_side import Keep, failing
from twinbus.syphon.effects import DropDestination, OpenDestination, Send
from twinbus.syphon.failures import unreachable
from twinbus.syphon.line import Line
from twinbus.syphon.linked import LineFailed, Linked
from twinbus.syphon.pump import Pump

if TYPE_CHECKING:
    from twinbus.dial import Dial

BATCH_LIMIT = "com.microsoft:max-message-batch-size"
_MIB = 1024 * 1024


class HomeSide:
    def __init__(self, dial: Dial, pump: Pump, clock: Callable[[], int], act: Callable[[], None], keep: Keep) -> None:
        """`act` carries out what the pump wants; `keep` runs something beside."""
        self._dial = dial
        self._pump = pump
        self._clock = clock
        self._act = act
        self._keep = keep
        self._line: Line | None = None
        self._connecting: asyncio.Task[Line] | None = None
        self._links: dict[str, SendingLink] = {}

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._line is not None:
            await self._line.close()

    def flush(self) -> None:
        if self._line is not None:
            self._line.flush()

    # --- what the pump wants ---

    def do(self, effect: Send | OpenDestination | DropDestination) -> None:
        match effect:
            case Send(path=path, number=number, payload=payload, message_format=message_format):
                self._send(path, number, payload, message_format)
            case OpenDestination(path=path):
                self._keep(self._open(path))
            case DropDestination(path=path):
                link = self._links.pop(path, None)
                if link is not None:
                    link.context = None
                    link.detach()

    def _send(self, path: str, number: int, payload: bytes, message_format: int) -> None:
        link = self._links.get(path)
        if link is None:
            return  # its end is being told to the pump
        try:
            link.send(payload, tag=number.to_bytes(4, "big"), message_format=message_format)
        except AmqpError as error:
            self._links.pop(path, None)
            self._pump.destination_failed(path, unreachable(error), self._clock())

    async def _open(self, path: str) -> None:
        link = self._links.get(path)
        if link is None or not link.attached:
            place = DestinationPlace(path, self._pump, self._clock, self._forget)
            try:
                line = await self._connected()
                link = self._links[path] = await line.sender(path, place)
            except LineFailed as error:
                self._pump.destination_failed(path, error.failure, self._clock())
                self._act()
                return
            place.is_in_use = True
        largest = link.max_message_size or 0
        self._pump.destination_opened(path, largest, _batch_limit(link, largest), link.credit)
        self._act()

    def _forget(self, path: str, failure: Failure) -> None:
        self._links.pop(path, None)
        self._pump.destination_failed(path, failure, self._clock())

    # --- the connection ---

    async def _connected(self) -> Line:
        """The connection; all who want it share one attempt to make it."""
        if self._line is not None and self._line.is_open:
            return self._line
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(_looked_at)
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> Line:
        try:
            line = Line(
                self._dial,
                attempt_s=self._pump.options.attempt_s,
                clock=self._clock,
                after=self._act,
                broken=lambda error: self._keep(failing(error)),
            )
            await line.open()
            self._line = line
            return line
        finally:
            self._connecting = None


def _looked_at(task: asyncio.Task[Line]) -> None:
    """Whoever waited for the task knows how it ended; if nobody did any more, nobody has to."""
    if not task.cancelled():
        task.exception()


def _batch_limit(link: SendingLink, largest: int) -> int:
    """The largest batch a link takes; links that do not say so are taken as the official clients take them."""
    said = (link.properties or {}).get(BATCH_LIMIT)
    if isinstance(said, int) and said > 0:
        return int(said)
    return min(largest, _MIB) if largest else _MIB


class DestinationPlace(Linked):
    """What happens on the link to a destination, told to the pump."""

    def __init__(self, path: str, pump: Pump, clock: Callable[[], int], forget: Callable[[str, Failure], None]) -> None:
        super().__init__()
        self._path = path
        self._pump = pump
        self._clock = clock
        self._forget = forget
        self.is_in_use = False
        """Until then, whoever asked for the link hears of its end."""

    def disposition(self, event: DispositionArrived) -> None:
        if isinstance(event.outcome, Received):
            return  # under way, and no more than that
        numbers = [int.from_bytes(tag, "big") for _, tag in event.deliveries]
        if not event.settled and isinstance(event.link, SendingLink):
            for delivery_id, _ in event.deliveries:
                event.link.settle(delivery_id, delivery_id, event.outcome)
        self._pump.answered(self._path, numbers, event.outcome, self._clock())

    def credit(self, link: SendingLink) -> None:
        super().credit(link)
        self._pump.credit(self._path, link.credit)

    def gone(self, failure: Failure) -> None:
        super().gone(failure)
        if self.is_in_use:
            self._forget(self._path, failure)
