"""Whether order can be promised for what lies in the backlog now: asked before anything is moved (P19)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus.errors import TwinbusError
from twinbus.pairing.backlog_queues import backlog_path
from twinbus.syphon.line import Line
from twinbus.syphon.look import PAGE, Wants, peek
from twinbus.syphon.placement import problem_of_letter

if TYPE_CHECKING:
    from twinbus.dial import Dial


async def first_order_problem(
    secondary: Dial, primary_name: str, queues: Sequence[int], over: Sequence[int], wants: Wants, *, attempt_s: float
) -> str | None:
    """Look at the head of each of `queues`: why order cannot be promised there. Raises `LineFailed`.

    `over` are those over which senders spread sessions: nothing with a known order lies in any other.
    """
    line = Line(secondary, attempt_s=attempt_s, clock=lambda: int(time.monotonic() * 1000))
    await line.open()
    try:
        for queue in queues:
            path = backlog_path(primary_name, queue)
            for letter in await peek(line, path, 1, PAGE):
                problem = problem_of_letter(letter, queue, over, wants)
                if problem is not None:
                    return f"{path}: {problem}"
    finally:
        await line.close()
    return None


def order_refused(problem: str, ways_out: str = "check --queues, or leave --order out") -> TwinbusError:
    return TwinbusError(f"order cannot be promised: {problem}; {ways_out}")
