"""Run a flow: ask, act, answer, until it returns.

Between two asks a flow touches what all senders of a client share, so each of its steps runs under the client's lock;
what it asks for is done outside of it. The async twin needs no lock: a flow's step never awaits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from twinbus.client.asks import Answer, Ask, Flow, Result

Settle = Callable[[], None]
"""Called after every step, outside the lock: carries out the orders that the step gave."""


def run(
    flow: Flow[Result], perform: Callable[[Ask], Answer], lock: AbstractContextManager[Any], settle: Settle
) -> Result:
    """The flow's result; what `perform` raises is raised inside the flow."""
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
            answer = perform(ask)
        except BaseException as error:
            answer = error


async def run_async(flow: Flow[Result], perform: Callable[[Ask], Awaitable[Answer]], settle: Settle) -> Result:
    """The same for tasks."""
    answer: Answer | BaseException | None = None
    while True:
        try:
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
