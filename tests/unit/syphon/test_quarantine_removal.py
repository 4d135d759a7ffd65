"""Taking single messages out of a long quarantine."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import cast

from pump_harness import START_MS, backlogged, delivered, transfer

from twinbus.amqp.codec.outcomes import Outcome
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.ledger.kinds import Kind
from twinbus.syphon.ledger_events import QuarantineEventLog
from twinbus.syphon.quarantine import QuarantineRemoval, QuarantineResult
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.links.link_handler import LinkHandler

MESSAGES = [delivered(backlogged("orders", f"m{number}"), number, START_MS, START_MS) for number in range(1, 4)]


class RestlessQueue:
    """A link and its line: the first messages come again and again, because their locks end before the last comes."""

    def __init__(self) -> None:
        self.keep_credit = 0
        self.given_back: list[int] = []
        self.context: LinkHandler | None = None
        self._ids = count(1)

    async def open_receiver(self, _path: str, linked: LinkHandler) -> RestlessQueue:
        self.context = linked
        return self

    def flush(self) -> None:
        if self.context is not None and self.keep_credit:
            asyncio.get_running_loop().call_later(0.01, self.flush)
            self.context.on_transfers([transfer(next(self._ids), message) for message in MESSAGES[:2]])

    def grant(self, _credit: int) -> None:
        pass

    def drain(self) -> None:
        if self.context is not None:
            self.context.on_drained()

    def settle(self, first: int, _last: int, _outcome: Outcome) -> None:
        self.given_back.append(first)

    def detach(self) -> None:
        pass


async def test_a_message_that_never_comes_because_others_come_again_is_given_up_with_the_reason() -> None:
    queue = RestlessQueue()
    event_log = QuarantineEventLog(None, "contoso", "backup")
    clearance = QuarantineRemoval(
        cast("NamespaceConnection", queue), "q/0/$DeadLetterQueue", Kind.DISCARDED, None, event_log, attempt_s=1.0
    )
    aftermath = QuarantineResult()
    async with asyncio.timeout(60):
        await clearance.run(0, {3}, aftermath)
    assert aftermath.done == []
    assert "too many messages lie before it" in aftermath.kept[0, 3]
    assert queue.given_back[:3] == [1, 2, 3], "everything that was lent goes back"
    assert cast("ReceivingLink", queue).context is None
