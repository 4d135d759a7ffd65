"""Runs a flow: ask, act, answer, until it returns.

Between two asks a flow touches what all senders of a client share, so each of its steps runs under the client's lock;
what it asks for is done outside of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from twinbus.client.flows.io_requests import Answer, Ask, Flow, Result


async def run(
    flow: Flow[Result],
    perform: Callable[[Ask], Awaitable[Answer]],
    lock: AbstractContextManager[Any],
    settle: Callable[[], None],
) -> Result:
    """The flow's result; what `perform` raises is raised inside the flow.

    `settle` is called after every step, outside the lock, and carries out what the step ordered.
    """
    answer: Answer | BaseException | None = None
    while True:
        try:
            with lock:
                ask = _step(flow, answer)
        except StopIteration as done:
            result: Result = done.value
            return result
        finally:
            settle()
        try:
            answer = await perform(ask)
        except BaseException as error:
            answer = error


def _step(flow: Flow[Result], answer: Answer | BaseException | None) -> Ask:
    if isinstance(answer, BaseException):
        return flow.throw(answer)
    return next(flow) if answer is None else flow.send(answer)
