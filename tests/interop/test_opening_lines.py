"""The syphon's connection to a real namespace."""

from __future__ import annotations

import asyncio
import time

from twinbus import Namespace
from twinbus.syphon.line import Line
from twinbus.testing import LocalNamespace

WAIT_S = 60.0


async def test_many_queues_that_are_opened_at_once_need_few_links_before_the_first_token() -> None:
    """A namespace keeps little for a peer that has not shown who it is, and cuts off one that wants more."""
    names = [f"queue-{number}" for number in range(30)]
    with LocalNamespace("contoso", queues=names) as namespace:
        dial = Namespace.from_connection_string(namespace.connection_string).dial(WAIT_S)
        line = Line(dial, attempt_s=WAIT_S, clock=lambda: int(time.monotonic() * 1000))
        await line.open()
        await asyncio.gather(*[line.try_receiver(name) for name in names])
        assert line.is_open
        await line.close()
